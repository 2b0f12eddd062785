"""``unpooled party console``: pages on this machine where a party's people read studies, decide about them, and see the budget."""

from __future__ import annotations

from pathlib import Path

import typer

from unpooled.cli.say import say_json


def console(
    config: Path = typer.Option(Path("party.toml"), "--config", help="The party file."),
    *,
    inbox: Path | None = typer.Option(
        None, "--inbox", help="The folder of studies to decide about [default: inbox, next to the party file]."
    ),
    runs: Path | None = typer.Option(None, "--runs", help="A folder of finished runs [default: that of the party file]."),
    port: int = typer.Option(0, "--port", min=0, max=65535, help="The port on this machine; 0: any free one."),
    read_only: bool = typer.Option(
        False, "--read-only", help="For an auditor: everything is shown, nothing can be decided."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the address as data for machines."),
) -> None:
    """Open the console: read studies, approve or decline them, withdraw, audit, and see the budget, in a browser on this machine.

    It prints an address that opens once, in one browser. Nobody else on the network can reach it. Ctrl-C ends it.
    """
    from unpooled.errors import UsageError
    from unpooled.study.party import open_account

    try:
        from unpooled.console.desk import OfficeDesk
        from unpooled.console.serving import serve
    except ModuleNotFoundError as error:
        if error.name not in {"starlette", "uvicorn"}:
            raise
        raise UsageError("this needs the console extra: pip install 'unpooled[console]'") from None

    with open_account(config) as party:  # what is wrong with the party file or the ledger is said here, and not on a page
        name = party.name
    folder = inbox or config.parent / "inbox"

    def opened(address: str) -> None:
        if as_json:
            say_json("party-console", {"party": name, "address": address, "inbox": str(folder), "read_only": read_only})
            return
        typer.echo(
            f"The console of {name} is open{' (read-only)' if read_only else ''}. This address opens once, in one browser of this machine:\n\n  {address}\n"
        )
        typer.echo(f"Studies to decide about lie in {folder}. Ctrl-C ends the console.")

    serve(OfficeDesk(config, folder, runs or config.parent), port, opened, read_only=read_only)
