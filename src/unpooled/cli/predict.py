"""``unpooled predict RUN --data new.csv``: new rows, predicted by the model that a run released."""

from __future__ import annotations

from pathlib import Path

import typer


def predict(
    run: Path = typer.Argument(help="The folder of a run (STUDY.run)."),
    data: Path = typer.Option(
        ..., "--data", help="New rows (CSV, Parquet, Feather or Excel), with columns named as the study declares them."
    ),
    *,
    analysis: str = typer.Option("", "--analysis", help="One of several analyses of the study, by name."),
    id_column: str | None = typer.Option(None, "--id", help="A column of row ids to print beside the predictions."),
    out: Path | None = typer.Option(None, "--csv", help="A new CSV file for the predictions [default: print them]."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Predict new rows with the model that a study released. It costs no budget: everything follows from what was released.

    How the file is written is found out, and standard error says so. Values outside the declared ranges are used as they are; a category that was not declared is refused.
    """
    import csv
    import io

    from unpooled.errors import UsageError
    from unpooled.models import fitted
    from unpooled.study.data import SPARSE, must_exist
    from unpooled.study.finished import Run
    from unpooled.study.predict import predictions
    from unpooled.study.sniff import read_or_words

    found = Run.one(run, analysis)
    model = fitted(found.plan, found.result)
    must_exist(data)
    sniffed = None if data.suffix == SPARSE else read_or_words(data)
    if sniffed is not None and sniffed.words:
        typer.echo(f"{data.name} is read with {sniffed.words}", err=True)
    columns = predictions(model, data, id_column, None if sniffed is None else sniffed.form)
    rows = list(zip(*(values.tolist() for values in columns.values()), strict=True))
    if as_json:
        from unpooled.cli.say import say_json

        told = {"plan": (found.whole or found.plan).hash, "holds": found.statement.holds}
        told["predictions"] = [dict(zip(columns, row, strict=True)) for row in rows]
        say_json("predict", told)
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    if out is None:
        typer.echo(text.getvalue(), nl=False)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text.getvalue())
    except FileExistsError:
        msg = f"{out} exists already: choose another name"
        raise UsageError(msg) from None
    typer.echo(f"written: {out} ({len(rows)} rows)")
