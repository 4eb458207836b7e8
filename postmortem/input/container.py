"""A file before it is opened: its place, size, and packing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from postmortem.input.archives import is_tar, is_zip
from postmortem.input.codecs import compression

PACKED, IN_TAR, MOST_LOGS = 256, 1024, 100_000  # bytes of a small log in an archive at least, and logs in one at most
OF_A_LOG = 400_000  # bytes of a large log that are read in the time of a small one
TAR_NAMES = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst")


@dataclass(frozen=True, slots=True)
class Container:
    """One file. `label` is its path for the user. `form` follows from its first bytes and, for tar inside
    compression, its name: plain, gz, xz, bz2, zst, tar, tar+gz ..., zip."""

    path: Path
    label: str
    size: int
    form: str
    url: str = ""  # of a remote object

    @property
    def is_archive(self) -> bool:
        return self.form == "zip" or self.form.startswith("tar")

    @property
    def weight(self) -> int:
        """Return the bytes of a plain log that takes as long to read: an archive may hold a log in each 256
        bytes, and their number is unknown before it is read."""
        if not self.is_archive:
            return self.size
        return self.size + OF_A_LOG * min(MOST_LOGS, self.size // (IN_TAR if self.form == "tar" else PACKED))


def form_of(label: str, head: bytes) -> str:
    """Return the form of a file, by its first bytes and its name."""
    if is_tar(head):
        return "tar"
    if is_zip(head):
        return "zip"
    packed = compression(head)
    if packed is None:
        return "plain"
    name = label.lower()
    return f"tar+{packed}" if ".tar." in name or name.endswith(TAR_NAMES) else packed
