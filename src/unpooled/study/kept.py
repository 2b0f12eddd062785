"""Kept values of a party of a study: arrays by name, and line by line in the units of its data where the model knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unpooled.errors import UsageError, listed
from unpooled.models import load
from unpooled.study.files import read_party, read_study
from unpooled.study.party import keeper_of
from unpooled.study.run import compile_study

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.terms import ResultTerm


@dataclass(frozen=True)
class KeptValues:
    """The kept values of one party for one plan."""

    party: str
    plan: Plan
    arrays: dict[str, NDArray[Any]]
    terms: tuple[ResultTerm, ...]

    @classmethod
    def of(cls, config: Path, study_path: Path, analysis: str = "") -> KeptValues:
        """Return the values that the party of a party file keeps of a study, or of one of its analyses; nothing is computed from data."""
        return cls.of_plan(config, compile_study(read_study(study_path)), study_path.name, analysis)

    @classmethod
    def of_plan(cls, config: Path, plan: Plan, name: str, analysis: str = "") -> KeptValues:
        """Return the same of a plan; ``name`` is the study's name in an error."""
        party, keeper = read_party(config).party.name, keeper_of(config)
        if party not in {card.name for card in plan.study.parties}:
            msg = f"party {party!r} is not in {name}: its parties are {listed([c.name for c in plan.study.parties])}"
            raise UsageError(msg)
        if analysis:
            plan = plan.analysis(analysis)
        arrays = {kept: keeper.kept(plan.hash, kept) for kept in keeper.names(plan.hash)}
        return cls(party, plan, arrays, load(plan.study.row).kept_terms(plan, party, arrays) if arrays else ())
