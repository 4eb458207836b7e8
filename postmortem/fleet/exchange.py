"""One HTTP request, for notifications and tickets: no redirect to another server, no address in an error.

answer("POST", "https://chat.example/hooks/…", b'{"text": …}', {"Content-Type": …}, 5.0)   ->   b"ok", {…}
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.request import OpenerDirector, Request

NOT_NOW = (408, 429, 503)  # the server has not taken the message
LONGEST = 16 << 20  # bytes of an answer that are read
SHOWN = 4096  # bytes of an answer to a refused request


class Unsent(Exception):
    """Why a request failed, without the address; `again`: another try may succeed; `arrived`: it may have arrived.
    `status` is that of HTTP, or 0; `body` is the answer's start."""

    def __init__(
        self, why: str, again: bool = False, arrived: bool = False, status: int = 0, body: bytes = b""
    ) -> None:
        super().__init__(why)
        self.again, self.arrived, self.status, self.body = again, arrived, status, body


def answer(
    method: str, url: str, body: bytes | None, headers: Mapping[str, str], seconds: float
) -> tuple[bytes, Mapping[str, str]]:
    """Send a request once, and return body and headers of the answer. Raise Unsent."""
    import http.client
    import socket
    import ssl
    from urllib.error import HTTPError, URLError
    from urllib.request import Request

    request = Request(url, body, {"User-Agent": "postmortem", **headers}, method=method)
    try:
        with _opener().open(request, timeout=seconds) as found:
            return found.read(LONGEST), dict(found.headers.items())
    except HTTPError as error:
        with error:
            where = ", a redirect that is not followed" if 300 <= error.code < 400 else ""
            not_now = error.code in NOT_NOW
            body = error.read(SHOWN)
        raise Unsent(f"HTTP {error.code}{where}", not_now or error.code >= 500, not not_now, error.code, body) from None
    except URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise Unsent("its certificate is not trusted here (SSL_CERT_FILE names others)") from None
        refused = isinstance(error.reason, (ConnectionRefusedError, socket.gaierror))
        unreachable = getattr(error.reason, "errno", None) in (errno.EHOSTUNREACH, errno.ENETUNREACH)
        raise Unsent(why(error.reason, seconds), True, not (refused or unreachable)) from None
    except (OSError, http.client.HTTPException) as error:
        raise Unsent(why(error, seconds), not isinstance(error, http.client.InvalidURL), True) from None


def why(error: object, seconds: float) -> str:
    """Return an error without its text, which may quote an address."""
    import socket
    import ssl

    if isinstance(error, Unsent):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"no answer in {seconds:.0f} s"
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    if isinstance(error, ssl.SSLError):
        return "it does not speak TLS"
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return type(error).__name__


def _opener() -> OpenerDirector:
    """Return an opener for http and https alone, with the proxies of the environment."""
    from urllib import request

    class SameServer(request.HTTPRedirectHandler):
        """Follows a redirect within one server: no other may get the token."""

        def redirect_request(self, req: Request, *answer: Any) -> Request | None:
            _, code, _, _, newurl = answer
            if code == 303 or urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
                return None
            return request.Request(newurl, req.data, dict(req.header_items()), method=req.get_method())

    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler, request.HTTPHandler, request.HTTPSHandler, request.HTTPDefaultErrorHandler,
        SameServer, request.HTTPErrorProcessor,
    ):  # fmt: skip
        opener.add_handler(handler())
    return opener
