"""The command ``unpooled``: collects the commands and turns errors into words and exit codes."""

from __future__ import annotations

import sys

import typer

from unpooled.cli import (
    audit,
    contrast,
    crate,
    demo,
    doctor,
    dossier,
    link,
    network,
    new,
    party,
    plan,
    predict,
    propose,
    register,
    report,
    result,
    run,
    schema,
    serve,
)
from unpooled.cli.failures import REFUSED, failure
from unpooled.cli.say import examples
from unpooled.errors import UnpooledError

app = typer.Typer(
    name="unpooled",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Linear models on data you cannot pool, with differential privacy that is true end to end.",
)
for command in (
    *(demo.demo, new.new, plan.plan, propose.propose, run.run, link.link, result.result, contrast.contrast, predict.predict),
    *(dossier.dossier, register.register, crate.crate),
    *(report.report, audit.audit, doctor.doctor, schema.schema, serve.serve),
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
    except (UnpooledError, OSError, ModuleNotFoundError) as error:
        told = failure(error)
        if told is None:
            raise
        code, words = told
        typer.echo(f"{'refused' if code == REFUSED else 'error'}: {words}", err=True)
        sys.exit(code)
