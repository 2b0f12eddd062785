"""Run a study over parties on this disk; advice on its plan and a party's decision about it before it runs; what a party keeps of it."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import JointRowsError, PolicyRefusal, Refusal, StudyError, UsageError, listed
from unpooled.estimation.outlook import glance, poor
from unpooled.models import load
from unpooled.privacy.study import ANALYSES
from unpooled.privacy.unit import Scope, Target
from unpooled.protocol.conversation import open_request
from unpooled.protocol.local import Outcome, drive, in_process
from unpooled.protocol.messages import open_envelope
from unpooled.protocol.registry import own_rows
from unpooled.protocol.transcript import Transcript
from unpooled.study.files import read_party, read_study
from unpooled.study.finished import account
from unpooled.study.party import keeper_of, open_party
from unpooled.study.record import write_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from unpooled.estimation.outlook import Outlook
    from unpooled.privacy.ledger import Ledger
    from unpooled.privacy.ledger.spending import Spending
    from unpooled.privacy.plan import Plan, Study
    from unpooled.protocol.local import Watch
    from unpooled.protocol.party import Party
    from unpooled.protocol.registry import Model
    from unpooled.protocol.terms import ResultTerm
    from unpooled.protocol.transcript import Exchanged


# --- Run -------------------------------------------------------------------------------------------------------------------
# Run a study over parties on this disk, in this process: the rehearsal of a networked run, with the same bytes.


def compile_study(study: Study) -> Plan:
    """Return the plan of a study, from its public text alone."""
    return load(study.row).compile(study)


def asked_of(study: Study) -> tuple[tuple[Model, Study], ...]:
    """Return the models that a study asks for, each with its question: of several analyses one for each."""
    if study.model != ANALYSES:
        return ((load(study.row), study),)
    return tuple((load(plan.study.row), plan.study) for plan in compile_study(study).analyses.values())


def run_study(
    study_path: Path, party_paths: Sequence[Path], folder: Path, watch: Watch | None = None
) -> tuple[Plan, Outcome]:
    """Run a study and leave transcript, result and statement in ``folder``; a run that was cut short is continued."""
    study = read_study(study_path)
    plan = compile_study(study)
    with ExitStack() as stack:
        parties = {party.name: party for party in (stack.enter_context(open_party(path)) for path in party_paths)}
        for card in study.members:
            if card.name not in parties:
                msg = f"{study_path.name}: no party file given for {card.name!r}: add --party PATH/TO/its party.toml"
                raise StudyError(msg)
        folder.mkdir(parents=True, exist_ok=True)
        transcript = Transcript.open(folder / "transcript")
        stack.callback(transcript.close)
        for entry in transcript.entries[:1]:
            open_request(open_envelope(entry.request))  # a run that another version began is refused as such
        outcome = drive(load(study.row), plan, in_process(parties), transcript, watch)
    write_results(folder, plan, outcome, transcript.entries)
    return plan, outcome


def write_results(folder: Path, plan: Plan, outcome: Outcome, entries: Sequence[Exchanged] = ()) -> None:
    """Write the files that a run leaves behind, wherever it ran: the plan and its promise in words, the result as data, the record of the run."""
    write_record(folder, plan, outcome, entries)
    (folder / "plan.txt").write_text(str(plan) + "\n")
    (folder / "statement.txt").write_text(str(plan.statement) + "\n")
    (folder / "result.txt").write_text(load(plan.study.row).table(plan, outcome.result) + "\n")
    result = {
        "plan": plan.hash,
        "result": outcome.result,
        "statement": plan.statement.to_dict(),
        "communication": outcome.communication,
    }
    (folder / "result.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))


# --- Advice ----------------------------------------------------------------------------------------------------------------
# Advice on a plan: the budget that it wastes, and the checks that it leaves out, in words: before anybody looks at data.

#: A plan that spends less than this part of what is asked says so.
_SPENT = 0.95


def advice(plan: Plan) -> tuple[str, ...]:
    """Notes on a plan; none where there is nothing to say."""
    study = plan.study
    found: list[str] = list(load(study.row).notes(plan))
    vertical = plan.split.shares_people and len(study.parties) > 1
    senders = {release.party for release in plan.releases}
    silent = [card.name for card in study.parties if vertical and senders and card.columns and card.name not in senders]
    found += [f"{name} releases nothing: nobody else reads its columns, so they help nobody but {name}" for name in silent]
    spent = plan.statement.epsilon_per_unit[study.unit]
    if math.isfinite(study.epsilon) and spent < _SPENT * study.epsilon:
        found.append(f"of epsilon = {study.epsilon:g} the plan spends {spent:.4g}: the rest buys nothing, ask for less")
    if vertical and not study.ids and not plan.links:
        found.append(
            "nobody checks that the parties hold the same rows in the same order; rows that do not line up give a result about nobody. "
            "Name an id column in every party file (`id`), and use the new cards"
        )
    return tuple(found)


def compiled_or_instead(study: Study) -> Plan:
    """Return the plan of a study; where a party lets no masked rows travel, the refusal says what models without joint rows are expected to give."""
    try:
        return compile_study(study)
    except JointRowsError as refused:
        instead = without_joint_rows(study)
        raise JointRowsError(f"{refused}. {instead}" if instead else str(refused)) from None


def without_joint_rows(study: Study) -> str:
    """Return sentences on what models without joint rows are expected to give in the place of joint moments; empty where they answer another question."""
    found = []
    for row in own_rows():
        instead = None if row.without_joint_rows is None else row.without_joint_rows(study)
        if instead is None:
            continue
        asked, called = instead
        try:
            outlook = glance(row, asked)
        except UsageError:  # its columns or parties are not for this model
            continue
        if outlook is not None:
            holder = next(card.name for card in asked.parties if card.labels)
            found.append(
                f"Expected of {called} for the same persons and epsilon, by simulations without data: {outlook.measure} {outlook.error:.3g} at "
                f"{holder!r}, whose own columns alone give {outlook.nothing_released:.3g}; no table for publication"
            )
    return ". ".join(found)


# --- Approving -------------------------------------------------------------------------------------------------------------
# Decisions of a party about a plan: the command line and the console show the same costs and write the same rows of the ledger.

#: The measure of a helper's decisions, which cost nothing in any.
_NO_BUDGET = Target(1.0, 1e-9)
#: What a policy's total counts where columns are split, in words.
_COUNTED = {
    Scope.PERSON: "over all parties of column-split studies",
    Scope.PARTY: "by this party alone (other parties may release more about the same people)",
}


@dataclass(frozen=True)
class Costs:
    """The spending of a party's ledger before and after a plan, in the unit and at the delta of its policy."""

    spent: Spending
    after: Spending


