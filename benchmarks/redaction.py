"""Secrets that are found, words that are taken for one, and the cost of the search.

    .venv/bin/python benchmarks/redaction.py [--count 1000] [--seed 1] [--healthy 1000000] [FOLDER ...]

Plants secrets of all kinds (`planted`, made from public formats), and prints how many the redaction
finds, by
kind and for the surroundings that were held back. Goes through healthy lines, those of the folders
(`sample_logs`
by default) and made ones with hashes, ids, counts and settings, and prints what it marked in
them, per million. Times the redaction of 100,000 lines that are all different.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))
from planted import Plant, leaked, plants  # noqa: E402
from planted.made import ALNUM, B64, DIGITS, HEX  # noqa: E402

from postmortem.privacy import Redactor  # noqa: E402

TEXTS = {"", ".log", ".txt", ".out", ".err", ".jsonl"}
# Frequent in training logs: {h8} hex digits, {a8} letters and digits, {b8} base64, {n5} decimal digits
HEALTHY = (
    "tokens: {n4}",
    "pass: {n2}",
    "auth=munge cred/munge",
    "tokens/s: {n5}.{n1} num_tokens={n8} max_tokens={n4}",
    "forward pass: {n2}.{n1}ms, backward pass: {n3}.{n1}ms",
    "pass {n1}/{n2}: lowering done",
    "commit {h40} (HEAD -> main)",
    "sha256:{h64} pulled",
    "wandb: Syncing run vivid-sun-{n2} (id {a8})",
    "wandb: View run at https://wandb.ai/t/p/runs/{a8}",
    "wandb: Run data is saved locally in /x/wandb/run-{n8}_{n6}-{a8}",
    "GPU-{h8}-{h4}-{h4}-{h4}-{h12}: Tesla",
    "uuid={h8}-{h4}-4{h3}-a{h3}-{h12}",
    "comm 0x{h12} rank {n2} nranks {n3} commId 0x{h16} - Init COMPLETE",
    " {n2}%|████▌     | {n3}/{n4} [{n2}:{n2}<{n2}:{n2}, {n1}.{n2}s/it, loss={n1}.{n3}]",
    'md5: {h32} etag="{h32}-{n1}"',
    "data:image/png;base64,iVBORw0KGgo{b200}",
    "{b76}",
    "cache_key={h64} hit",
    "fx graph cache miss for key f{a50}",
    "CACHE_KEY={h32} STATE_KEY=step{n4}",
    "sort_key=c{n2} primary_key: id{n4} key={a10}",
    "KeyError: 'layers.{n2}.attn.q{n1}_proj'",
    "pad_token={n5} eos_token=<|end_{n2}|> image_token: <img{n3}>",
    "token: {n5} next_token: tensor({n4})",
    "lr={n1}e-{n1} wd=0.{n2} seed={n6} name=run{n2}",
    "optimizer.param_groups.{n1}.betas=(0.{n1}, 0.{n3})",
    "SLURM_JOB_ID={n7} SLURM_NODELIST=gpu[{n3}-{n3}]",
    "connect to [10.{n1}.{n2}.{n2}]:{n5} tcp://10.{n1}.{n2}.{n2}:{n5}",
    "store key default_pg/{n1}//worker{n2}//{n1}",
    "key: '/default/{n1}/rank_{n2}'",
    "credentials: default auth: sys, sec=krb5p",
    "GOOGLE_APPLICATION_CREDENTIALS=/etc/gcp/sa-{n3}.json",
    "PWD=/scratch/u{n3}/run{n2}",
    "Memory cgroup out of memory: Killed process {n5} (python) total-vm:{n8}kB",
    "torch_{n7}_{n3} /dev/shm/nccl-{a6}",
    "s3://bucket/ckpt/step-{n5}/shard-{n3}.pt etag {h32}",
    "artifact model-{a8}:v{n2} digest {b24}==",
    "TRITON_CACHE_KEY={h20} hash_key={h16}",
    "lease id {n18} revision {n6} key /jobs/{a10}",
    "session {h8}: cookie=0x{h8} seq={n6}",
    "user u{n3}: login from 10.{n1}.{n2}.{n2}",
    "step {n5} | ppl {n2}.{n3} | secret santa | key takeaways {n1}",
    "[{n2}/{n4}] key_padding_mask.shape=({n2}, {n3})",
    "auth_type=oauth2 auth_retries={n1}",
    "docker.io/library/x:v{n1}.{n1}@sha256:{h64}",
    "layer_key: h{n2} attention_key_size={n3}",
    "Password authentication is disabled; token auth is off ({n2})",
)
ALPHABETS = {"h": HEX, "a": ALNUM.lower(), "b": B64, "n": DIGITS}


def made(seed: int, count: int) -> Iterator[str]:
    r = random.Random(seed)
    forms = [[piece.partition("}") for piece in line.split("{")] for line in HEALTHY]
    for _ in range(count):
        first, *rest = r.choice(forms)
        yield first[0] + "".join(_run(r, spec) + tail if spec else tail for spec, _, tail in rest)


def _run(r: random.Random, spec: str) -> str:
    return "".join(r.choices(ALPHABETS[spec[0]], k=int(spec[1:])))


def read(folders: list[Path]) -> Iterator[str]:
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in TEXTS):
            data = path.read_bytes()
            if b"\0" not in data[:4096]:
                yield from (line[:4000] for line in data.decode("utf-8", "backslashreplace").split("\n"))


def recall(seed: int, count: int) -> None:
    tried: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for plant in plants(seed, count):
        hit = not leaked(plant.secret, Redactor().text(plant.text))
        for name in (plant.kind, _split(plant), "all"):
            tried[name] += 1
            found[name] += hit
    kinds = sorted(set(tried) - {"all", "seen", "unseen"}, key=lambda kind: (found[kind] / tried[kind], kind))
    for kind in kinds:
        print(f"  {kind:24} {found[kind]:5} of {tried[kind]:5}  {100 * found[kind] / tried[kind]:6.1f} %")
    for name in ("seen", "unseen", "all"):
        share = 100 * found[name] / max(1, tried[name])
        print(f"recall, {name:8} {found[name]:5} of {tried[name]:5}  {share:6.2f} %")


def _split(plant: Plant) -> str:
    return "unseen" if plant.unseen else "seen"


def false_marks(name: str, lines: Iterator[str]) -> None:
    redactor, seen, marked = Redactor(), 0, 0
    for line in lines:
        seen += 1
        shown = redactor.text(line)
        if shown != line:
            marked += 1
            if marked <= 10:
                print(f"  marked: {shown[:160]}")
    print(f"{name}: {marked} marked in {seen:,} lines, {1e6 * marked / max(1, seen):.1f} per million")


def cost(lines: list[str]) -> None:
    times = []
    for _ in range(5):
        start = time.process_time()
        Redactor().texts(lines)
        times.append(time.process_time() - start)
    usual = sorted(times)[2]
    print(f"{len(lines):,} different lines: {usual:.3f} s of CPU, {1e6 * usual / len(lines):.1f} µs each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[HERE.parent / "sample_logs"])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--healthy", type=int, default=1_000_000, help="made lines to go through")
    chosen = parser.parse_args()
    recall(chosen.seed, chosen.count)
    false_marks("logs", read(chosen.folders))
    false_marks("made lines", made(chosen.seed, chosen.healthy))
    cost(list(dict.fromkeys(made(chosen.seed + 1, 110_000)))[:100_000])


if __name__ == "__main__":
    main()
