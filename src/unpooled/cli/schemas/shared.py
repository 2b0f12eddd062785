"""The parts that outputs of several commands share. Numbers that are infinite or unknown are null, as JSON has no word for them."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

#: A number, or null where it is infinite or not known.
Number = Annotated[float | None, Meta(description="A number; null where it is infinite or not known.")]
#: The hash of a plan.
Hash = Annotated[str, Meta(description="The hash of the plan, in hexadecimal digits.")]
#: A file or folder.
Path = Annotated[str, Meta(description="A path, as the command was given it or found it.")]
#: An epsilon in a ledger.
Spent = Annotated[
    float | Literal["unbounded"], Meta(description='An epsilon; "unbounded" where the cost of a study is not known.')
]


class Section(msgspec.Struct, forbid_unknown_fields=True):
    """A part of an output; it has these keys and no others."""


class Output(msgspec.Struct, forbid_unknown_fields=True, tag_field="schema"):
    """An output of a command; its first key, ``schema``, holds its name and version."""


class StatementData(Section):
    """The privacy statement of a plan: the guarantee, and all that it rests on."""

    holds: bool
    unit: str
    adjacency: str
    calibration: str
    epsilon: Number
    delta: float
    epsilon_per_unit: Annotated[
        dict[str, float | None],
        Meta(description="The smallest epsilon that is proved at this delta, for each unit; null: none is."),
    ]
    failure: Annotated[float | None, Meta(description="A bound on the probability that the loss exceeds epsilon.")]
    protects_against: str
    not_protected: list[str]
    assumptions: list[str]
    warnings: list[str]
    plan: Hash
    links: Annotated[bool, Meta(description="Whether the study links rows; then it tells membership exactly.")]
    hidden: list[str]
    only_against: Annotated[
        str, Meta(description="The only ones against whom it protects, where a proof was left out; empty: no such limit.")
    ]
    headline: str
    reading: Annotated[str, Meta(description="The meaning of epsilon for a person; empty where nothing is promised.")]


class TermData(Section):
    """A line of a result. What a model does not know is null."""

    term: str
    estimate: Number
    std_error: Number
    statistic: Number
    p_value: Number
    conf_low: Number
    conf_high: Number
    privacy: Annotated[float | None, Meta(description="The part of the standard error that privacy adds.")]
    group: Annotated[str, Meta(description="The party or source that the line belongs to; empty: none.")]


class TrafficData(Section):
    """The bytes that one party was sent, and that were received from it."""

    sent: int
    received: int


class FormatData(Section):
    """The way in which a data file is written; a key that is missing has its default."""

    separator: str | UnsetType = UNSET
    decimal: str | UnsetType = UNSET
    encoding: str | UnsetType = UNSET
    quote: str | UnsetType = UNSET
    dates: str | UnsetType = UNSET
    nulls: list[str] | UnsetType = UNSET
    sheet: str | UnsetType = UNSET


class BudgetData(Section):
    """The total that all studies together may spend."""

    epsilon: Number
    delta: float
    unit: str