def costs_of(party: Party, plan: Plan) -> Costs | None:
    """Return what the party's ledger holds before and after the plan; None for a helper, whose ledger holds no debit."""
    budget = party.policy.budget
    if budget is None:
        return None
    spent, after = (party.ledger.spending(budget, party.policy.scope, charges) for charges in ((), party.charges(plan)))
    return Costs(spent, after)


def counted_in(ledger: Ledger, scope: Scope, plan: Plan | None = None) -> str:
    """Return what a policy's total counts, in words: of other parties only where this plan, or a study in the ledger, splits columns."""
    columns = plan is not None and plan.split.shares_people and len(plan.study.parties) > 1
    if columns or any(entry.kind == "shared" for entry in ledger.entries()):
        return _COUNTED[scope]
    return "over all studies"


def costs_in_words(party: Party, plan: Plan, costs: Costs | None) -> str:
    """Return the costs as one line, and a line for each card that tells how its data came about."""
    budget = party.policy.budget
    if costs is None or budget is None:
        knows = "matches pseudonyms, learns how many are in common with noise" if plan.hides else "knows masks"
        return f"{party.name} is a helper: it has no data, and nothing is debited here. It {knows}, and learns the study's size and shape"
    said = (
        f"{party.name}'s ledger, per {budget.unit} at delta = {budget.delta:g}, {counted_in(party.ledger, party.policy.scope, plan)}: spent {costs.spent.words}; "
        f"after this plan {costs.after.words}; allowed {budget.epsilon:g}"
    )
    for card in plan.study.parties:
        facts = [f"{what}: {words}" for what, words in card.circumstances.items()]
        said += f"\n{card.name} says of its data: {'; '.join(facts)}" if facts else ""
    return said


