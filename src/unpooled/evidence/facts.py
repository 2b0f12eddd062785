"""Facts of a study for its documents, from its files alone: study, plan, statement, a party's policy and ledger, a run, an audit. No data are read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from unpooled.errors import ProtocolError, UsageError, listed
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import Summand
from unpooled.privacy.noise import KeySource
from unpooled.privacy.statement import UNIT_WORDS
from unpooled.privacy.table import NoRows
from unpooled.privacy.unit import Split, Unit
from unpooled.protocol.party import Party
from unpooled.report.releases import numbers_of
from unpooled.report.templates import number
from unpooled.study.columns_read import trial_of
from unpooled.study.files import purpose_of, read_party, read_study
from unpooled.study.finished import Run
from unpooled.study.rules import policy_of
from unpooled.study.run import compile_study

if TYPE_CHECKING:
    from pathlib import Path

    from unpooled.audit.replay import Report
    from unpooled.privacy.ledger import Entry
    from unpooled.privacy.ledger.spending import Spending
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.statement import Statement
    from unpooled.privacy.unit import Target
    from unpooled.study.columns_read import Trial
    from unpooled.study.rules import PolicySection

#: What each of our own models computes, for people who know none of them.
MODEL_WORDS = {
    "describe": "counts, means and standard deviations of columns",
    "tables": "tables that count people by the levels of several columns, with tests",
    "pride": "a regression over columns of several parties, of which each party keeps its own part",
    "bayes": "a linear regression: how a number depends on other columns",
    "glm": "a regression for yes or no, counts, rates or times until an event",
    "stacking": "a classifier: how likely each class is for a person",
    "lasso": "a regression that uses few columns",
    "pls": "a calibration that predicts a number from spectra",
    "diagnose": "a check of how well an earlier model fits",
    "survival": "survival curves of groups, with tests",
    "effects": "the effect of a treatment, adjusted for other columns",
    "link": "which people all parties have in common",
}


@dataclass(frozen=True)
class LedgerFacts:
    """The policy of one party, and what its ledger says of a plan and of everything else."""

    party: str
    policy: PolicySection
    budget: Target
    #: The last approval of the plan and, if it was withdrawn after that, the withdrawal.
    approval: Entry | None
    withdrawal: Entry | None
    #: Whether the policy itself lists the plan's hash.
    listed: bool
    #: The number of releases of the plan that were debited, and whether each of them was answered.
    debited: int
    answered: bool
    #: The time of the last debit, in seconds since 1970; 0 without one.
    last: int
    #: The spending of all studies now, and once this plan is debited.
    spent: Spending
    after: Spending
    #: The number of plans in the ledger.
    studies: int
    head: str
    #: True if this plan, or a study in the ledger, splits columns: then others release about the same people, too.
    columns: bool

    @property
    def approved(self) -> bool:
        """Return True if this party agrees to the plan now."""
        return self.withdrawal is None and (self.approval is not None or self.listed)

    @classmethod
    def read(cls, config: Path, plan: Plan) -> LedgerFacts:
        """Return the facts of the party of a party file, which is one of the plan's parties."""
        text = read_party(config)
        name, policy = text.party.name, policy_of(text.policy)
        names = [card.name for card in plan.study.parties]
        if name not in names:
            msg = f"party {name!r} of {config} is not in the study: its parties are {listed(names)}"
            raise UsageError(msg)
        budget = policy.budget
        assert budget is not None  # a party file always has one
        with Ledger.open(config.parent / text.party.ledger) as ledger:
            entries = ledger.entries()
            party = Party(name, NoRows(), plan.study.card(name), ledger, KeySource(ledger.root_key), policy, load)
            spent = ledger.spending(budget, policy.scope)
            after = ledger.spending(budget, policy.scope, party.charges(plan))
            head, withdrawn = ledger.head, not ledger.approved(plan.hash)
        own = [entry for entry in entries if entry.plan == plan.hash]
        charges = [entry for entry in own if entry.kind == "charge"]
        approvals = [entry for entry in own if entry.kind == "approval"]
        withdrawals = [entry for entry in own if entry.kind == "withdrawal"] if withdrawn else []
        return cls(
            name,
            text.policy,
            budget,
            approvals[-1] if approvals else None,
            withdrawals[-1] if withdrawals else None,
            plan.hash in (policy.approved or ()),
            len(charges),
            bool(charges) and all(entry.state == "committed" for entry in charges),
            max((entry.time for entry in charges), default=0),
            spent,
            after,
            len({entry.plan for entry in entries}),
            head,
            (plan.split is Split.VERTICAL and len(names) > 1) or any(entry.kind == "shared" for entry in entries),
        )


