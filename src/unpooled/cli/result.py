"""``unpooled result | contrast | predict | report RUN``: what a study found, line by line, in other combinations, on new rows, and as a page."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Analysed


# --- Result ----------------------------------------------------------------------------------------------------------------
# ``unpooled result RUN``: what a study found, line by line.


def result(
    run: Path = typer.Argument(help="The folder of a run (STUDY.run)."),
    *,
    analysis: str = typer.Option("", "--analysis", help="One of several analyses of the study, by name."),
    as_csv: bool = typer.Option(False, "--csv", help="Print comma-separated values."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Print what a study found: coefficients (or summaries) in the data's own units, with standard errors and intervals where there are any."""
    from unpooled.errors import UsageError
    from unpooled.protocol.terms import as_csv as csv_of
    from unpooled.study.finished import Run

    if as_csv and as_json:
        raise UsageError("choose --csv or --json")
    found = Run.read(run, analysis)
    terms = found.terms
    if as_json:
        from unpooled.cli.say import say_json

        study, tables = found.plan.study, found.model.tables(found.plan, found.result)
        data = {
            "plan": (found.whole or found.plan).hash,
            "model": study.model,
            "holds": found.statement.holds,
            "statement": str(found.statement),
            "epsilon": found.statement.epsilon if math.isfinite(study.epsilon) else None,
            "delta": found.statement.delta,
            "recomputed": found.recomputed,
            "terms": terms,
            # Without a table levels have no coefficients that anybody should read; `predict` knows them from the record.
            "predicting": terms if tables is None else found.model.reading.predicting(found.plan, found.result),
            **({"analyses": [_about(part) for part in found.parts]} if found.parts else {}),
            **({} if tables is None else tables.data(getattr(found.result, "confidence", 0.95))),
        }
        say_json("result", data)
        return
    if as_csv:
        typer.echo(csv_of(terms), nl=False)
        return
    typer.echo(found.model.table(found.plan, found.result))
    if not terms and not found.plan.links:
        typer.echo("Each party shows its own coefficients with `unpooled party show STUDY`.")
    typer.echo()
    for line in str(found.statement).splitlines()[: 3 if found.statement.holds else 1]:
        typer.echo(line)
    if found.agrees is False:
        typer.echo("WARNING: result.json is not this result: it was changed, or is of another run", err=True)


def _about(part: Analysed) -> dict[str, str]:
    return {"name": part.name, "model": part.plan.study.model, "failed": part.failed}


# --- Contrast --------------------------------------------------------------------------------------------------------------
# ``unpooled contrast RUN "ward: b - a"``: differences of levels and other combinations of a run's coefficients.


