"""The command ``unpooled``: collects the commands and turns errors into words and exit codes."""

from __future__ import annotations

import sys

import typer

from unpooled.cli import audit, contrast, demo, doctor, link, network, new, party, plan, predict, report, result, run, schema
from unpooled.cli.say import examples
from unpooled.errors import Refusal, UnpooledError

#: A usage error exits with 2 (as the shell's own tools do), a refusal by a policy or ledger with 3.
USAGE, REFUSED = 2, 3

app = typer.Typer(
    name="unpooled",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Linear models on data you cannot pool, with differential privacy that is true end to end.",
)
for command in (
    *(demo.demo, new.new, plan.plan, run.run, link.link, result.result, contrast.contrast, predict.predict),
    *(report.report, audit.audit, doctor.doctor, schema.schema),
):
    app.command(epilog=examples(command.__name__))(command)
app.add_typer(party.app, name="party")
app.add_typer(network.app, name="network")


@app.callback(invoke_without_command=True)
def version(*, show: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    """Linear models on data you cannot pool, with differential privacy that is true end to end."""
    if show:
        from unpooled import __version__

        typer.echo(f"unpooled {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line."""
    try:
        app()
    except Refusal as refusal:
        typer.echo(f"refused: {refusal}", err=True)
        sys.exit(REFUSED)
    except UnpooledError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(USAGE)
    except OSError as error:
        typer.echo(f"error: {error.filename or 'a file'}: {error.strerror}: check the path", err=True)
        sys.exit(USAGE)
    except ModuleNotFoundError as missing:
        if missing.name == "fcntl":
            typer.echo("error: networks need Linux or macOS (on Windows: WSL)", err=True)
            sys.exit(USAGE)
        if missing.name not in {"nvflare", "psutil"}:
            raise
        typer.echo("error: this needs the network extra: pip install 'unpooled[network]'", err=True)
        sys.exit(USAGE)
