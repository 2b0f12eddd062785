"""Messages that may leave a party besides its part of a total (``unpooled.totals.total``)."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Released


class ExactReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Moments without noise, where epsilon is infinite."""

    moments: Released
