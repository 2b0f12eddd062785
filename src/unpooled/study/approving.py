"""Decisions of a party about a plan: the command line and the console show the same costs and write the same rows of the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unpooled.errors import PolicyRefusal, Refusal, UsageError
from unpooled.estimation.utility import glance, poor
from unpooled.privacy.unit import Scope, Split, Target
from unpooled.study.about import account
from unpooled.study.run import asked_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.privacy.ledger import Ledger
    from unpooled.privacy.ledger.spending import Spending
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.party import Party

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
    columns = plan is not None and plan.split is Split.VERTICAL and len(plan.study.parties) > 1
    if columns or any(entry.kind == "shared" for entry in ledger.entries()):
        return _COUNTED[scope]
    return "over all studies"


def costs_in_words(party: Party, plan: Plan, costs: Costs | None) -> str:
    """Return the costs as one line, and a line for each card that tells how its data came about."""
    budget = party.policy.budget
    if costs is None or budget is None:
        return f"{party.name} is a helper: it has no data, and nothing is debited here. It knows masks, and learns the study's size and shape"
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


def doubts_of(plan: Plan) -> tuple[str, ...]:
    """Return why simulations without data expect too little of a plan, or of an analysis of it; empty where it is worth its budget."""
    found = []
    for model, asked in asked_of(plan.study):
        outlook = glance(model, asked)
        if outlook is not None and not outlook.pays:
            found.append(f"analysis {asked.analysis!r}: {poor(outlook)}" if asked.analysis else poor(outlook))
    return tuple(found)


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
