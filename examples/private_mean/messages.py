"""Everything that may leave a party: one noisy sum."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Released


class SumReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sum of the party's coded values, with noise."""

    total: Released
