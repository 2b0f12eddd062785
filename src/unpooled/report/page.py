"""The page of a run: a template filled with what its transcript says, and a party's view of it. One file, no script, nothing loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unpooled.privacy.ledger import Ledger
from unpooled.privacy.statement import SPLIT_WORDS, UNIT_WORDS
from unpooled.privacy.unit import Unit
from unpooled.protocol.registry import Analysed, Panel
from unpooled.protocol.terms import as_rows
from unpooled.report import figures, releases
from unpooled.study.files import policy_of, purpose_of, read_party
from unpooled.study.finished import BudgetLeft, DataApproved, moment
from unpooled.study.run import KeptValues

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import jinja2
    import markupsafe

    from unpooled.inference.sites import PooledTables
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.ledger import Entry
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.terms import ResultTerm
    from unpooled.study.finished import Run


# --- Templates -------------------------------------------------------------------------------------------------------------
# The pages' templates: every page of unpooled is filled by this environment, which escapes what is put into it.


def environment(package: str = "unpooled.report") -> jinja2.Environment:
    """Return the environment of a package's templates and of the report's; an unknown name in a template is an error."""
    import jinja2

    places = [jinja2.PackageLoader(one, ".") for one in dict.fromkeys((package, "unpooled.report"))]
    found = jinja2.Environment(
        loader=jinja2.ChoiceLoader(places),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=seen,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(number=number)
    return found


def seen(value: Any) -> Any:  # noqa: ANN401 - whatever a template shows
    """Return what is put into a page, with a mark for each letter that nobody sees: such letters turn words around, or make two names alike."""
    if type(value) is not str or value.isprintable():  # what is safe already has been looked at by who made it
        return value
    return "".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in value)


def number(value: float | None) -> str:
    """Return a number with four digits, as the pages print it."""
    if value is None:
        return "set in the run"
    return f"{value:.4g}" if math.isfinite(value) else "none"


# --- Party -----------------------------------------------------------------------------------------------------------------
# A party's view of a study: its plan, the values that this party keeps of it, and the entries of its own ledger.


@dataclass(frozen=True)
class PartyView:
    """The view of one party on one study."""

    party: str
    plan: Plan
    terms: tuple[ResultTerm, ...]
    #: Of the ledger, for this plan: position, when, what, cost per value, cost per row, state.
    entries: tuple[tuple[int, str, str, str, str, str], ...]
    purpose: str
    left: BudgetLeft
    approved: DataApproved | None = None

    @classmethod
    def read(cls, config: Path, study: Path) -> PartyView:
        """Return the view read from a party file and a study file."""
        return cls.of(config, KeptValues.of(config, study), purpose_of(study))

    @classmethod
    def of(cls, config: Path, kept: KeptValues, purpose: str) -> PartyView:
        """Return the view of what a party keeps of a plan, with the lines of its ledger."""
        text = read_party(config)
        with Ledger.open(config.parent / text.party.ledger) as ledger:
            entries = tuple(_line(entry) for entry in ledger.entries() if entry.plan == kept.plan.hash)
            policy = policy_of(text.policy)
            left = BudgetLeft.of(kept.party, ledger, policy)
            approved = DataApproved.of(kept.party, ledger, policy, kept.plan.hash)
        return cls(kept.party, kept.plan, kept.terms, entries, purpose, left, approved)

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Return the coefficients that this party keeps, but its constants."""
        return panels_of(self.terms)


def panels_of(terms: Sequence[ResultTerm]) -> tuple[Panel, ...]:
    """Return the figure of the coefficients that a party keeps, but its constants."""
    shown = [term for term in terms if not term.term.startswith("(")]
    if not shown:
        return ()
    return (Panel("coefficients", tuple(t.term for t in shown), tuple(t.estimate for t in shown)),)


def _line(entry: Entry) -> tuple[int, str, str, str, str, str]:
    when = moment(entry.time)
    if entry.key is None:
        data = entry.data_words if entry.kind == "approval" else ""
        return entry.position, when, " ".join(part for part in (entry.kind, entry.about, data) if part), "", "", ""
    what = f"{entry.key.step}[{entry.key.index}] {entry.key.name}"
    what = "the whole plan, all parties" if entry.kind == "shared" else what
    return entry.position, when, what, entry.words(Unit.ATTRIBUTE), entry.words(Unit.RECORD), str(entry.state)


