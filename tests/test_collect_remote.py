"""Logs at a URL: the same document as from disk. A real HTTP server on loopback, read by ranges through fsspec."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from conftest import SAMPLES, needs
from postmortem import reading, scan
from postmortem.analyze import Options, analyze
from postmortem.errors import NothingReadable, PathMissing

pytestmark = [needs("fsspec"), needs("aiohttp")]
Serve = Callable[..., str]


class Whole(SimpleHTTPRequestHandler):
    """Serves whole files, as `python -m http.server` does."""

    def log_message(self, format: str, *args: object) -> None:
        pass


class Ranges(Whole):
    """An object store's answer to `Range: bytes=a-b`."""

    asked: list[tuple[int, int]] = []

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not wanted or not path.is_file():
            return super().do_GET()
        data = path.read_bytes()
        first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
        self.asked.append((first, last))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        self.wfile.write(data[first : last + 1])
        return None


@pytest.fixture
def serve() -> Iterator[Serve]:
    running: list[ThreadingHTTPServer] = []

    def start(folder: Path, handler: type[Whole] = Ranges) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
        running.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("name", ["oom-on-second-host", "segfault-with-faulthandler"])
def test_a_folder_at_a_url_has_the_same_document(name: str, serve: Serve) -> None:
    near = analyze([str(SAMPLES / name / "logs")]).document
    far = analyze([serve(SAMPLES / name / "logs") + "/"]).document
    assert json.dumps(far, sort_keys=True) == json.dumps(near, sort_keys=True)


def test_a_large_log_is_read_in_parts_by_two_processes(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "2026-11-20 03:12:{:02d},123 INFO [rank0] train: step {} loss 2.31\n"
    body = "".join(line.format(n % 60, n) for n in range(60_000))
    (tmp_path / "rank0.log").write_text(
        body + "[rank0]: Traceback (most recent call last):\n[rank0]: ValueError: odd batch\n"
    )
    small = scan.parts
    monkeypatch.setattr(scan, "parts", lambda size: small(size, 1 << 20, 1 << 20))
    Ranges.asked.clear()
    document = analyze([serve(tmp_path) + "/rank0.log"], Options(workers=2)).document
    assert document["verdict"]["culprit"]["ranks"] == [0] and document["verdict"]["evidence"][0]["line"] == 60_002
    assert len({first for first, _ in Ranges.asked}) > 3, "ranges, from several places"


def test_a_server_without_ranges_is_named(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("step 1\n" * 800_000)
    with pytest.raises(NothingReadable, match="does not serve ranges"):
        analyze([serve(tmp_path, Whole) + "/rank0.log"])


def test_a_url_without_an_object_is_a_clear_error(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(PathMissing, match=r"http://127\.0\.0\.1:\d+/nothing\.log"):
        analyze([serve(tmp_path) + "/nothing.log"])
    with pytest.raises(PathMissing, match="no such object or folder"):
        reading.collect.collect(["http://127.0.0.1:9/logs/"])
