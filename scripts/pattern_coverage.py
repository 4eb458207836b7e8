"""docs/coverage.tsv and the Xid table -> which pattern covers each of them; exit 1 where nothing does.

    nccl_watchdog_timeout   nccl-watchdog-timeout   a line of docs/coverage.tsv: signature, patterns, note
    79 ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS    a line of XIDS: number and mnemonic of NVIDIA's

A signature is covered where a pattern is its own, merged where all its patterns serve other signatures too,
and left out where it has a note instead of a pattern. An Xid number is put into the driver's format string
and read by the real parser.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from postmortem.blocks import read_text
from postmortem.library import Library, load

MAPPING = Path(__file__).resolve().parent.parent / "docs" / "coverage.tsv"
LINE = "NVRM: Xid (PCI:0000:41:00): {number}, pid=1234, name=python, {text}"
REST = "xid-other"  # for errors without a pattern of their own
XIDS = """
8 ROBUST_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT
11 ROBUST_CHANNEL_GR_ERROR_MISSING_HW
13 ROBUST_CHANNEL_GR_EXCEPTION
25 ROBUST_CHANNEL_GR_ILLEGAL_NOTIFY
31 ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT
32 ROBUST_CHANNEL_PBDMA_ERROR
37 ROBUST_CHANNEL_FECS_ERR_UNIMP_FIRMWARE_METHOD
38 ROBUST_CHANNEL_FECS_ERR_WATCHDOG_TIMEOUT
39 ROBUST_CHANNEL_CE0_ERROR
40 ROBUST_CHANNEL_CE1_ERROR
41 ROBUST_CHANNEL_CE2_ERROR
43 ROBUST_CHANNEL_RESETCHANNEL_VERIF_ERROR
44 ROBUST_CHANNEL_GR_FAULT_DURING_CTXSW
45 ROBUST_CHANNEL_PREEMPTIVE_REMOVAL
46 ROBUST_CHANNEL_GPU_TIMEOUT_ERROR
48 ROBUST_CHANNEL_GPU_ECC_DBE
54 SILENT_RUNNING_PWR_REDUCED_CLOCKING
60 ROBUST_CHANNEL_SEC2_ERROR
61 PMU_BREAKPOINT
62 PMU_HALT_ERROR
63 INFOROM_DRAM_RETIREMENT_EVENT
64 INFOROM_DRAM_RETIREMENT_FAILURE
66 ROBUST_CHANNEL_FECS_ERR_REG_ACCESS_VIOLATION
67 ROBUST_CHANNEL_FECS_ERR_VERIF_VIOLATION
68 ROBUST_CHANNEL_NVDEC0_ERROR
69 ROBUST_CHANNEL_GR_CLASS_ERROR
70 ROBUST_CHANNEL_CE3_ERROR
71 ROBUST_CHANNEL_CE4_ERROR
72 ROBUST_CHANNEL_CE5_ERROR
74 NVLINK_ERROR
75 ROBUST_CHANNEL_CE6_ERROR
76 ROBUST_CHANNEL_CE7_ERROR
77 ROBUST_CHANNEL_CE8_ERROR
78 VGPU_START_ERROR
79 ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS
80 PBDMA_PUSHBUFFER_CRC_MISMATCH
82 ROBUST_CHANNEL_NVJPG0_ERROR
83 ROBUST_CHANNEL_NVDEC1_ERROR
84 ROBUST_CHANNEL_NVDEC2_ERROR
85 ROBUST_CHANNEL_CE9_ERROR
86 ROBUST_CHANNEL_OFA0_ERROR
88 ROBUST_CHANNEL_NVDEC3_ERROR
89 ROBUST_CHANNEL_NVDEC4_ERROR
92 EXCESSIVE_SBE_INTERRUPTS
93 INFOROM_ERASE_LIMIT_EXCEEDED
94 ROBUST_CHANNEL_CONTAINED_ERROR
95 ROBUST_CHANNEL_UNCONTAINED_ERROR
96 ROBUST_CHANNEL_NVDEC5_ERROR
97 ROBUST_CHANNEL_NVDEC6_ERROR
98 ROBUST_CHANNEL_NVDEC7_ERROR
99 ROBUST_CHANNEL_NVJPG1_ERROR
100 ROBUST_CHANNEL_NVJPG2_ERROR
101 ROBUST_CHANNEL_NVJPG3_ERROR
102 ROBUST_CHANNEL_NVJPG4_ERROR
103 ROBUST_CHANNEL_NVJPG5_ERROR
104 ROBUST_CHANNEL_NVJPG6_ERROR
105 ROBUST_CHANNEL_NVJPG7_ERROR
106 SMBPBI_TEST_MESSAGE
107 SMBPBI_TEST_MESSAGE_SILENT
109 ROBUST_CHANNEL_CTXSW_TIMEOUT_ERROR
110 SEC_FAULT_ERROR
119 GSP_RPC_TIMEOUT
120 GSP_ERROR
121 C2C_ERROR
126 ROBUST_CHANNEL_CE10_ERROR
127 ROBUST_CHANNEL_CE11_ERROR
128 ROBUST_CHANNEL_CE12_ERROR
129 ROBUST_CHANNEL_CE13_ERROR
130 ROBUST_CHANNEL_CE14_ERROR
131 ROBUST_CHANNEL_CE15_ERROR
132 ROBUST_CHANNEL_CE16_ERROR
133 ROBUST_CHANNEL_CE17_ERROR
134 ROBUST_CHANNEL_CE18_ERROR
135 ROBUST_CHANNEL_CE19_ERROR
136 ALI_TRAINING_FAIL
137 NVLINK_PRIV_ERR
139 ROBUST_CHANNEL_OFA1_ERROR
140 UNRECOVERABLE_ECC_ERROR_ESCAPE
141 ROBUST_CHANNEL_FAST_PATH_ERROR
142 ROBUST_CHANNEL_NVENC3_ERROR
143 GPU_INIT_ERROR
144 NVLINK_SAW_ERROR
145 NVLINK_RLW_ERROR
146 NVLINK_TLW_ERROR
147 NVLINK_TREX_ERROR
148 NVLINK_NVLPW_CTRL_ERROR
149 NVLINK_NETIR_ERROR
150 NVLINK_MSE_ERROR
151 ROBUST_CHANNEL_KEY_ROTATION_ERROR
152 ROBUST_CHANNEL_DLA_SMMU_ERROR
153 ROBUST_CHANNEL_DLA_TIMEOUT
154 GPU_RECOVERY_ACTION_CHANGED
155 NVLINK_SW_DEFINED_ERROR
156 RESOURCE_RETIREMENT_EVENT
157 RESOURCE_RETIREMENT_FAILURE
158 GPU_FATAL_TIMEOUT
159 ROBUST_CHANNEL_CHI_NON_DATA_ERROR
160 CHANNEL_RETIREMENT_EVENT
161 CHANNEL_RETIREMENT_FAILURE
162 PSHC_REENGAGED
163 PSHC_DISENGAGED
164 PSHC_LOW_LIFETIME
165 PSHC_ZERO_LIFETIME
166 NVLINK_SECURE_CRYPTO_ERR
167 PCIE_FATAL_TIMEOUT
168 REDUCED_GPU_MEMORY_CAPACITY
169 SEC2_HALT_ERROR
170 NVLINK_SECURE_OTHER
171 UNCORRECTABLE_DRAM_ERROR
172 UNCORRECTABLE_SRAM_ERROR
"""


class Row(NamedTuple):
    """The use of one signature of the seed list."""

    signature: str
    patterns: tuple[str, ...]
    note: str


def rows(text: str) -> list[Row]:
    """Read the table; lines that begin with # and the line of column names are no rows."""
    out = []
    for line in text.splitlines():
        if line and not line.startswith(("#", "signature\t")):
            signature, patterns, note = (line.split("\t") + ["", ""])[:3]
            out.append(Row(signature, tuple(p.strip() for p in patterns.split(",") if p.strip()), note))
    return out