# --- Page ------------------------------------------------------------------------------------------------------------------
# The page: a template filled with what a run's transcript tells. One file, no script, nothing loaded from elsewhere.

#: So many declared columns are listed.
_COLUMNS = 200
#: So many lines of a result.
_TERMS = 100


def page(run: Run) -> str:
    """Return the HTML text of a run's report."""
    facts = {
        **facts_of(run.plan),
        "results": results_of(run),
        "agrees": run.agrees,
        "source": "transcript" if run.recomputed else "record",
        "steps": [(c.step, c.party, c.times, _size(c.sent), _size(c.received)) for c in run.steps],
        "about": run.about,
        "purpose": run.about.purpose if run.about else "",
        "budgets": run.about.budgets if run.about else (),
        "approved": run.about.data if run.about else (),
    }
    return filled(facts, run.plan, figures.traffic(run.steps) if run.steps else None)


def page_of_party(view: PartyView) -> str:
    """Return the HTML text of what a party may see of a study: the plan, what it keeps, and what its ledger says of it."""
    facts = {
        **facts_of(view.plan),
        "results": [
            {
                **NAMELESS,
                **table_of(view.terms),
                "text": "" if view.terms else "This party keeps no coefficients of this study.",
                "panels": drawn(view.panels),
            }
        ],
        "source": "party",
        "party": view.party,
        "entries": view.entries,
        "purpose": view.purpose,
        "budgets": (view.left,),
        "approved": (view.approved,) if view.approved else (),
    }
    return filled(facts, view.plan, None)


def results_of(run: Run, *, simulated: bool = False) -> list[dict[str, Any]]:
    """Return what the study found, once for every analysis of it: figures, the table, the lines below; of a simulated run with marks."""
    parts = run.parts or (Analysed("", run.model, run.plan, run.result),)
    over_sites = run.model.tables(run.plan, run.result) if run.parts else None
    pooled = [] if over_sites is None else [_pooled(over_sites, simulated=simulated)]
    return pooled + [
        {
            "name": part.name,
            "failed": part.failed,
            **table_of(() if part.failed else part.model.reading.terms(part.plan, part.result)),
            "text": "" if part.failed else part.model.table(part.plan, part.result),
            "foot": () if part.failed else part.model.reading.foot(part.plan, part.result),
            "panels": () if part.failed else drawn(part.model.reading.panels(part.plan, part.result), simulated=simulated),
        }
        for part in parts
    ]


def _pooled(found: PooledTables, *, simulated: bool) -> dict[str, Any]:
    """Return the results of fits at every site by itself, pooled."""
    words = {"name": "pooled over sites", "failed": "", "text": "\n\n".join(found.texts), "foot": found.notes}
    return {**words, **table_of(found.lines), "panels": drawn(found.panels, simulated=simulated)}


#: The results of one analysis alone: no name above them, nothing below.
NAMELESS: dict[str, Any] = {"name": "", "failed": "", "foot": ()}
#: What only some pages have.
_NOTHING: dict[str, Any] = {
    "agrees": None,
    "steps": (),
    "about": None,
    "party": "",
    "entries": (),
    "simulated": None,
    "expected": (),
    "budgets": (),
    "approved": (),
    "purpose": "",
}


def filled(facts: dict[str, Any], plan: Plan, traffic: figures.Drawn | None) -> str:
    """Return the page of a plan with these facts."""
    return environment().get_template("page.html").render(**{**_NOTHING, **facts}, svg=_figures(plan, traffic))


def table_of(terms: Sequence[ResultTerm]) -> dict[str, Any]:
    """Return the result line by line; of many lines those of the largest figures, in their order."""
    shown = terms
    if len(terms) > _TERMS:
        largest = sorted(range(len(terms)), key=lambda i: -abs(terms[i].estimate))[:_TERMS]
        shown = [terms[i] for i in sorted(largest)]
    rows = as_rows(shown) if shown else []
    words = sum(title in {"group", "term"} for title in rows[0]) if rows else 0
    return {"terms": rows, "more_terms": len(terms) - len(shown), "words_first": words}