def contrast(
    run: Path = typer.Argument(help="The folder of a run (STUDY.run)."),
    asked: list[str] = typer.Argument(
        help='Combinations, each in quotes: "ward: b - a" for levels, "2 * age - dose" for numbers, "age = 1" to test another value than 0.'
    ),
    *,
    analysis: str = typer.Option("", "--analysis", help="One of several analyses of the study, by name."),
    confidence: float = typer.Option(0.95, "--confidence", help="Of the intervals."),
    against: str | None = typer.Option(None, "--against", help="The class that others are compared with (multinomial)."),
    exponentiate: bool = typer.Option(False, "--exponentiate", help="Print odds, rate or hazard ratios."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Estimate combinations of coefficients with standard errors, intervals and a joint test. It costs no budget: all follows from what was released."""
    from unpooled.errors import UsageError
    from unpooled.study.finished import Run

    found = Run.one(run, analysis)
    tables = found.model.tables(found.plan, found.result)
    if tables is None:
        msg = f"this run of model {found.plan.study.model!r} released no standard errors, so nothing can be compared: `bayes` and `glm` do where there are rows and epsilon enough"
        raise UsageError(msg)
    told = tables.contrast(asked, confidence=confidence, against=against, exponentiate=exponentiate)
    if as_json:
        from unpooled.cli.say import say_json

        data = {
            "plan": (found.whole or found.plan).hash,
            "holds": found.statement.holds,
            "confidence": confidence,
            "ratio": told.ratio,
            "terms": [term.line for term in told.terms],
            "joint": {"statistic": told.statistic, "degrees": told.degrees, "p_value": told.p_value},
        }
        say_json("contrast", data)
        return
    typer.echo(str(told))
    typer.echo()
    typer.echo(str(found.statement).splitlines()[0])


# --- Submodel --------------------------------------------------------------------------------------------------------------
# ``unpooled submodel RUN age arm``: the table of a model of some of the columns, from the same release.


def submodel(
    run: Path = typer.Argument(help="The folder of a run (STUDY.run)."),
    columns: list[str] = typer.Argument(help="The declared columns that the smaller model has."),
    *,
    analysis: str = typer.Option("", "--analysis", help="One of several analyses of the study, by name."),
    confidence: float = typer.Option(0.95, "--confidence", help="Of the intervals."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Print the table of a linear regression on some of its columns alone. It costs no budget: it follows from the second moments that were released.

    Where the noise hides lines of the whole table, a smaller model may have them: say which columns before you look, for a choice after it is no test.
    """
    from unpooled.models import fitted
    from unpooled.study.finished import Run

    found = Run.one(run, analysis)
    table = smaller_table(fitted(found.plan, found.result), columns, confidence)
    if as_json:
        from unpooled.cli.say import say_json

        data = {"plan": (found.whole or found.plan).hash, "holds": found.statement.holds, "columns": columns}
        say_json("submodel", data | data_of(table))
        return
    typer.echo(str(table))
    typer.echo()
    typer.echo(str(found.statement).splitlines()[0])


def smaller_table(model: Any, columns: list[str], confidence: float) -> Any:  # noqa: ANN401 - an estimator; its summary
    """Return the summary of a model of some of the columns; refused where the fit released no second moments."""
    from unpooled.errors import UsageError

    if not hasattr(model, "submodel") or getattr(model, "moments_", None) is None:
        raise UsageError(
            "no smaller model follows from this fit: a linear regression that makes a table released the second moments from which one does"
        )
    return model.submodel(columns).summary(confidence=confidence)


def data_of(table: Any) -> dict[str, Any]:  # noqa: ANN401 - a summary of linear regression
    """Return the table of a smaller model as data."""
    return {
        "confidence": table.confidence,
        "nobs": table.rows,
        "r_squared": table.r_squared,
        "terms": [term.line for term in table.terms],
        "not_determined": list(table.not_determined),
        "notes": list(table.compared),
    }


# --- Predict ---------------------------------------------------------------------------------------------------------------
# ``unpooled predict RUN --data new.csv``: new rows, predicted by the model that a run released.


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
    from unpooled.study.saved import predictions
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
    writer.writerows(
        [["" if isinstance(value, float) and math.isnan(value) else value for value in row] for row in rows]
    )  # no number: an empty cell
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


# --- Report ----------------------------------------------------------------------------------------------------------------
# ``unpooled report RUN``: a run as one self-contained page, for the analyst or for a party.


def report(
    run: Path = typer.Argument(help="The folder of a run (STUDY.run); with --config the study file (study.toml)."),
    *,
    config: Path | None = typer.Option(None, "--config", help="A party file: the page of what this party may see."),
    out: Path | None = typer.Option(
        None, "--out", help="The page to write [default: RUN/report.html, or STUDY.PARTY.html]."
    ),
    verify: bool = typer.Option(
        False,
        "--verify",
        help="Check that every reply carries the signature of its party, under the cards given with --card.",
    ),
    card: list[Path] = typer.Option(
        [], "--card", help="With --verify: the public card of a party, as you got it from the party."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Write a run as one HTML page: its promise, its releases, its result. The result is recomputed from the transcript.

    After a networked run the transcript stays at the coordinator, and the page is made from the record that came with the result.
    """
    if verify:
        _verify(run, card, as_json=as_json)
        return
    from unpooled.errors import UsageError
    from unpooled.report.page import PartyView, page, page_of_party
    from unpooled.study.finished import Run

    warning = ""
    if config is not None:
        view = PartyView.read(config, run)
        plan, path, text = view.plan, out or run.with_suffix(f".{view.party}.html"), page_of_party(view)
    elif run.is_file():
        msg = f"{run} is a file: give the folder of a run (STUDY.run), or at a party the study file with --config party.toml"
        raise UsageError(msg)
    else:
        found = Run.read(run)
        plan, path, text = found.plan, out or run / "report.html", page(found)
        if found.agrees is False:
            other = "what follows from the transcript" if found.recomputed else "the recorded result"
            warning = f"WARNING: result.json is not {other}"
    path.write_text(text, encoding="utf-8")
    _tell(plan, path, warning, as_json=as_json)


def _verify(run: Path, cards: list[Path], *, as_json: bool) -> None:
    """Check the signatures of a run's replies, and say how many each party gave."""
    from unpooled.cli.say import say_json
    from unpooled.study.files import read_card
    from unpooled.study.finished import Run

    signed = Run.verify(run, [read_card(path) for path in cards])
    if as_json:
        say_json("report-verify", {"verified": True, "replies": signed})
        return
    counts = ", ".join(f"{count} of {name}" for name, count in signed.items())
    typer.echo(f"verified: every reply carries the signature of its party ({counts}), and the result follows from them")
    typer.echo("No signature shows that a party was silent: ask a party that is said to have dropped out.")


def _tell(plan: Plan, path: Path, warning: str, *, as_json: bool) -> None:
    if as_json:
        from unpooled.cli.say import say_json

        data = {"plan": plan.hash, "holds": plan.statement.holds, "warning": warning, "written": str(path)}
        say_json("report", data)
        return
    typer.echo(f"plan {plan.hash[:16]}: {plan.statement.headline}")
    if warning:
        typer.echo(warning)
    typer.echo(f"written: {path}")
