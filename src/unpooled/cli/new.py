"""``unpooled new MODEL``: a commented study file to begin with."""

from __future__ import annotations

from pathlib import Path

import typer


def new(
    model: str = typer.Argument(help="describe, bayes, glm, pls, stacking, lasso or pride."),
    *,
    card: list[Path] = typer.Option([], "--card", help="The public card of a party; repeat for each."),
    epsilon: float = typer.Option(1.0, help="The privacy asked for."),
    out: Path = typer.Option(Path("study.toml"), "--out", help="The new study file."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Write a commented study file: what the model needs, and its choices with their defaults."""
    import os

    from unpooled.cli.say import say_json
    from unpooled.errors import UsageError
    from unpooled.study.templates import template

    cards = [Path(os.path.relpath(path, out.parent)).as_posix() for path in card]
    text = template(model, cards, epsilon)
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        msg = f"{out} exists already: choose another name with --out"
        raise UsageError(msg) from None
    if as_json:
        say_json({"written": str(out), "model": model, "cards": cards})
        return
    typer.echo(f"written: {out}. Edit it, then see what it would release and cost: unpooled plan {out}")
