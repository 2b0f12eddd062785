"""Everything that may leave a party: one noisy histogram."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Released


class CellsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The counts of all cells, with noise."""

    cells: Released
