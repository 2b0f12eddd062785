"""The door of the console: who may ask, from which pages, and what a browser may do with an answer."""

from __future__ import annotations

import hmac
import logging
import secrets
import traceback
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

#: Paths that need no session: the door itself, the style of the page that says that it is closed, and the icon that every browser asks for.
ENTER, STYLE, ICON = "/enter", "/style.css", "/favicon.ico"
#: A form of the console is a name and a reason.
_LARGEST_FORM = 20_000
_AGAIN = "Start `unpooled party console` again, and open the address that it prints."
_NO_ENTRY = f"No entry: this address opens once, in one browser. {_AGAIN}"
_USED = f"This ticket is not valid, or was used before. {_AGAIN}"
_POLICY = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
_HEADERS = {
    "content-security-policy": _POLICY,
    # Without a referrer a browser hides the origin of its forms as well.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Session:
    """The one session of a console: a ticket that opens it once, a cookie from then on, and a token in every form."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.ticket: str | None = secrets.token_urlsafe(32)
        self.token = secrets.token_urlsafe(32)
        self._cookie = secrets.token_urlsafe(32)
        #: Cookies do not know ports. Two consoles of one machine need two names; and a server of somebody else at another port, to which a
        #: page sends this browser, would be handed the cookie, if its path were one that a stranger can name.
        self.name = f"unpooled-{port}"
        self.root = f"/{secrets.token_urlsafe(16)}"

    @property
    def hosts(self) -> frozenset[str]:
        """Return the names by which a browser on this machine may call the console."""
        return frozenset(f"{host}:{self.port}" for host in ("127.0.0.1", "localhost"))

    def enter(self, ticket: str) -> str | None:
        """Return the header that sets the cookie, once, for the right ticket; None for any other, and for a ticket that was used."""
        if self.ticket is None or not _same(ticket, self.ticket):
            return None
        self.ticket = None
        return f"{self.name}={self._cookie}; Path={self.root}/; HttpOnly; SameSite=Strict"

    def holds(self, header: str) -> bool:
        """Return True if a request's cookies hold this session's. Other servers of this machine may have set any others, of any form and name."""
        pairs = (part.strip().partition("=") for part in header.split(";"))
        return any(name == self.name and _same(value, self._cookie) for name, _, value in pairs)


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


class Guard:
    """Middleware that refuses every request that a page of this console, in the browser that was let in, did not make."""

    def __init__(self, app: ASGIApp, session: Session, *, read_only: bool) -> None:
        self._app, self._session, self._read_only = app, session, read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it before anything else sees it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                extra = [(k.encode(), v.encode()) for k, v in _HEADERS.items() if k.encode() not in own]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refused(scope, headers)
        if refused is not None:
            await _say(guarded, *refused)
        elif scope["path"] == ENTER:
            await self._enter(scope, guarded)
        else:
            inside = scope["path"].startswith(f"{self._session.root}/")
            await self._passed({**scope, "root_path": self._session.root if inside else ""}, receive, guarded)

    async def _passed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on. An error that nobody foresaw may quote anything: only its kind and its places are logged, and shown to nobody."""
        try:
            await self._app(scope, receive, send)
        except Exception as error:  # noqa: BLE001 - as said above
            places = "; ".join(f"{at.filename}:{at.lineno}" for at in traceback.extract_tb(error.__traceback__)[-3:])
            # No traceback: its last line quotes the error.
            logger.error("a page failed with %s at %s", type(error).__name__, places)  # noqa: TRY400
            await _say(send, 500, "This page failed. The console's own terminal says where. Nothing was changed by it.")

    def _refused(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        """Return the status and the words of a refusal; None for a request that may pass."""
        method, open_to_all = scope["method"], scope["path"] in {ENTER, STYLE, ICON}
        inside = scope["path"].startswith(f"{self._session.root}/") and self._session.holds(headers.get("cookie", ""))
        if headers.get("host", "") not in self._session.hosts:
            return 421, "This console answers to its own address only."
        if method not in {"GET", "HEAD", "POST"}:
            return 405, "This console knows GET and POST."
        if not (open_to_all and method != "POST") and not inside:
            return 403, _NO_ENTRY
        return self._refused_form(headers) if method == "POST" else None

    def _refused_form(self, headers: dict[str, str]) -> tuple[int, str] | None:
        """Return the same of a form, which a page of this console must have sent."""
        origins = {f"http://{host}" for host in self._session.hosts}
        length = headers.get("content-length", "")
        if self._read_only:
            return 403, "This console is read-only: nothing can be decided here."
        if headers.get("origin", "") not in origins or headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return 403, "This form was not sent by a page of this console. Nothing was changed."
        measured = length.isascii() and length.isdigit() and "transfer-encoding" not in headers
        if not (measured and int(length) <= _LARGEST_FORM):
            return 413, "A form of this console is smaller than that. Nothing was changed."
        return None

    async def _enter(self, scope: Scope, send: Send) -> None:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("ticket", [""])[0]
        cookie = self._session.enter(given) if scope["method"] == "GET" else None
        if cookie is None:
            await _say(send, 403, _USED)
            return
        headers = [
            (b"location", f"{self._session.root}/".encode()),
            (b"set-cookie", cookie.encode()),
            (b"content-length", b"0"),
        ]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


async def _say(send: Send, status: int, words: str) -> None:
    """Answer with a page of one sentence, without anything of the party on it."""
    from unpooled.report.page import environment

    body = environment("unpooled.console").get_template("templates/closed.html").render(words=words).encode()
    headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
