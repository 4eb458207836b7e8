"""scripts/suggest.py lists the loud lines that no pattern recognizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import ROOT


def test_loud_lines_without_a_pattern_are_grouped_by_shape(tmp_path: Path) -> None:
    lines = [f"flux capacitor {n} failed: voltage {n * 7} is out of bounds" for n in (3, 41)]
    lines += ["step 1 loss 0.5", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."]
    (tmp_path / "rank0.log").write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "suggest.py", tmp_path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if "flux capacitor" in line]
    assert row.split()[0] == "2" and "rank0.log:1" in row
    assert "out of memory" not in done.stdout
