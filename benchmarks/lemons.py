"""Simulates fleets with known lemons: how many are found (power), and how many of the accused are none (false
discoveries). Prints the table of docs/fleet.md.

    python benchmarks/lemons.py [--repeats 200]

A host runs jobs for most of the time and fails at the fleet's rate, which is that of two clusters of Meta's
("Revisiting Reliability in Large-Scale ML Clusters", arXiv 2410.21680: 2.3 and 6.5 failures in 1000
node-days), and healthy hosts differ: their rates are drawn from a Gamma distribution. A lemon fails so many
times as often.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import mean

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from postmortem.fleet.history.lemons import Fleet, Unit, judge

# hosts, days, failures in 1000 node-days, how much healthy rates differ (1 / shape), lemons, times as bad
FLEETS = (
    (64, 28, 6.5, 0.0, 1, 20),
    (64, 90, 6.5, 0.0, 1, 20),
    (500, 28, 6.5, 0.5, 6, 20),
    (500, 90, 6.5, 0.5, 6, 10),
    (500, 90, 6.5, 0.5, 6, 20),
    (2000, 28, 6.5, 0.5, 24, 20),
    (2000, 90, 2.3, 0.5, 24, 20),
    (2000, 90, 6.5, 0.5, 24, 10),
    (2000, 90, 6.5, 0.5, 24, 20),
    (2000, 90, 6.5, 1.0, 24, 20),
    (2000, 90, 6.5, 0.5, 0, 1),
)
RATE = 0.05


def simulated(
    chance: np.random.Generator, hosts: int, days: int, rate: float, spread: float, lemons: int, times: float
) -> Fleet:
    """The first hosts are the lemons."""
    rates = np.full(hosts, rate / 24_000)
    if spread:
        rates *= chance.gamma(1 / spread, spread, hosts)
    rates[:lemons] = times * rate / 24_000
    exposure = 24 * days * chance.beta(8, 2, hosts)  # in use four fifths of the time
    faults = chance.poisson(rates * exposure)
    units = {
        f"host-{i}": Unit("host", f"host-{i}", {f"{i}/{k}" for k in range(n)}, float(e), int(e // 12) + 1)
        for i, (n, e) in enumerate(zip(faults, exposure, strict=True))
    }
    return Fleet(True, units, {}, {})


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=200)
    repeats = options.parse_args().repeats
    head = ("hosts", "days", "failures in 1000 node-days", "healthy rates differ by", "lemons", "times as bad")
    print(f"| {' | '.join(head)} | found | of the accused, wrong | fleets with a wrong one |")
    print("|" + "---:|" * (len(head) + 3))
    for fleet in FLEETS:
        chance = np.random.default_rng(19)
        power, false, any_false = [], [], []
        for _ in range(repeats):
            accused = {int(u.name[5:]) for u in judge(simulated(chance, *fleet), RATE) if u.lemon}
            wrong = sum(number >= fleet[4] for number in accused)
            power.append((len(accused) - wrong) / fleet[4] if fleet[4] else 0.0)
            false.append(wrong / len(accused) if accused else 0.0)
            any_false.append(wrong > 0)
        found = f"{mean(power):.0%}" if fleet[4] else "–"
        hosts, days, rate, spread, lemons, times = fleet
        columns = (
            f"{hosts:,}",
            days,
            rate,
            f"± {spread**0.5:.0%}" if spread else "nothing",
            lemons,
            times if lemons else "–",
        )
        print(f"| {' | '.join(map(str, columns))} | {found} | {mean(false):.1%} | {mean(any_false):.0%} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
