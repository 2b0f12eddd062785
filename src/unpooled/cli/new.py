"""``unpooled new MODEL``: a commented study file to begin with."""

from __future__ import annotations

from pathlib import Path

import typer


def new(
    model: list[str] = typer.Argument(
        help="describe, tables, survival, bayes, glm, effects, diagnose, pls, stacking, lasso or pride; or link. Several: a study with one analysis of each."
    ),
    *,
    card: list[Path] = typer.Option([], "--card", help="The public card of a party; repeat for each."),
    epsilon: float | None = typer.Option(None, help="The privacy asked for [default: 1, or that of --fitted]."),
    calibration: str = typer.Option(
        "sound", help="The form: sound, or published (the paper's own study, which promises nothing)."
    ),
    fitted: Path | None = typer.Option(
        None, "--fitted", help="pride: an earlier study, whose coefficients predict the new rows of these cards."
    ),
    formula: str | None = typer.Option(
        None,
        "--formula",
        help='bayes, glm or stacking: what the model is a function of, as "age * ward + log(dose)"; checked against the cards.',
    ),
    out: Path = typer.Option(Path("study.toml"), "--out", help="The new study file."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Write a commented study file: what the model needs, and its choices with their defaults."""
    import os

    from unpooled.cli.say import say_json
    from unpooled.errors import UsageError
    from unpooled.study.formulas import checked_formula, right_side
    from unpooled.study.helper_files import helpers_of
    from unpooled.study.templates import prediction, template

    if len(model) > 1:
        _several(model, card, epsilon, out, as_json=as_json, others=(fitted, formula), calibration=calibration)
        return
    (only,) = model
    cards = [Path(os.path.relpath(path, out.parent)).as_posix() for path in card]
    if fitted is not None and only != "pride":
        msg = "--fitted is for pride, whose coefficients stay at the parties; other models' runs are used by `unpooled predict`"
        raise UsageError(msg)
    if fitted is not None and formula is not None:
        raise UsageError("new rows are predicted by the model that was fitted: leave --formula out")
    said = None if formula is None else checked_formula(formula, card)
    if fitted is None:
        text = template(only, cards, 1.0 if epsilon is None else epsilon, calibration, said, helpers_of(card))
    elif calibration == "sound":
        text = prediction(fitted, cards, epsilon)
    else:
        raise UsageError("new rows are predicted in the form of the study that fitted: leave --calibration out")
    _write(out, text)
    if as_json:
        told = {"written": str(out), "model": only, "cards": cards}
        say_json("new", told if said is None else told | {"formula": right_side(said)})
        return
    typer.echo(f"written: {out}. Edit it, then see what it would release and cost: unpooled plan {out}")


def _several(
    models: list[str],
    card: list[Path],
    epsilon: float | None,
    out: Path,
    *,
    as_json: bool,
    others: tuple[object, ...],
    calibration: str,
) -> None:
    """Write a study with one analysis of each model."""
    import os

    from unpooled.cli.say import say_json
    from unpooled.errors import UsageError
    from unpooled.study.templates import template_of_several

    if any(other is not None for other in others) or calibration != "sound":
        raise UsageError(
            "with several models leave --fitted, --formula and --calibration out: each analysis has its own parameters"
        )
    cards = [Path(os.path.relpath(path, out.parent)).as_posix() for path in card]
    _write(out, template_of_several(models, cards, 1.0 if epsilon is None else epsilon))
    if as_json:
        say_json("new", {"written": str(out), "model": "analyses", "models": models, "cards": cards})
        return
    typer.echo(f"written: {out}. Edit it, then see what it would release and cost: unpooled plan {out}")


def _write(out: Path, text: str) -> None:
    from unpooled.errors import UsageError

    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        msg = f"{out} exists already: choose another name with --out"
        raise UsageError(msg) from None
