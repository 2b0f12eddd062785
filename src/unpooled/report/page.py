"""The page: a template filled with what a run's transcript tells. One file, no script, nothing loaded from elsewhere."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unpooled.privacy.unit import Split, Unit
from unpooled.report import figures

if TYPE_CHECKING:
    from unpooled.privacy.bounds import Column
    from unpooled.report.run import Run

#: So many declared columns are listed.
_COLUMNS = 200
_UNITS = {Unit.ATTRIBUTE: "one value of one person", Unit.RECORD: "one person's whole row"}


def page(run: Run) -> str:
    """The HTML text of a run's report."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("unpooled.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=_number, size=_size)
    return environment.get_template("page.html").render(**_facts(run), svg=_figures(run))


def _facts(run: Run) -> dict[str, Any]:
    plan, study = run.plan, run.plan.study
    statement = plan.statement
    columns = [
        (card.name, column.name, _declared(column), column.missing) for card in study.parties for column in card.columns
    ]
    return {
        "model": study.model,
        "plan": plan.hash,
        "statement": statement,
        "promise": str(statement).splitlines()[0],
        "units": [(_UNITS[unit], statement.epsilon_per_unit[unit], unit == study.unit) for unit in Unit],
        "split": "columns of the same people" if plan.split is Split.VERTICAL else "rows of different people",
        "parties": [(c.name, c.rows, len(c.columns), len(c.labels), c.key) for c in study.parties],
        "columns": columns[:_COLUMNS],
        "hidden": len(columns[_COLUMNS:]),
        "parameters": sorted(study.parameters.items()),
        "trust": sorted(study.trust.items()),
        "releases": [
            (r.name, r.party, r.step, r.mechanism.name, r.count, r.size, r.sensitivity(study.unit), r.scale)
            for r in plan.releases
        ],
        "result": run.model.render(run.result),
        "agrees": run.agrees,
        "steps": run.steps,
        "study": study,
    }


def _figures(run: Run) -> dict[str, Any]:
    import markupsafe

    def safe(text: str | None) -> markupsafe.Markup | None:
        # The figures' own text is escaped by matplotlib; the rest of them is markup.
        return None if text is None else markupsafe.Markup(text)  # noqa: S704

    return {
        "guarantee": safe(figures.guarantee(run.plan)),
        "panels": [(panel.title, safe(figures.panel(panel))) for panel in run.model.panels(run.result)],
        "traffic": safe(figures.traffic(run.steps)),
    }


def _declared(column: Column) -> str:
    if column.categories is not None:
        return ", ".join(column.categories)
    low, high = column.range
    return f"{low:g} to {high:g}"


def _number(value: float | None) -> str:
    if value is None:
        return "set in the run"
    return f"{value:.4g}" if math.isfinite(value) else "none"


def _size(count: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"
