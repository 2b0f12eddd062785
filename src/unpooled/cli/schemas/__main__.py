"""``python -m unpooled.cli.schemas --write``: writes the JSON schemas of all commands, of results, and of files that people write, into ``docs/schemas``.

An output that changed under an unchanged version is not written: programs that read it would not notice. Raise its version first, which is the
end of its ``tag`` in ``unpooled/cli/schemas`` or, of results, in ``inference/results.py``. Versions that no release of unpooled had may change: ``--unreleased`` writes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from unpooled.cli.schemas.files import FILES, file_document
from unpooled.cli.schemas.registry import DESCRIBED, document, file_name, schema_of, tag

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Keys of a schema that are words for people.
_WORDS = {"title", "description"}


def shape(schema: object) -> object:
    """Return a schema without the words in it, which may change under the same version."""
    if isinstance(schema, list):
        return [shape(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    # A property may be called "title": its name leads to a schema, and words do not.
    return {key: shape(part) for key, part in schema.items() if key not in _WORDS or isinstance(part, dict)}


def versions(schema: Mapping[str, Any]) -> set[str]:
    """Return the names and versions of the outputs that a schema describes."""
    parts = [part.get("properties", {}).get("schema", {}) for part in schema.get("$defs", {}).values()]
    return {name for part in parts for name in part.get("enum", ())}


def unraised(folder: Path) -> list[str]:
    """Return the commands of which a file in this folder has another shape under the same versions."""
    found = []
    for command, outputs in DESCRIBED.items():
        file = folder / file_name(command)
        if not file.is_file():
            continue
        before = msgspec.json.decode(file.read_bytes())
        if versions(before) == {tag(one) for one in outputs} and shape(before) != shape(schema_of(command)):
            found.append(command)
    return found


def write(folder: Path, *, unreleased: bool = False) -> None:
    """Write the schemas of all commands into a folder, and delete those of commands that are gone."""
    wrong = [] if unreleased else unraised(folder)
    if wrong:
        typer.echo(f"error: the output of {', '.join(wrong)} changed: raise its version (the end of its tag)", err=True)
        raise typer.Exit(2)
    folder.mkdir(parents=True, exist_ok=True)
    for file in set(folder.glob("*.json")) - {folder / file_name(name) for name in (*DESCRIBED, *FILES)}:
        file.unlink()
    for name in FILES:
        (folder / file_name(name)).write_bytes(file_document(name))
    for command in DESCRIBED:
        (folder / file_name(command)).write_bytes(document(command))


def main(
    *,
    to_write: bool = typer.Option(False, "--write", help="Write the files; without it, print the commands."),
    unreleased: bool = typer.Option(False, "--unreleased", help="Also where an output changed under the same version."),
    folder: Path = typer.Option(Path("docs/schemas"), "--folder", help="The folder of the files."),
) -> None:
    """Write the JSON schemas of all commands."""
    if to_write:
        write(folder, unreleased=unreleased)
        return
    for command in DESCRIBED:
        typer.echo(command)


if __name__ == "__main__":
    typer.run(main)
