"""Everything that may leave a party: five noisy sums."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Released


class MomentsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sums of u, v, u v, u^2 and v^2 over the party's rows, with noise."""

    moments: Released