def refusal_of(party: Party, plan: Plan) -> str:
    """Return why the policy or the ledger would refuse an approval of this plan; empty where neither would. No row is read."""
    try:
        party.policy.check(plan, approved_in_ledger=True, party=f"party {party.name!r}")
        party.debit(plan, party.charges(plan), only_check=True)
    except Refusal as refused:
        return str(refused)
    return ""


@dataclass(frozen=True)
class Expectations:
    """What simulations without data expect of a plan: why it is too little, and the lines of its tables."""

    #: Empty where the study is worth its budget.
    doubts: tuple[str, ...]
    #: The outlooks that have lines, by the name of the analysis.
    tables: Mapping[str, Outlook]

    @property
    def words(self) -> tuple[str, ...]:
        """Return each table as text."""
        return tuple(outlook.lines_in_text(name) for name, outlook in self.tables.items())


#: What is expected of plans that were asked for here, by their hashes: simulations take a second, and a page is read more than once.
_expected: dict[str, Expectations] = {}


def expectations_of(plan: Plan) -> Expectations:
    """Return what to expect of a plan and of each of its analyses."""
    if plan.hash not in _expected:
        _expected[plan.hash] = _expectations_of(plan)
    return _expected[plan.hash]


def _expectations_of(plan: Plan) -> Expectations:
    doubts: list[str] = []
    tables: dict[str, Outlook] = {}
    for model, asked in asked_of(plan.study):
        outlook = glance(model, asked, lines=True)
        if outlook is None:
            continue
        if not outlook.pays:
            doubts.append(f"analysis {asked.analysis!r}: {poor(outlook)}" if asked.analysis else poor(outlook))
        if outlook.lines:
            tables[asked.analysis] = outlook
    return Expectations(tuple(doubts), tables)


def waiting_plans(party: Party, but: str = "") -> tuple[str, ...]:
    """Return the plans that were approved here and of which nothing was debited, linked or answered yet, but for one of them."""
    lines = party.ledger.studies(party.policy.budget or _NO_BUDGET, party.policy.scope)
    standing = (line.plan for line in lines if line.approval and not line.withdrawn and line.plan != but)
    return tuple(plan for plan in standing if not party.ledger.begun(plan))


def record_approval(
    party: Party, plan: Plan, purpose: str, *, by: str = "", reason: str = "", after: int | None = None, changed: str = ""
) -> None:
    """Record that this party agreed to a plan, which was held against card, data, policy and ledger before (:meth:`Party.consider`).

    The entry holds a keyed digest of the data. A plan that was approved for other data is approved for these if somebody says why they ``changed``.
    """
    if not changed and (other := party.other_data(plan)):
        raise PolicyRefusal(other)
    party.ledger.approve(
        plan.hash,
        about(plan, purpose),
        by=by or account(),
        reason=reason,
        purpose=purpose,
        origins=plan.study.origins,
        after=after,
        data=party.data_digest,
        changed=changed,
    )


def approve_other_data(parties: Sequence[Party], plan: Plan, purpose: str, reason: str, by: str = "") -> None:
    """Approve a plan for the data that these parties have now, where they are others than it was approved for; refused where none are."""
    changed = [party for party in parties if party.other_data(plan)]
    if not changed:
        standing = [party.ledger.approval(plan.hash) for party in parties]
        what = (
            "the data are those that were approved"
            if any(entry and entry.data for entry in standing)
            else f"plan {plan.hash[:16]} is not approved for any data here: approve it with --approve"
        )
        msg = f"a reason why data changed was given, but {what}. Nothing was changed"
        raise UsageError(msg)
    for party in changed:
        party.consider(plan, approved=True)
    for party in changed:
        record_approval(party, plan, purpose, by=by, reason=reason, changed=reason)


def about(plan: Plan, purpose: str) -> str:
    """Return the model and the purpose of a study, as the ledger's lines name it."""
    return f"{plan.study.row}: {purpose}" if purpose else plan.study.row


# --- Kept ------------------------------------------------------------------------------------------------------------------
# Kept values of a party of a study: arrays by name, and line by line in the units of its data where the model knows them.


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
        return cls(party, plan, arrays, load(plan.study.row).reading.kept_terms(plan, party, arrays) if arrays else ())
