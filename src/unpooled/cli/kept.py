"""``unpooled party show`` and ``unpooled party export``: what a party keeps of a study, for the party itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from unpooled.cli.say import say_json, write_new

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.study.kept import KeptValues

_CONFIG = typer.Option(Path("party.toml"), "--config", help="The party file.")
_OWN = "computed from your raw data: for those who may see them, and for nobody else"


def show(
    study: Path | None = typer.Argument(None, help="The study file; without it, the plans for which something is kept."),
    config: Path = _CONFIG,
    *,
    analysis: str = typer.Option("", "--analysis", help="One of several analyses of the study, by name."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Show what this party keeps of a study: coefficients of its own columns in their own units, and the arrays behind them.

    All of it was computed from raw data and never left this party.
    """
    from unpooled.protocol.terms import as_table
    from unpooled.study.kept import KeptValues
    from unpooled.study.party import keeper_of

    if study is None:
        keeper = keeper_of(config)
        plans = {plan: keeper.names(plan) for plan in keeper.plans()}
        if as_json:
            say_json("party-show-plans", {"plans": plans})
            return
        for plan, names in plans.items():
            typer.echo(f"plan {plan[:16]}  {', '.join(names)}")
        typer.echo("Give a study file to see what is kept of it." if plans else "Nothing is kept here.")
        return
    kept = KeptValues.of(config, study, analysis)
    if as_json:
        arrays = {name: values.tolist() for name, values in kept.arrays.items()}
        data = {"party": kept.party, "plan": kept.plan.hash, "terms": kept.terms, "arrays": arrays}
        say_json("party-show", data)
        return
    _some(kept, study)
    if kept.terms:
        typer.echo(f"{as_table(kept.terms)}\n")
    for name, values in kept.arrays.items():
        typer.echo(f"{name:<24}{values.dtype} {'x'.join(map(str, values.shape)) or 'number'}")
    typer.echo(f"({_OWN})")


def export(
    study: Path = typer.Argument(help="The study file."),
    config: Path = _CONFIG,
    *,
    analysis: str = typer.Option("", "--analysis", help="One of several analyses of the study, by name."),
    out: Path = typer.Option(..., "--out", help="A new file: .csv or .json (coefficients), or .npz (all arrays)."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Write what this party keeps of a study into a file that only its owner may read."""
    import io

    import msgspec
    import numpy as np

    from unpooled.errors import UsageError
    from unpooled.protocol.terms import as_csv
    from unpooled.study.kept import KeptValues

    kept = KeptValues.of(config, study, analysis)
    _some(kept, study)
    if out.suffix == ".npz":
        whole = io.BytesIO()
        arrays: dict[str, Any] = dict(kept.arrays)
        np.savez(whole, **arrays)
        body = whole.getvalue()
    elif out.suffix not in {".csv", ".json"}:
        msg = f"{out.name}: name the file .csv or .json for coefficients, .npz for all arrays"
        raise UsageError(msg)
    elif not kept.terms and "predictions" in kept.arrays and out.suffix == ".csv":
        body = _predictions(kept, config)
    elif not kept.terms:
        msg = f"model {kept.plan.study.model!r} keeps nothing here that has a name of its own: export the arrays, --out NAME.npz"
        raise UsageError(msg)
    elif out.suffix == ".csv":
        body = as_csv(kept.terms).encode()
    else:
        body = msgspec.json.format(msgspec.json.encode({"party": kept.party, "plan": kept.plan.hash, "terms": kept.terms}))
    write_new(out, body)
    if as_json:
        say_json("party-export", {"written": str(out), "party": kept.party, "plan": kept.plan.hash})
    else:
        typer.echo(f"written: {out} ({_OWN})")


def _predictions(kept: KeptValues, config: Path) -> bytes:
    """New rows' predictions (the linear predictor), next to their ids where the party names a column of them."""
    from unpooled.study.files import read_party
    from unpooled.study.party import open_party

    name, ids = read_party(config).party.id, None
    if name is not None:
        with open_party(config) as party:
            ids = party.table.ids()
    return prediction_lines(kept.arrays["predictions"], name, ids)


def prediction_lines(values: NDArray[Any], name: str | None, ids: Sequence[object] | None) -> bytes:
    """Comma-separated values: one column of predictions, or one for each decision of a row (a class, or a level but the last)."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rows = values.reshape(len(values), -1).tolist()
    columns = ["prediction"] if values.ndim == 1 else [f"prediction {k + 1}" for k in range(values.shape[1])]
    if name is None or ids is None:
        writer.writerows([columns, *rows])
    else:
        writer.writerows([[name, *columns], *([each, *row] for each, row in zip(ids, rows, strict=True))])
    return text.getvalue().encode()


def _some(kept: KeptValues, study: Path) -> None:
    from unpooled.errors import UsageError

    if not kept.arrays:
        msg = f"party {kept.party!r} keeps nothing of {study.name} (plan {kept.plan.hash[:16]}): has it run, with this very study file?"
        raise UsageError(msg)
