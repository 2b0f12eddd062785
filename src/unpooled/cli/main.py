"""The command ``unpooled``: collects the commands, turns errors into words and exit codes, and prints the schemas of what commands print."""

from __future__ import annotations

import sys

import typer

from unpooled.cli import (
    audit,
    demo,
    documents,
    network,
    party,
    result,
    serve,
    study,
)
from unpooled.cli.say import REFUSED, examples, failure
from unpooled.errors import UnpooledError

# --- Schema ----------------------------------------------------------------------------------------------------------------
# ``unpooled schema [COMMAND]``: the JSON Schema of what a command prints with ``--json``, for programs that read it.


def schema(
    command: list[str] | None = typer.Argument(
        None,
        help='A command ("party check" or party-check), "table" for results in Python, or a kind of file (study-file, party-file, card-file); without it, the names and versions of all outputs.',
    ),
    *,
    as_json: bool = typer.Option(
        False, "--json", help="Print the list of outputs as data for machines (a schema is JSON anyway)."
    ),
) -> None:
    """Print the JSON Schema (draft 2020-12) of what a command prints with --json, or of a file that people write, by which editors complete it.

    The first key of every such output is "schema": its name and its version, which rises with every change of the output.
    """
    from unpooled.cli.say import say_json
    from unpooled.cli.schemas.files import FILES, file_document
    from unpooled.cli.schemas.registry import DESCRIBED, OUTPUTS, document, tag
    from unpooled.errors import UsageError
    from unpooled.models import load, row_names

    if command:
        known = {name.replace(" ", "-"): name for name in DESCRIBED}
        asked = "-".join(" ".join(command).split())
        files = {name.replace(" ", "-"): name for name in FILES}
        if asked in files:  # of studies with the models that are installed here
            models = [name for name in row_names() if load(name).form.promises]
            typer.echo(file_document(files[asked], models).decode(), nl=False)
            return
        if asked not in known:
            msg = f"no command {' '.join(command)!r} prints data: give one of {', '.join(OUTPUTS)}, or a file: {', '.join(FILES)}"
            raise UsageError(msg)
        typer.echo(document(known[asked]).decode(), nl=False)
        return
    printed = [(name, tag(one)) for name, outputs in OUTPUTS.items() for one in outputs]
    if as_json:
        say_json("schema", {"outputs": [{"command": name, "schema": version} for name, version in printed]})
        return
    for name, version in printed:
        typer.echo(f"{version:<34}unpooled {name}")


# --- Main ------------------------------------------------------------------------------------------------------------------
# The command ``unpooled``: collects the commands and turns errors into words and exit codes.

app = typer.Typer(
    name="unpooled",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Linear models on data you cannot pool, with differential privacy that is true end to end.",
)
for command in (
    *(
        demo.demo,
        study.new,
        study.plan,
        study.propose,
        study.run,
        study.link,
        result.result,
        result.contrast,
        result.submodel,
        result.predict,
    ),
    *(documents.dossier, documents.register, documents.crate),
    *(result.report, audit.audit, network.doctor, schema, serve.serve),
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