def faults(table: Iterable[Row], library: Library) -> Iterator[str]:
    """Yield the errors of the table itself."""
    seen = Counter(row.signature for row in table)
    for row in table:
        if seen[row.signature] > 1:
            yield f"{row.signature} is {seen[row.signature]} times in the table"
        if not row.patterns and not row.note:
            yield f"{row.signature} has neither a pattern nor a reason to be left out"
        for pattern in row.patterns:
            if pattern not in library.patterns:
                yield f"{row.signature} is mapped to {pattern}, which does not exist"


def sections(table: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows by their use."""
    users = Counter(pattern for row in table for pattern in row.patterns)
    out: dict[str, list[Row]] = {"covered by": [], "merged into": [], "left out because": []}
    for row in table:
        own = any(users[pattern] == 1 for pattern in row.patterns)
        out["covered by" if own else "merged into" if row.patterns else "left out because"].append(row)
    return out


def xids() -> dict[int, str]:
    """Number -> mnemonic."""
    return {int(number): name for number, _, name in (line.partition(" ") for line in XIDS.split("\n") if line)}


def xid_line(number: int, mnemonic: str) -> str:
    """The driver's line with that number. NVLink 5 units (144 to 150) include the severity;
    the other texts decide nothing."""
    unit = mnemonic.split("_")[1]
    return LINE.format(
        number=number,
        text=f"{unit}_EVT Fatal XC0 i0 Link 08 (0x004505c6)" if 144 <= number <= 150 else mnemonic,
    )


def lands_in(line: str, library: Library) -> list[str]:
    """The patterns that the real parser reads in that kernel line."""
    return sorted({e.pattern for e in read_text(line, "kernel", library) if e.pattern})


def report(table: list[Row], library: Library) -> tuple[list[str], list[str]]:
    """Return the lines to print, and the gaps of the coverage."""
    wrong = list(faults(table, library))
    parts = sections(table)
    wide = max((len(row.signature) for row in table), default=0)
    out = []
    for title, members in parts.items():
        out += [title, *(f"  {r.signature:{wide}}  {_fate(r)}" for r in members), ""]
    landed = {number: lands_in(xid_line(number, name), library) for number, name in xids().items()}
    out += ["Xid", *(f"  {n:3}  {name:47} {', '.join(landed[n]) or '-'}" for n, name in xids().items()), ""]
    wrong += [f"Xid {number} is read as no pattern" for number, patterns in landed.items() if not patterns]
    counts = ", ".join(f"{len(members)} {title.split()[0]}" for title, members in parts.items())
    out.append(f"{len(table)} signatures: {counts.replace('left', 'left out')}")
    rest = sum(patterns == [REST] for patterns in landed.values())
    out.append(
        f"{len(landed)} Xid numbers: {len(landed) - rest} with a pattern of their own or their kind, {rest} "
        f"read as {REST}"
    )
    return out, wrong


def _fate(row: Row) -> str:
    return ", ".join(row.patterns) + (f" ({row.note})" if row.note else "") if row.patterns else row.note


def main() -> int:
    parser = argparse.ArgumentParser(description="Print which pattern covers each signature and each Xid number.")
    parser.add_argument("--mapping", type=Path, default=MAPPING, help="the table (docs/coverage.tsv)")
    out, wrong = report(rows(parser.parse_args().mapping.read_text()), load())
    print("\n".join(out))
    for fault in wrong:
        print(fault, file=sys.stderr)
    if wrong:
        hint = "docs/coverage.tsv is written by hand: name the patterns of today there, then run"
        print(f"{hint} {sys.executable} scripts/pattern_coverage.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
