"""The command in this process, and two parties on disk whose study describes their people."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.main import get_command

from unpooled.cli import main as cli
from unpooled.privacy.bounds import Column
from unpooled.privacy.unit import Target
from unpooled.study.party import create_party

STUDY = """\
[study]
model = "describe"

[privacy]
epsilon = 1.0
delta = 1e-6

[[party]]
card = "north/north.card.toml"

[[party]]
card = "south/south.card.toml"
"""


def two_parties(tmp_path: Path) -> Path:
    """north and south, and a study of both."""
    rng = np.random.default_rng(0)
    for name, n in (("north", 300), ("south", 200)):
        home = tmp_path / name
        home.mkdir()
        sex = rng.choice(["f", "m"], n).tolist()
        frame = pl.DataFrame(
            {"id": list(range(n)), "age": rng.normal(50, 10, n), "sex": sex, "old": [s == "f" for s in sex]}
        )
        (frame.write_csv if name == "north" else frame.write_parquet)(
            home / f"data.{'csv' if name == 'north' else 'parquet'}"
        )
        data = next(home.glob("data.*"))
        columns = (Column("age", 0.0, 100.0), Column("sex", categories=("f", "m")), Column("old", categories=("0", "1")))
        create_party(home, name, data, columns, Target(1.0, 1e-6), "id")
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def command(world: Path, *words: str, code: int | None = 0) -> str:
    """Run the command in this process, as the console script does; returns everything it printed. ``None``: 0 or a usage error."""
    out, err, argv = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["unpooled", *words]
    try:
        with (
            contextlib.chdir(world),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as exit_,
        ):
            cli.main()
    finally:
        sys.argv = argv
    assert (exit_.value.code or 0) in ({0, 2} if code is None else {code}), out.getvalue() + err.getvalue()
    return out.getvalue() + err.getvalue()


PARTIES = ("--party", "north/party.toml", "--party", "south/party.toml")


def approve(world: Path) -> None:
    """Both of them approve the study."""
    for name in ("north", "south"):
        assert "Approved" in command(world, "party", "check", "study.toml", "--config", f"{name}/party.toml", "--approve")


def known_commands() -> dict[str, Any]:
    """Every command by the words that call it."""
    found: dict[str, Any] = {}
    for name, one in get_command(cli.app).commands.items():
        if hasattr(one, "commands"):
            found |= {f"{name} {inner}": two for inner, two in one.commands.items()}
        else:
            found[name] = one
    return found
