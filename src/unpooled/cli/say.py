"""What every command prints alike: data for machines, the examples of every help, exit codes and words of errors, and progress for a person who waits."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from unpooled.errors import Refusal, UnpooledError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from unpooled.protocol.local import Watch
    from unpooled.protocol.messages import Ask


# --- Failures --------------------------------------------------------------------------------------------------------------
# The exit code and the words of an error: the command line prints them, and ``unpooled serve`` answers with them.

#: A usage error exits with 2 (as the shell's own tools do), a refusal by a policy or ledger with 3.
USAGE, REFUSED = 2, 3


def failure(error: BaseException) -> tuple[int, str] | None:
    """Return the exit code and the message of an error that people can mend; None of any other."""
    if isinstance(error, Refusal):
        return REFUSED, str(error)
    if isinstance(error, UnpooledError):
        return USAGE, str(error)
    if isinstance(error, OSError):
        return USAGE, f"{error.filename or 'a file'}: {error.strerror}: check the path"
    if isinstance(error, ModuleNotFoundError) and error.name == "fcntl":
        return USAGE, "networks need Linux or macOS (on Windows: WSL)"
    if isinstance(error, ModuleNotFoundError) and error.name in {"nvflare", "psutil"}:
        return USAGE, "this needs the network extra: pip install 'unpooled[network]'"
    return None


# --- Say -------------------------------------------------------------------------------------------------------------------
# Print data for machines, and the examples at the end of every help: all commands do both alike.

#: Command -> what people type.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "audit": (
        "unpooled audit study.toml",
        "unpooled audit study.toml --canaries 100",
        "unpooled audit study.toml --rows 20 --json",
    ),
    "contrast": (
        'unpooled contrast study.run "ward: b - a"',
        'unpooled contrast study.run "ward: b - a, c - a" --exponentiate --json',
    ),
    "submodel": ("unpooled submodel study.run age arm", "unpooled submodel study.run arm --json"),
    "crate": (
        "unpooled crate study.run --out study.crate",
        "unpooled crate study.run --config north/party.toml --dossier study.dossier --out study.crate",
    ),
    "demo": ("unpooled demo", "unpooled demo --epsilon 0.5 --out tour"),
    "dossier": (
        "unpooled dossier study.toml",
        "unpooled dossier study.toml --config north/party.toml --audit --out north-dossier",
        "unpooled dossier study.toml --run study.run --json",
    ),
    "doctor": ("unpooled doctor kits/north", "unpooled doctor --study study.toml --config north/party.toml"),
    "link": (
        "unpooled link link.toml --party clinic/party.toml --party lab/party.toml",
        "unpooled link link.toml --config clinic/party.toml",
    ),
    "new": (
        "unpooled new bayes",
        "unpooled new glm --formula 'age * ward + log(dose)' --card north/north.card.toml --card south/south.card.toml",
        "unpooled new pls --calibration published --card mill/mill.card.toml --out study.toml",
        "unpooled new pride --card clinic/clinic.card.toml --card lab/lab.card.toml --out pride.toml",
        "unpooled new pride --fitted study.toml --card clinic-new/clinic.card.toml --card lab-new/lab.card.toml --out predict.toml",
    ),
    "plan": (
        "unpooled plan study.toml",
        "unpooled plan study.toml --utility",
        "unpooled plan study.toml --preview --out preview.html",
        "unpooled plan study.toml --json",
    ),
    "predict": (
        "unpooled predict study.run --data new.csv",
        "unpooled predict study.run --data new.csv --id patient --csv predicted.csv",
    ),
    "propose": (
        "unpooled propose study.toml --network kits/analyst",
        "unpooled propose study.toml --network kits/analyst --by 'Dr. A. Example'",
    ),
    "register": (
        "unpooled register study.toml --published 2026-11-30 --type 'Summary statistics'",
        "unpooled register study.toml --run study.run --published 2026-11-30 --type 'Machine learning model' --out study.yaml",
    ),
    "report": ("unpooled report study.run", "unpooled report study.toml --config north/party.toml"),
    "result": ("unpooled result study.run", "unpooled result study.run --csv"),
    "serve": ("unpooled serve --stdio",),
    "schema": ("unpooled schema", "unpooled schema result", "unpooled schema party ledger"),
    "run": (
        "unpooled run study.toml --party north/party.toml --party south/party.toml",
        "unpooled run study.toml --network kits/analyst --resume",
    ),
    "party init": (
        "unpooled party init patients.csv --name north --id patient --column age=0:100 --column smoker=never,former,current",
        "unpooled party init blood.xlsx --name lab --folder lab --column 'crp=0:300;complete' --label survival",
        "unpooled party init spectra.csv --name coast --separator ';' --decimal , --column 'nm*=0:3' --column fat=0:60",
        "unpooled party init patients.csv --name north --template",
        "unpooled party init --config party.toml",
    ),
    "party check": (
        "unpooled party check study.toml --config north/party.toml",
        "unpooled party check study.toml --config north/party.toml --approve",
    ),
    "party console": (
        "unpooled party console --config north/party.toml",
        "unpooled party console --config north/party.toml --read-only",
    ),
    "party ledger": (
        "unpooled party ledger --config north/party.toml",
        "unpooled party ledger --config north/party.toml --json",
        "unpooled party ledger --config north/party.toml --export ledger.json",
    ),
    "party withdraw": ("unpooled party withdraw study.toml --config north/party.toml",),
    "party card": ("unpooled party card --config north/party.toml",),
    "party rows": ("unpooled party rows new.csv --config clinic/party.toml --folder clinic-new",),
    "party forget": ("unpooled party forget study.toml --config north/party.toml",),
    "party verify": ("unpooled party verify ledger.json --head 5f0c...",),
    "party show": (
        "unpooled party show --config north/party.toml",
        "unpooled party show study.toml --config north/party.toml",
    ),
    "party export": ("unpooled party export study.toml --config north/party.toml --out own.csv",),
    "network provision": ("unpooled network provision network.toml --out kits",),
    "network start": ("unpooled network start kits/north",),
    "network up": ("unpooled network up kits", "unpooled network up kits --exit-after 600"),
}


def examples(command: str) -> str:
    """The end of a command's help; each example is a paragraph, so that none is wrapped into the next."""
    return "\n\n".join(("Examples:", *EXAMPLES[command]))


