"""Parties in one process whose columns are joined under masks: their cards and tables, who holds the response, and the helper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.aggregation.columns.words import PROOF
from unpooled.errors import UsageError, listed
from unpooled.estimation.parameters import NONE, WHOLE, WORD, taking
from unpooled.estimation.tables import columns_of, part
from unpooled.privacy.plan import Card, HelperCard
from unpooled.privacy.study import ALLOWED, TRUSTING
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Study

#: The parameters of joint moments that every estimator of them takes.
JOINING = taking("helpers", WHOLE) | taking("response_at", WORD, NONE) | taking("check", WORD)
#: The name of the helper of parties in one process.
_HELPER = "(helper)"


def holder_of(groups: Mapping[str, Sequence[str]], response_at: str | None) -> str:
    """Return the party that holds the response: as ``response_at`` says, else the first."""
    holder = next(iter(groups)) if response_at is None else response_at
    if holder not in groups:
        msg = f"response_at must be one of the parties, {listed(list(groups))}, not {holder!r}"
        raise UsageError(msg)
    return holder


def held_by(frames: Any, y: Any, response_at: str | None) -> str:  # noqa: ANN401 - whatever a user passes
    """Return whose frame has the response; refuse frames of which two or none have it, or another one than ``response_at`` says."""
    held = [name for name, frame in frames.items() if y in columns_of(frame)]
    if len(held) != 1 or response_at not in {None, held[0]}:
        where = f"{listed(held)} have it" if held else "none has it"
        msg = f"the response {y!r} must be a column of one frame (of {response_at!r}, if response_at says so): {where}"
        raise UsageError(msg)
    return str(held[0])


def joint_cards(
    groups: Mapping[str, Sequence[str]],
    declared: Sequence[Column],
    response: Column | None,
    rows: int,
    holder: str,
    check: str,
) -> tuple[Card, ...]:
    """Return the cards of parties that each hold some of the declared columns, and the holder of the response with it."""
    columns = {column.name: column for column in declared}
    joint = ALLOWED if check == PROOF else TRUSTING
    return tuple(
        Card(
            name,
            rows,
            (*(columns[own] for own in held), *([response] if response is not None and name == holder else [])),
            joint=joint,
        )
        for name, held in groups.items()
    )


def helped(study: Study, helpers: int) -> Study:
    """Return the study with this number of helpers that hold no data."""
    if helpers not in {0, 1}:
        raise UsageError(
            "helpers must be 1 (an organisation without data) or 0 (three parties or more help each other): three helpers have no proof yet"
        )
    return msgspec.structs.replace(study, helpers=(HelperCard(_HELPER),) * helpers)


def joint_tables(study: Study, features: Table, response: NDArray[Any] | None) -> dict[str, Table]:
    """Return the table of every party, the response at its holder alone."""
    whole = part(features, features.names, response)
    return {card.name: Table({column.name: whole[column.name] for column in card.columns}) for card in study.parties}
