"""Signatures of parties under their releases, which other parties check before they act on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.protocol.identity import verify
from unpooled.protocol.messages import encode_content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.privacy.plan import Plan
    from unpooled.protocol.context import Context
    from unpooled.protocol.messages import Released, Signed


def signed_parts(plan: Plan, party: str, step: str, index: int, values: Sequence[Released]) -> tuple[bytes, ...]:
    """Return the parts that a party signs: the place and time of a release, and its values."""
    return (
        *(b"released", plan.hash.encode(), party.encode(), step.encode(), str(index).encode()),
        *(encode_content(value) for value in values),
    )


def check_signed(context: Context, party: str, step: str, index: int, values: Sequence[Released], signed: Signed) -> None:
    """Refuse values that this party of the study did not sign as its release of this step."""
    plan = context.plan
    # Its own key it knows; the others' are pinned by their cards (parties of one process pin none).
    pinned = plan.study.card(party).key or signed.identity
    key = context.public_key if party == context.name else pinned
    verify(key, signed.signature, *signed_parts(plan, party, step, index, values))
