"""``unpooled serve --stdio``: answers another program's calls, a line of JSON for each, for as long as that program lives."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from types import FrameType

    from unpooled.cli.schemas.serving import CommandCall, ServeRequest


#: What a shell expects of a command that Ctrl-C ended.
_INTERRUPTED = 130
#: The exit code of an error that nobody foresaw.
_FAILED = 1
#: Commands that answer only when somebody stops them.
_ENDLESS = ("serve", "network start", "network up")


def serve(
    context: typer.Context,
    *,
    stdio: bool = typer.Option(False, "--stdio", help="Read requests from standard input, and answer on standard output."),
    as_json: bool = typer.Option(False, "--json", help="Requests and answers are JSON anyway."),  # noqa: ARG001 - as every command's
) -> None:
    """Answer the calls of another program, such as the R package: a line of JSON each, in the form that `unpooled schema serve` prints.

    It ends when its standard input ends. A line that is no request, an error or an interrupt is answered, and the next line is read.
    Nothing stays open between two calls: no ledger, no party's store, no data. A budget without a file is kept in memory until the process ends.
    """
    from unpooled.errors import UsageError

    if not stdio:
        raise UsageError("say where requests come from: unpooled serve --stdio")
    # Whatever else prints must not stand between two answers, and nothing else may read requests.
    with (
        os.fdopen(os.dup(0), "rb") as requests,
        os.fdopen(os.dup(1), "wb") as answers,
        Path(os.devnull).open("rb") as nothing,
    ):
        os.dup2(2, 1)
        os.dup2(nothing.fileno(), 0)
        with contextlib.suppress(BrokenPipeError):
            Service(context.find_root().command).answer_all(requests, answers)


class Service:
    """Answers requests one after the other; an interrupt ends the call that it meets, and no other."""

    def __init__(self, commands: Any) -> None:  # noqa: ANN401 - typer's own group, of which it shows no type
        self._commands, self._busy = commands, False

    def answer_all(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        """Answer every line until there are no more."""
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            for line in iter(requests.readline, b""):
                if line.strip():
                    answers.write(self.answer_to(line))
                    answers.flush()
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as Python calls it
        if self._busy:
            self._busy = False
            raise KeyboardInterrupt

    def answer_to(self, line: bytes) -> bytes:
        """Return the answer to a line, as a line."""
        import msgspec

        from unpooled.cli.say import json_line
        from unpooled.cli.schemas.serving import ServeRequest

        try:
            request = msgspec.json.decode(line, type=ServeRequest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            told: dict[str, Any] = {
                "id": _id_of(line),
                "warnings": [],
                "error": _error("usage", 2, error, f"no request: {error}"),
            }
            return json_line("serve", told)
        told = {"id": request.id, **self._answered(request)}
        try:
            return json_line("serve", told)
        except (msgspec.MsgspecError, TypeError) as error:
            told = {"id": request.id, "warnings": [], "error": _error("failed", _FAILED, error, "the answer has no form")}
            return json_line("serve", told)

    def _answered(self, request: ServeRequest) -> dict[str, Any]:
        """Return the answer to a request, or why there is none, and the warnings on the way."""
        import unpooled.cli.estimates  # noqa: F401 - its answers are registered
        from unpooled.cli.calls import answer
        from unpooled.cli.schemas.serving import CommandCall

        noted: list[dict[str, str]] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                self._busy = True
                if isinstance(request.ask, CommandCall):
                    told: dict[str, Any] = {"ok": self._command(request.ask, noted)}
                else:
                    told = {"ok": answer(request.ask)}
                self._busy = False
            except KeyboardInterrupt as error:
                told = {"error": _error("interrupted", _INTERRUPTED, error, "the call was interrupted")}
            except Exception as error:  # noqa: BLE001 - whatever happens in a call is its answer
                self._busy = False
                told = {"error": _error_of(error)}
            finally:
                self._busy = False
        told |= {"warnings": [*noted, *_warned(caught)]}
        return told if request.words == "python" else _translated(told)

    def _command(self, call: CommandCall, noted: list[dict[str, str]]) -> dict[str, Any]:
        """Run a command as a shell would, with ``--json``; what it says on standard error are notes."""
        import msgspec

        from unpooled.errors import UsageError

        if any(" ".join(call.command).startswith(endless) for endless in _ENDLESS):
            msg = f"unpooled {call.command[0]} does not end by itself: run it in a terminal"
            raise UsageError(msg)
        out, err = io.StringIO(), io.StringIO()
        try:
            with contextlib.chdir(call.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = self._commands.main([*call.command, "--json"], "unpooled", standalone_mode=False) or 0
        finally:
            noted += [{"type": "note", "message": line} for line in err.getvalue().splitlines() if line.strip()]
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        try:
            output = msgspec.json.decode(out.getvalue())
        except msgspec.DecodeError:
            msg = f"unpooled {' '.join(call.command[:2])} printed no data"
            raise UsageError(msg) from None
        return {"answer": "command", "code": code, "output": output}


def _id_of(line: bytes) -> str | int | None:
    """Return the id of a line that is no request, where it has one."""
    import msgspec

    class _WithId(msgspec.Struct):
        id: str | int | None = None

    try:
        return msgspec.json.decode(line, type=_WithId).id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _error(kind: str, code: int, error: BaseException, message: str) -> dict[str, Any]:
    where = {name: getattr(error, name, None) for name in ("party", "column", "release")}
    return {"kind": kind, "code": code, "type": type(error).__name__, "message": message, **where}


def _error_of(error: Exception) -> dict[str, Any]:
    """Return an error as data. One that nobody foresaw is named by its class alone: its words might quote data."""
    from unpooled.cli.say import REFUSED, USAGE, failure
    from unpooled.errors import BudgetRefusal

    said = failure(error)
    if said is not None:
        code, words = said
        budget = isinstance(error, BudgetRefusal)
        return _error("budget" if budget else "refused" if code == REFUSED else "usage", code, error, words)
    if hasattr(error, "format_message"):  # the command line was misread: an unknown option, an argument too few
        return _error("usage", USAGE, error, error.format_message())
    if isinstance(error, ValueError) and _from_scikit_learn(error):
        return _error("usage", USAGE, error, str(error).splitlines()[0])
    return _error("failed", _FAILED, error, f"the call failed with an error that was not foreseen ({type(error).__name__})")


def _translated(told: dict[str, Any]) -> dict[str, Any]:
    """Return an answer whose error and warnings name the syntax of R."""
    from unpooled.cli.words_of_r import in_r

    said = {"warnings": [one | {"message": in_r(one["message"])} for one in told["warnings"]]}
    if "error" in told:
        said["error"] = told["error"] | {"message": in_r(told["error"]["message"])}
    return told | said


def _from_scikit_learn(error: Exception) -> bool:
    """Return whether scikit-learn's check of arrays raised it: ``estimation.tables.checked`` lets through what quotes no values."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and str(place.tb_frame.f_globals.get("__name__", "")).startswith("sklearn.utils")


def _warned(caught: list[warnings.WarningMessage]) -> list[dict[str, str]]:
    """Return our own warnings, each once; those of other libraries might quote data."""
    found = [(one.category.__name__, str(one.message)) for one in caught if _ours(one.category)]
    return [{"type": name, "message": message} for name, message in dict.fromkeys(found)]


def _ours(category: type[Warning]) -> bool:
    return category.__module__ == "unpooled.errors"
