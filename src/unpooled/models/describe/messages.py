"""Everything that may leave a party: one released vector of sums."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Released


class SumsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The noisy vector of :class:`unpooled.models.describe.plan.Layout`."""

    sums: Released
