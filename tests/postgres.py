"""A PostgreSQL of a test's own: a cluster in a folder, on a Unix socket, by a user who is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def programs() -> Path | None:
    """The folder of initdb and pg_ctl; Debian keeps them off the PATH."""
    places = [Path(p) for p in os.environ["PATH"].split(os.pathsep)]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((p for p in places if (p / "initdb").exists() and (p / "pg_ctl").exists()), None)


def _user() -> str | None:
    """Who runs the server: it refuses root."""
    if os.geteuid():
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


@contextmanager
def cluster() -> Iterator[str]:
    """The URL of an empty database; the server ends with the context."""
    folder, user, found = Path(tempfile.mkdtemp(prefix="pm-pg-", dir="/tmp")), _user(), programs()
    assert found
    if user:
        shutil.chown(folder, user)

    def call(*command: str | Path) -> None:
        subprocess.run(command, user=user, cwd="/", check=True, capture_output=True, timeout=120)

    data = folder / "data"
    try:
        call(found / "initdb", "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c max_connections=120"
        call(found / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            yield f"postgresql://tests@/postgres?host={folder}"
        finally:
            call(found / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
