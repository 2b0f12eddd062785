"""A study's tables and figures before anything is spent: its plan's own conversation, played in process on simulated data of the declared shape."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import UnpooledError, UsageError
from unpooled.models import load
from unpooled.privacy.accounting import gaussian_epsilon, gaussian_mu
from unpooled.privacy.policy import Policy
from unpooled.privacy.unit import LARGEST_EPSILON, Split
from unpooled.protocol.identity import MemoryKeeper
from unpooled.protocol.local import run_in_process
from unpooled.report import figures
from unpooled.report.page import NAMELESS, drawn, facts_of, filled, panels_of, results_of, safe, table_of
from unpooled.study.finished import Run
from unpooled.study.made_up import Truth, made_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from unpooled.estimation.outlook import Outlook
    from unpooled.privacy.plan import Card, Plan, Study
    from unpooled.protocol.local import LocalRun
    from unpooled.protocol.registry import Model
    from unpooled.protocol.terms import ResultTerm

#: The most values that are simulated, over all rows and columns of all parties; and the fewest rows of a party.
_MOST_VALUES, _FEWEST = 2_000_000, 20
#: The seed of the simulated rows and of their noise: the same plan has the same preview.
_SEED = 20_011


@dataclass(frozen=True)
class Preview:
    """One run of a plan on simulated data, or the reason in words why there is none."""

    plan: Plan
    run: Run | None
    #: The rows that the study declares, and those that were simulated.
    declared: int
    simulated: int
    truth: str
    #: What differs between the simulated study and the planned one, in sentences.
    differences: tuple[str, ...] = ()
    failed: str = ""
    #: What each party would keep for itself, line by line.
    kept: Mapping[str, tuple[ResultTerm, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> Preview:
        """Return the preview of a plan. No data are read, no ledger is opened, and nothing is debited."""
        if plan.links:
            raise UsageError("this study links rows: it has no table and no figure, so there is nothing to preview")
        if not plan.study.parties:
            raise UsageError("this study has no party, so there is nothing to preview")
        truth, model = Truth(), load(plan.study.row)
        asked, differences = _shrunk(plan.study)
        declared, rows = (_rows(study, plan.split) for study in (plan.study, asked))
        facts = (declared, rows, str(truth))
        try:
            fitted, tables = made_up(model, asked, max(card.rows for card in asked.parties), _SEED, truth)
            fitted = msgspec.structs.replace(fitted, simulation_seed=_SEED)
            played = model.compile(fitted)
            found = run_in_process(model, played, tables, Policy.in_process(), load)
        except UnpooledError as error:
            return cls(plan, None, *facts, differences, str(error))
        if [r.name for r in played.releases] != [r.name for r in plan.releases]:
            differences += ("With fewer rows the model would choose other releases than this plan has, and it did.",)
        outcome = found.outcome
        run = Run(model, played, outcome.result, outcome.communication, (), None)
        return cls(plan, run, *facts, differences, kept=_kept(model, played, found))

    @property
    def results(self) -> list[dict[str, Any]]:
        """Return what the page shows of the simulated results, marked: those of the analyst, and those that stay at the parties."""
        if self.run is None:
            return [{**NAMELESS, **table_of(()), "text": "", "panels": (), "failed": self.failed}]
        found = results_of(self.run, simulated=True)
        for party, terms in self.kept.items():
            own = {"name": f"kept by {party} alone", "text": "", "panels": drawn(panels_of(terms), simulated=True)}
            found.append({**NAMELESS, **table_of(terms), **own})
        return found

    @property
    def terms(self) -> tuple[ResultTerm, ...]:
        """Return the lines of the simulated result; empty where it stays at the parties, or there is none."""
        return () if self.run is None else self.run.terms


def preview(plan: Plan) -> str:
    """Return the preview of a plan as one HTML page."""
    return page_of_preview(Preview.of(plan))


def page_of_preview(shown: Preview, outlooks: Mapping[str, Outlook] | None = None) -> str:
    """Return a preview as one HTML page: the plan's own facts, results that are marked as simulated, and outlooks by the name of the analysis."""
    simulated = {
        "declared": f"{shown.declared:,}",
        "rows": f"{shown.simulated:,}",
        "truth": shown.truth,
        "differences": shown.differences,
    }
    expected = [
        {"name": name, "text": str(one), "figures": [(title, safe(drawing)) for title, drawing in figures.outlook(one)]}
        for name, one in (outlooks or {}).items()
    ]
    facts = {**facts_of(shown.plan), "results": shown.results, "source": "preview", "simulated": simulated}
    facts["expected"] = expected
    return filled(facts, shown.plan, None)


def _kept(model: Model, plan: Plan, run: LocalRun) -> dict[str, tuple[ResultTerm, ...]]:
    """Return the lines of what each party would keep of a study for itself."""
    found = {}
    for party, keeper in run.kept.items():
        assert isinstance(keeper, MemoryKeeper)  # of a party of this process
        arrays = {name: values for (own, name), values in keeper.items() if own == plan.hash}
        if arrays and (terms := model.reading.kept_terms(plan, party, arrays)):
            found[party] = terms
    return found


def _rows(study: Study, split: Split) -> int:
    """Return the rows of a study: of parties with columns of the same people, those of one of them."""
    rows = [card.rows for card in study.parties]
    return max(rows) if split.shares_people else sum(rows)


def _shrunk(study: Study) -> tuple[Study, tuple[str, ...]]:
    """Return a study that is small enough to simulate, and what this changes.

    Fewer rows get a larger epsilon, so that the noise stays the same part of every total. Their sampling error is that of fewer rows.
    """
    values = sum(card.rows * (len(card.columns) + len(card.labels)) for card in study.parties)
    if values <= _MOST_VALUES:
        return study, ()
    cards = tuple(_part(card, _MOST_VALUES / values) for card in study.parties)
    factor = sum(card.rows for card in study.parties) / sum(card.rows for card in cards)
    epsilon = _scaled(study.epsilon, study.delta, factor)
    if not (epsilon <= LARGEST_EPSILON or epsilon == math.inf):
        msg = (
            f"this study has {sum(card.rows for card in study.parties):,} rows: too many to simulate, and noise that a part of them would need "
            "is smaller than unpooled draws. Ask `unpooled plan STUDY --utility` for the error to expect"
        )
        raise UsageError(msg)
    words = (
        f"Only {100 / factor:.3g} % of the rows were simulated, and the noise was made smaller by a factor of {factor:.4g} (as if epsilon were "
        f"{epsilon:.4g}), so that it is the same part of every total. Errors by sampling are about {math.sqrt(factor):.3g} times those of all rows."
    )
    return msgspec.structs.replace(study, parties=cards, epsilon=epsilon), (words,)


def _part(card: Card, part: float) -> Card:
    """Return the card with this part of its rows, or of its ids."""
    if card.household is None:
        return msgspec.structs.replace(card, rows=max(math.ceil(card.rows * part), min(card.rows, _FEWEST)))
    ids = max(math.ceil(card.household.ids * part), min(card.household.ids, _FEWEST))
    together = msgspec.structs.replace(card.household, ids=ids)
    return msgspec.structs.replace(card, rows=ids * together.rows, household=together)


def _scaled(epsilon: float, delta: float, factor: float) -> float:
    """Return the epsilon whose noise is smaller than that of this epsilon by a factor."""
    if math.isinf(epsilon) or delta == 0:
        return epsilon * factor
    return gaussian_epsilon(delta, gaussian_mu(epsilon, delta) * factor)
