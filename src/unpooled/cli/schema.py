"""``unpooled schema [COMMAND]``: the JSON Schema of what a command prints with ``--json``, for programs that read it."""

from __future__ import annotations

import typer


def schema(
    command: list[str] | None = typer.Argument(
        None, help='A command ("party check" or party-check); without it, the names and versions of all outputs.'
    ),
    *,
    as_json: bool = typer.Option(
        False, "--json", help="Print the list of outputs as data for machines (a schema is JSON anyway)."
    ),
) -> None:
    """Print the JSON Schema (draft 2020-12) of what a command prints with --json.

    The first key of every such output is "schema": its name and its version, which rises with every change of the output.
    """
    from unpooled.cli.say import say_json
    from unpooled.cli.schemas.registry import OUTPUTS, document, tag
    from unpooled.errors import UsageError

    if command:
        known = {name.replace(" ", "-"): name for name in OUTPUTS}
        asked = "-".join(" ".join(command).split())
        if asked not in known:
            msg = f"no command {' '.join(command)!r} prints data: give one of {', '.join(OUTPUTS)}"
            raise UsageError(msg)
        typer.echo(document(known[asked]).decode(), nl=False)
        return
    printed = [(name, tag(one)) for name, outputs in OUTPUTS.items() for one in outputs]
    if as_json:
        say_json("schema", {"outputs": [{"command": name, "schema": version} for name, version in printed]})
        return
    for name, version in printed:
        typer.echo(f"{version:<34}unpooled {name}")
