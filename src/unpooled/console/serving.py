"""The server of the console: on this machine only, one process, nothing logged of what is asked."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import uvicorn

from unpooled.console.app import application
from unpooled.console.guard import ENTER, Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from unpooled.console.desk import OfficeDesk

HOST = "127.0.0.1"


def serve(desk: OfficeDesk, port: int, opened: Callable[[str], None], *, read_only: bool) -> None:
    """Serve the console until it is stopped; ``opened`` is given the address with its ticket. Port 0 is any free port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        session = Session(listening.getsockname()[1])
        app = application(desk, session, read_only=read_only)
        config = uvicorn.Config(app, access_log=False, log_level="warning", server_header=False, timeout_graceful_shutdown=2)
        listening.listen()
        opened(f"http://{HOST}:{session.port}{ENTER}?ticket={session.ticket}")
        uvicorn.Server(config).run(sockets=[listening])
