"""``unpooled network ...`` and ``unpooled doctor``: kits, processes and rehearsals of a network, and what would fail before it does."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from unpooled.cli.say import examples, say_json

if TYPE_CHECKING:
    from collections.abc import Iterator


# --- Network ---------------------------------------------------------------------------------------------------------------
# ``unpooled network ...``: kits for the participants of a network, their processes, a rehearsal on one machine.

app = typer.Typer(
    no_args_is_help=True, help="Make the kits of a network, start one of them, or rehearse with all of them here."
)


@app.command(epilog=examples("network provision"))
def provision(
    project: Path = typer.Argument(help="The network file (network.toml)."),
    out: Path = typer.Option(Path("kits"), "--out", help="A new folder for the kits."),
    *,
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Write one start-up kit per participant, with certificates and the narrowest permissions."""
    from unpooled.network.kits import kits_in
    from unpooled.network.kits import provision as make

    public = make(project, out)
    if as_json:
        kits = [{"folder": str(kit.folder), "role": kit.role} for kit in kits_in(out)]
        say_json("network-provision", {"kits": kits, "authority": str((out / "authority").resolve()), "coordinator": public})
        return
    for kit in kits_in(out):
        who = {"server": "the coordinator", "client": "a party", "admin": "the user who starts studies"}[kit.role]
        typer.echo(f"{kit.folder}: {who}")
    typer.echo(f"{(out / 'authority').resolve()}: the authority's own key: keep it offline, it admits participants")
    typer.echo(f'\nEvery study of this network says, under [study]:\ncoordinator = "{public}"')


@app.command(epilog=examples("network start"))
def start(
    kit: Path = typer.Argument(help="The kit of the coordinator or of a party."),
    *,
    as_json: bool = typer.Option(False, "--json", help="Say once, as data, what was started."),
) -> None:
    """Run one participant on this machine until it is stopped (Ctrl-C or SIGTERM)."""
    from unpooled.network.kits import Kit
    from unpooled.network.processes import start as start_kit
    from unpooled.network.processes import stop

    opened = Kit.of(kit)
    with _until_stopped(None) as stopped:
        process = start_kit(opened)
        try:
            log = opened.folder / "engine.log"
            if as_json:
                say_json("network-start", {"starting": opened.name, "log": str(log)})
            else:
                typer.echo(f"{opened.name} is starting; its log is {log}")
            while process.poll() is None and not stopped.wait(0.5):
                pass
        finally:
            stop(process)
    if process.returncode and not stopped.is_set():
        typer.echo(f"{opened.name} ended by itself with code {process.returncode}: see its log", err=True)
        raise typer.Exit(1)


@app.command(epilog=examples("network up"))
def up(
    kits: Path = typer.Argument(Path("kits"), help="The folder that `network provision` wrote."),
    *,
    exit_after: float | None = typer.Option(None, "--exit-after", help="Stop after so many seconds."),
    as_json: bool = typer.Option(False, "--json", help="Say once, as data, what is up."),
) -> None:
    """Rehearse: run coordinator and all parties as processes of this machine until stopped."""
    from unpooled.network.processes import up as bring_up

    with _until_stopped(exit_after) as stopped, bring_up(kits) as processes:
        if as_json:
            say_json("network-up", {"up": list(processes)})
        else:
            typer.echo(f"up: {', '.join(processes)}. Ctrl-C stops them.")
        while not stopped.wait(0.5):
            for name, process in processes.items():
                if process.poll() is not None:
                    typer.echo(f"{name} ended with code {process.returncode}: see {kits / name / 'engine.log'}", err=True)
                    raise typer.Exit(1)
    if not as_json:
        typer.echo("all stopped")


@contextmanager
def _until_stopped(seconds: float | None) -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM or the end of the given seconds sets."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    timer = threading.Timer(seconds, stopped.set) if seconds is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield stopped
    finally:
        if timer is not None:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


# --- Doctor ----------------------------------------------------------------------------------------------------------------
# ``unpooled doctor``: says what would fail in a networked study, before it does.


def doctor(
    kit: Path | None = typer.Argument(
        None, help="A start-up kit: yours. Without one, studies whose parties are on one disk."
    ),
    *,
    study: Path | None = typer.Option(None, "--study", help="The study file to look at."),
    config: Path | None = typer.Option(None, "--config", help="A party file [default: that of the kit]."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Look at certificates, server, clock, versions, roster, cards and policy. Exit code 2 if something would fail."""
    from unpooled.errors import UsageError
    from unpooled.network.kits import Kit
    from unpooled.network.processes import examine
    from unpooled.study.files import read_study

    if kit is config is study is None:
        msg = "say what to look at: a kit, --config party.toml, --study study.toml"
        raise UsageError(msg)
    findings = examine(None if kit is None else Kit.of(kit), config, None if study is None else read_study(study))
    if as_json:
        from unpooled.cli.say import say_json

        say_json("doctor", {"findings": findings})
    else:
        for finding in findings:
            typer.echo(f"{'fine   ' if finding.fine else 'PROBLEM'}  {finding.what}: {finding.words}")
    if not all(finding.fine for finding in findings):
        raise typer.Exit(2)
