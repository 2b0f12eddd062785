"""Everything that may leave a party: one released vector of counts."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Released


class TableReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The noisy counts of the cells of :class:`unpooled.models.tables.layout.TableLayout`."""

    counts: Released
