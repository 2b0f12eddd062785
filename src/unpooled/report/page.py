"""The page: a template filled with what a run's transcript tells. One file, no script, nothing loaded from elsewhere."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unpooled.privacy.statement import UNIT_WORDS
from unpooled.privacy.unit import Split
from unpooled.protocol.terms import as_table
from unpooled.report import figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.step import Panel
    from unpooled.report.party import PartyView
    from unpooled.report.run import Run

#: So many declared columns are listed.
_COLUMNS = 200


def page(run: Run) -> str:
    """The HTML text of a run's report."""
    facts = {
        **_facts(run.plan),
        "result": run.model.render(run.result),
        "agrees": run.agrees,
        "source": "transcript" if run.recomputed else "record",
        "steps": run.steps,
        "party": "",
        "entries": (),
    }
    return _filled(facts, run.plan, run.model.panels(run.result), figures.traffic(run.steps) if run.steps else None)


def page_of_party(view: PartyView) -> str:
    """The HTML text of what a party may see of a study: the plan, what it keeps, and what its ledger says of it."""
    facts = {
        **_facts(view.plan),
        "result": as_table(view.terms) if view.terms else "This party keeps no coefficients of this study.",
        "agrees": None,
        "source": "party",
        "steps": (),
        "party": view.party,
        "entries": view.entries,
    }
    return _filled(facts, view.plan, view.panels, None)


def _filled(facts: dict[str, Any], plan: Plan, panels: Sequence[Panel], traffic: str | None) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("unpooled.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=_number, size=_size)
    return environment.get_template("page.html").render(**facts, svg=_figures(plan, panels, traffic))


def _facts(plan: Plan) -> dict[str, Any]:
    study = plan.study
    statement = plan.statement
    columns = [
        (card.name, column.name, _declared(column), column.missing) for card in study.parties for column in card.columns
    ]
    return {
        "model": study.model,
        "plan": plan.hash,
        "statement": statement,
        "promise": str(statement).splitlines()[0],
        "units": [(UNIT_WORDS[unit], statement.epsilon_per_unit[unit], unit == study.unit) for unit in plan.units],
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
        "study": study,
    }


def _figures(plan: Plan, panels: Sequence[Panel], traffic: str | None) -> dict[str, Any]:
    import markupsafe

    def safe(text: str | None) -> markupsafe.Markup | None:
        # The figures' own text is escaped by matplotlib; the rest of them is markup.
        return None if text is None else markupsafe.Markup(text)  # noqa: S704

    return {
        "guarantee": safe(figures.guarantee(plan)),
        "panels": [(panel.title, safe(figures.panel(panel))) for panel in panels],
        "traffic": safe(traffic),
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