@dataclass(frozen=True)
class Facts:
    """Everything that a dossier may state."""

    name: str
    plan: Plan
    purpose: str
    ledgers: tuple[LedgerFacts, ...] = ()
    run: Run | None = None
    audit: Report | None = None

    @classmethod
    def read(cls, study: Path, configs: tuple[Path, ...] = (), run: Path | None = None) -> Facts:
        """Return the facts of a study file, of party files, and of the folder of a finished run of this very plan."""
        plan = compile_study(read_study(study))
        ledgers = tuple(LedgerFacts.read(config, plan) for config in configs)
        return cls(study.stem, plan, purpose_of(study), ledgers, None if run is None else run_of(run, plan))

    @property
    def study(self) -> Study:
        """Return the study."""
        return self.plan.study

    @property
    def statement(self) -> Statement:
        """Return the statement of the plan."""
        return self.plan.statement

    @property
    def parties(self) -> tuple[str, ...]:
        """Return the names of the parties."""
        return tuple(card.name for card in self.study.parties)

    @property
    def rows_split(self) -> bool:
        """Return True if the parties hold rows of different people; otherwise they hold columns of the same people."""
        return self.plan.split is Split.HORIZONTAL

    @property
    def numbers_out(self) -> int:
        """Return the most numbers that are released with noise."""
        return numbers_of(self.plan)

    @cached_property
    def trial(self) -> Trial | None:
        """Return what a run of the plan on made-up rows read, and sent as it is; None where it cannot be run."""
        return trial_of(self.plan)

    @property
    def summed(self) -> tuple[bool, bool, bool]:
        """Return whether a party releases something by itself, whether members open a total together, and whether a trusted party adds up."""
        kinds = {(release.mechanism.takes is Summand, release.mechanism.needs_trust) for release in self.plan.releases}
        added = (True, True) in kinds
        return (False, False) in kinds and not added, (True, False) in kinds, added

    @property
    def analyses(self) -> tuple[str, ...]:
        """Return what is computed, in words: a sentence part for every analysis."""
        plans = tuple(self.plan.analyses.values()) or (self.plan,)
        return tuple(dict.fromkeys(_computed(one) for one in plans))

    @property
    def epsilons(self) -> tuple[tuple[str, str], ...]:
        """Return whom epsilon is about and its value, the unit of the promise first, in words."""
        found = self.statement.epsilon_per_unit
        units = sorted(found, key=lambda unit: unit != self.statement.unit)
        return tuple((UNIT_WORDS[Unit(unit)], epsilon_words(found[unit])) for unit in units)

    @property
    def whole(self) -> str:
        """Return the reading of epsilon for a whole person, where the promise is about one value; empty elsewhere, and where none is proved."""
        statement, unit = self.statement, Unit.RECORD
        epsilon = statement.epsilon_per_unit[unit]
        if not statement.holds or statement.unit != Unit.ATTRIBUTE or math.isinf(epsilon) or self.study.origins:
            return ""
        return replace(statement, unit=unit, failure=self.plan.cost(unit).failure(epsilon)).reading

    def ledger(self, party: str) -> LedgerFacts | None:
        """Return what is known of a party's ledger, if its party file was given."""
        return next((one for one in self.ledgers if one.party == party), None)


def run_of(folder: Path, plan: Plan) -> Run:
    """Return the finished run of a plan; refused where its folder holds another plan's run, or a result that does not follow from its messages."""
    found = checked_run(folder)
    if found.plan.hash != plan.hash:
        msg = f"{folder} is a run of plan {found.plan.hash[:16]}, and the study file makes plan {plan.hash[:16]}: give the run of this study"
        raise UsageError(msg)
    return found


def checked_run(folder: Path) -> Run:
    """Return a finished run; refused where result.json does not hold its result."""
    if folder.is_file():
        msg = f"{folder} is a file: give the folder of a run (STUDY.run)"
        raise UsageError(msg)
    found = Run.read(folder)
    if found.agrees is False:
        msg = f"{folder / 'result.json'} is not the result of this run: it was changed, or is of another run. Nothing is written about it"
        raise ProtocolError(msg)
    return found


def epsilon_words(epsilon: float) -> str:
    """Return an epsilon as documents print it."""
    return number(epsilon) if math.isfinite(epsilon) else "none is proved"


def _computed(plan: Plan) -> str:
    """Return what a plan of one analysis computes."""
    model = plan.study.model
    words = MODEL_WORDS.get(model) or f"the model {model}{f' of {plan.maker}' if plan.maker else ''}"
    return f"{words} (model {model})" if model in MODEL_WORDS else words
