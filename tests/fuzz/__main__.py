"""`python tests/fuzz`: see the package."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from fuzz import campaign, targets


def main() -> int:
    known = argparse.ArgumentParser(prog="python tests/fuzz", description="Fuzz the readers of files by others.")
    known.add_argument("--executions", type=int, default=100_000)
    known.add_argument("--seed", type=int, default=secrets.randbelow(1 << 24))
    known.add_argument("--seconds", type=float, default=1e9, help="of one target, at most")
    known.add_argument("--target", default="", choices=["", *targets.TARGETS])
    known.add_argument("--keep", type=Path, help="a folder for inputs that fail")
    given = known.parse_args()
    print(f"seed {given.seed}", flush=True)
    tried = found = 0
    for target, share in campaign.shares(given.executions, given.target):
        outcome = campaign.run(target, share, given.seed, seconds=given.seconds, keep=given.keep)
        tried, found = tried + outcome.tried, found + len(outcome.finds)
        print(outcome, flush=True)
    print(f"{tried:,} executions, {found} finds, seed {given.seed}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
