"""Show a person who waits the step and its round, the parties that are waited for and for how long; and a hint where the person stops waiting."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from unpooled.protocol.local import Watch
    from unpooled.protocol.messages import Ask

#: Seconds between two lines where there is no terminal.
EVERY = 10.0
#: What a shell expects of a command that Ctrl-C ended.
_INTERRUPTED = 130


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show what is waited for on standard error: a spinner in a terminal, elsewhere a line every ten seconds; never a data value."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, quiet=quiet)
    if not quiet and not console.is_terminal:
        with _lines() as say:
            yield say
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet) as shown:
        task = shown.add_task("opening the ledgers", total=None)
        yield lambda words: shown.update(task, description=words)


@contextmanager
def _lines() -> Iterator[Callable[[str], None]]:
    """Say every ten seconds, on a line of its own, what is waited for and since when: a log shows that a run goes on."""
    begun, ended, last = time.monotonic(), threading.Event(), ["opening the ledgers"]

    def tell() -> None:
        while not ended.wait(EVERY):
            typer.echo(f"{time.monotonic() - begun:.0f} s: {last[0]}", err=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield lambda words: last.__setitem__(0, words)
    finally:
        ended.set()
        teller.join()


def waiting(say: Callable[[str], None]) -> Watch:
    """Says which step is being waited for, in which round, and at whom."""
    rounds: dict[str, int] = {}

    def watch(asks: list[Ask]) -> None:
        step = asks[0].step
        rounds[step] = rounds.get(step, 0) + 1
        count = f", round {rounds[step]}" if rounds[step] > 1 else ""
        say(f"step {step!r}{count}: waiting for {', '.join(ask.to for ask in asks)}")

    return watch


@contextmanager
def stopped(again: str) -> Iterator[None]:
    """Ctrl-C ends a run with a hint how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(
            f"\nstopped. Nothing is lost: {again}; parties answer from their stores, and nothing is charged twice", err=True
        )
        raise typer.Exit(_INTERRUPTED) from None