def facts_of(plan: Plan) -> dict[str, Any]:
    """Return everything on a page that follows from the plan alone."""
    study = plan.study
    statement = plan.statement
    columns = [
        (card.name, column.name, _declared(column), column.missing) for card in study.parties for column in card.columns
    ]
    asked = (
        f"epsilon = {number(study.epsilon)}, delta = {number(study.delta)}, unit = {study.unit}, "
        f"adjacency = {study.adjacency}, calibration = {study.calibration}"
    )
    return {
        **_joint(plan),
        "model": study.model,
        "plan": plan.hash,
        "statement": statement,
        "promise": str(statement).splitlines()[0],
        "units": [
            (UNIT_WORDS[unit], number(statement.epsilon_per_unit[unit]), "asked for" if unit == study.unit else "")
            for unit in plan.units
        ],
        "split": SPLIT_WORDS[plan.split],
        "parties": [(c.name, c.size, len(c.columns), len(c.labels), _key(c.key)) for c in study.parties],
        "columns": columns[:_COLUMNS],
        "hidden": len(columns[_COLUMNS:]),
        "parameters": [
            ("run", study.run),
            ("privacy", asked),
            *((name, _plain_words(value)) for name, value in sorted(study.parameters.items())),
            *((f"trust in {role}", value) for role, value in sorted(study.trust.items())),
        ],
        "releases": [
            (
                *(r.name, r.party, r.step, r.mechanism.name),
                r.count if r.count == 1 else f"at most {r.count}",
                *(r.size, number(r.sensitivity(study.unit)), number(r.scale)),
            )
            for r in plan.releases
        ],
        "in_words": [one.row for one in releases.in_words(plan)],
        "words_titles": releases.TITLES,
        "study": study,
    }


def _plain_words(value: object) -> object:
    """Return a parameter as people write it: names of a list after each other."""
    if isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    return value


def _joint(plan: Plan) -> dict[str, Any]:
    """Return the section on joint moments: a line for each direction in which masked rows travel, and whether rows are proved to be short."""
    if not plan.joint:
        return {"masked": (), "proved": False, "helpers": ()}
    joint = [one for one in plan.analyses.values() if one.joint] or [plan]
    masked = [
        (
            side.sender,
            ", ".join(one.design.sent(side.sender)),
            side.receiver,
            side.helper,
            f"{side.receiver} with {side.helper}",
        )
        for one in joint
        for side in one.design.sides
    ]
    helpers = [(card.name, "no data", 0, 0, _key(card.key)) for card in plan.study.helpers]
    return {"masked": list(dict.fromkeys(masked)), "proved": all(one.design.proved for one in joint), "helpers": helpers}


def _key(key: str) -> str:
    return f"{key[:16]}…" if key else "one process"


def _figures(plan: Plan, traffic: figures.Drawn | None) -> dict[str, Any]:
    svg = {"guarantee": figures.guarantee(plan), "holdings": figures.holdings(plan), "traffic": traffic}
    return {name: safe(drawn) for name, drawn in svg.items()}


def drawn(panels: Sequence[Panel], *, simulated: bool = False) -> list[tuple[str, Any]]:
    """Return the figures of a result with their titles; of a simulated one with marks."""
    shown = [(panel.title, figures.panel(panel)) for panel in panels]
    return [(title, safe(figures.marked(one) if simulated else one)) for title, one in shown]


def safe(drawn: figures.Drawn | None) -> tuple[markupsafe.Markup, ...] | None:
    """Return a figure for a page and one for a telephone as markup."""
    import markupsafe

    # The figures' own text is escaped by matplotlib; the rest of them is markup.
    return None if drawn is None else (markupsafe.Markup(drawn.wide), markupsafe.Markup(drawn.narrow))  # noqa: S704


def _declared(column: Column) -> str:
    if column.categories is not None:
        return ", ".join(column.categories)
    low, high = column.range
    limit = f", under {column.below:g} missing" if column.below is not None else ""
    return f"{low:g} to {high:g}" + (f" ({column.dates})" if column.dates else "") + limit


def _size(count: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"
