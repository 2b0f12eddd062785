"""What a person who waits sees: the step and its round, who is waited for, and for how long; and a hint where they stop waiting."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from unpooled.protocol.local import Watch
    from unpooled.protocol.messages import Ask

#: What a shell expects of a command that Ctrl-C ended.
_INTERRUPTED = 130


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Words, a spinner and the time since the beginning, on standard error of a terminal; nothing in a pipe, and never a data value."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, quiet=quiet)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as shown:
        task = shown.add_task("opening the ledgers", total=None)
        yield lambda words: shown.update(task, description=words)


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
