"""Write the tables of parameters: `python docs/parameters.py [FOLDER]` writes the tables that docs/studies.md includes.

Everything in them stands in the declared parameters of the models. A test compares the committed files with what this script writes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from unpooled.models import load
from unpooled.privacy.declared import parameters_of
from unpooled.protocol.registry import OWN, as_toml

if TYPE_CHECKING:
    import msgspec

    from unpooled.privacy.declared import Parameter

HERE = Path(__file__).parent


def row(one: Parameter) -> str:
    """Return the line of one parameter."""
    default = "needed" if one.required else "none" if one.default is None else f"`{as_toml(one.default)}`"
    choices = ", ".join(f"`{word}`" for word in one.flag("choices") or ())
    words = one.words.replace("``", "`").replace("|", "\\|") + (
        f" One of {choices}." if len(one.flag("choices") or ()) > 1 else ""
    )
    return f"| `{one.name}` | {default} | {words} | {'study files' if one.flag('study') else ''} |\n"


def table(fields: type[msgspec.Struct]) -> str:
    """Return the table of a study's parameters: those that it needs, and then the others."""
    found = sorted(parameters_of(fields).values(), key=lambda one: not one.required)
    return "| key | default | meaning | only in |\n|---|---|---|---|\n" + "".join(map(row, found))


def tables() -> dict[str, str]:
    """Return the table of every model by the name of its file; of one that takes both splits also that of columns."""
    found = {}
    for name in OWN:
        own = load(name).template
        if own is None or own.fields is None:
            continue
        found[f"{name}.md"] = table(own.fields)
        joined = own.with_helpers
        if joined is not None and joined.fields is not None and joined.fields is not own.fields:
            found[f"{name}-columns.md"] = table(joined.fields)
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "parameters")
    for name, text in tables().items():
        (folder / name).write_text(text, encoding="utf-8")