def say_json(output: str, data: Mapping[str, Any]) -> None:
    """Print data for machines on standard output; the name of the output stands first, and data that do not match its schema are not printed."""
    from unpooled.cli.schemas.registry import encoded

    typer.echo(encoded(output, data).decode())


def json_line(output: str, data: Mapping[str, Any]) -> bytes:
    """Return data for a program that reads one line for each answer: the same as :func:`say_json` prints, in one line."""
    from unpooled.cli.schemas.registry import encoded

    return encoded(output, data, lines=False) + b"\n"


def write_new(path: Path, body: bytes) -> None:
    """Write a file that only its owner may read; nothing that exists is overwritten."""
    from unpooled.errors import UsageError

    try:
        with open(path, "xb", opener=lambda file, flags: os.open(file, flags, 0o600)) as file:
            file.write(body)
    except FileExistsError:
        msg = f"{path} exists already: choose another name"
        raise UsageError(msg) from None


def new_folder(folder: Path, texts: Mapping[str, str | bytes]) -> list[Path]:
    """Write a new folder of these files, by their paths in it, and return their paths. Nothing that exists is overwritten, and no half of it stays."""
    import shutil

    from unpooled.errors import UsageError

    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        msg = f"{folder} exists already: choose another name with --out"
        raise UsageError(msg) from None
    written = [folder / name for name in texts]
    try:
        for path, text in zip(written, texts.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
    except BaseException:
        shutil.rmtree(folder)
        raise
    return written


# --- Progress --------------------------------------------------------------------------------------------------------------
# Show a person who waits the step and its round, the parties that are waited for and for how long; and a hint where the person stops waiting.

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
