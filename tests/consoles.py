"""A console that is served by a thread of this process, and a browser's part of HTTP that tests can bend."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import uvicorn

from unpooled.console.app import application
from unpooled.console.desk import OfficeDesk
from unpooled.console.guard import Session

#: Paths outside of it.
OPEN = ("/enter", "/style.css", "/favicon.ico")


@dataclass
class Answer:
    """The status, the headers and the text of an answer."""

    status: int
    headers: dict[str, str]
    text: str


@dataclass
class Browser:
    """Asks one console; a header that is None is left out."""

    port: int
    session: Session
    cookie: str = ""
    #: The path that only this session's pages have.
    root: str = ""
    #: The pages that were asked for.
    seen: dict[str, Answer] = field(default_factory=dict)

    def ask(self, method: str, path: str, headers: dict[str, str | None] | None = None, body: bytes = b"") -> Answer:
        own: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}", "Cookie": self.cookie or None}
        if method == "POST":
            own |= {"Origin": f"http://127.0.0.1:{self.port}", "Content-Type": "application/x-www-form-urlencoded"}
            own |= {"Content-Length": str(len(body))}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(
                method, path if path.startswith(OPEN) else self.root + path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in (own | (headers or {})).items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            reply = connection.getresponse()
            found = Answer(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read().decode())
        finally:
            connection.close()
        if method == "GET":
            self.seen[path] = found
        return found

    def enter(self) -> Answer:
        found = self.ask("GET", f"/enter?ticket={self.session.ticket}")
        if found.status == 303:
            self.cookie = found.headers["set-cookie"].partition(";")[0]
            self.root = found.headers["location"].rstrip("/")
        return found

    def get(self, path: str, status: int = 200) -> str:
        found = self.ask("GET", path)
        assert found.status == status, (found.status, found.text)
        return found.text

    def fields(self, path: str) -> dict[str, str]:
        """The hidden fields of the forms on a page."""
        return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', self.get(path)))

    def post(self, path: str, fields: dict[str, str], headers: dict[str, str | None] | None = None) -> Answer:
        return self.ask("POST", path, headers, urlencode(fields).encode())

    def decide(self, plan: str, action: str, **fields: str) -> Answer:
        """Fill in a form of a plan's page and send it."""
        said = {"by": "Dr. A. Example", "reason": "ethics vote 12/2026"}
        return self.post(f"/plan/{plan}/{action}", self.fields(f"/plan/{plan}") | said | fields)


@contextmanager
def console(config: Path, *, read_only: bool = False, enter: bool = True) -> Iterator[Browser]:
    """A console of this party, and a browser that was let in."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        session = Session(listening.getsockname()[1])
        desk = OfficeDesk(config, config.parent / "inbox", config.parent)
        app = application(desk, session, read_only=read_only)
        server = uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        try:
            for _ in range(200):
                if server.started:
                    break
                time.sleep(0.02)
            browser = Browser(session.port, session, root=session.root)
            if enter:
                assert browser.enter().status == 303
            yield browser
        finally:
            server.should_exit = True
            thread.join(20)
