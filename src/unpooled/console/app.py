"""The pages of the console and the forms on them: each reads the party's files anew, so that two consoles never disagree."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from unpooled.console import pages
from unpooled.console.guard import ENTER, ICON, STYLE, Guard, Session
from unpooled.console.pages import Console
from unpooled.errors import Refusal, UnpooledError

if TYPE_CHECKING:
    from starlette.requests import Request

    from unpooled.console.desk import OfficeDesk

Endpoint: TypeAlias = "Callable[[Request], Awaitable[Response]]"

#: A report is a page of its own: it has its style in itself, and may do nothing else.
_REPORT = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)
_FIELDS = 8
#: The status of a refusal, and of something that people can mend.
_CONFLICT, _WRONG = 409, 400


def application(desk: OfficeDesk, session: Session, *, read_only: bool) -> Starlette:
    """Return the console of a desk, behind its guard."""
    console = Console(desk, session, read_only=read_only)
    plan = "/plan/{plan:str}"
    routes = [
        Route(STYLE, _style),
        Route(ICON, _no_icon),
        Route("/", _shown(console, pages.inbox)),
        Route("/ledger", _shown(console, pages.ledger)),
        Route("/runs", _shown(console, pages.runs)),
        Route("/runs/{name:str}", _report(console, pages.run_report)),
        Route(plan, _shown(console, pages.plan)),
        Route(f"{plan}/report", _report(console, pages.party_report)),
        Route(f"{plan}/preview", _report(console, pages.preview)),
        *(Route(f"{plan}/{name}", _decided(console, act), methods=["POST"]) for name, act in pages.DECISIONS.items()),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, session=session, read_only=read_only)],
        exception_handlers=dict.fromkeys((HTTPException, UnpooledError, OSError), _failed(console)),
    )


async def _style(_: Request) -> Response:
    return Response(pages.style(), media_type="text/css")


async def _no_icon(_: Request) -> Response:
    return Response(status_code=204)


def _shown(console: Console, make: Callable[..., str], policy: str = "") -> Endpoint:
    """Return the route of a page."""

    async def endpoint(request: Request) -> Response:
        text = await run_in_threadpool(make, console, **request.path_params)
        return HTMLResponse(text, headers={"content-security-policy": policy} if policy else None)

    return endpoint


def _report(console: Console, make: Callable[..., str]) -> Endpoint:
    """Return the route of a report."""
    return _shown(console, make, _REPORT)


def _decided(console: Console, act: Callable[[Console, str, dict[str, str]], None]) -> Endpoint:
    """Return the route of a form: it leads back to the page of the plan."""

    async def endpoint(request: Request) -> Response:
        form = await request.form(max_files=0, max_fields=_FIELDS)
        given = {name: value for name, value in form.items() if isinstance(value, str)}
        if not pages.is_own(console, given):
            raise HTTPException(403, "This form is not of this console. Nothing was changed.")
        plan = request.path_params["plan"]
        await run_in_threadpool(act, console, plan, given)
        return RedirectResponse(f"{console.session.root}/plan/{plan}", status_code=303)

    return endpoint


def _failed(console: Console) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Return what answers where something was refused, or does not exist."""

    async def answer(_: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            status, words = error.status_code, str(error.detail)
        else:
            status, words = (_CONFLICT if isinstance(error, Refusal) else _WRONG), str(error)
        text = await run_in_threadpool(pages.said, console, words, refused=status == _CONFLICT)
        return HTMLResponse(text, status_code=status)

    return answer


# --- Serving ---------------------------------------------------------------------------------------------------------------
# The server of the console: on this machine only, one process, nothing logged of what is asked.

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
