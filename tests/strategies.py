"""Hypothesis strategies for what the library is made of: messages, coded tables, studies, ledger histories, secure sums.

Examples follow from the test's own text, so a failure comes again; `make test-full` tries twenty times as many.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from world import sized

from unpooled.privacy.bounds import Coding, Column
from unpooled.privacy.events import Event, Kind
from unpooled.protocol.messages import Array, Disclosed, Entrusted, Partial, Public, Released, Sealed, Signed


def examples(count: int) -> settings:
    """So many examples in `make test`."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        deadline=None, derandomize=True, database=None, max_examples=sized(20 * count, count), suppress_health_check=slow
    )


# --- messages ---------------------------------------------------------------------------------------------------------------


class Everything(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reply with every kind of field that may leave a party."""

    count: Public[int]
    share: Public[float]
    names: Public[tuple[str, ...]]
    released: Released
    several: tuple[Released, ...]
    signed: Signed
    sealed: Sealed
    partial: Partial
    entrusted: Entrusted
    disclosed: Disclosed


words = st.text(max_size=12)
whole = st.integers(-(2**63), 2**63 - 1)


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    dtype = draw(st.sampled_from(["<i8", "<i4", "<u8", "<f8", "<f4", "|u1"]))
    return Array.of(draw(hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))))


released = st.builds(Released, words, whole, arrays())
replies = st.builds(
    Everything,
    st.builds(Public, whole),
    st.builds(Public, st.floats(allow_nan=False)),
    st.builds(Public, st.lists(words, max_size=3).map(tuple)),
    released,
    st.lists(released, max_size=2).map(tuple),
    st.builds(Signed, words, words),
    st.builds(Sealed, words, st.binary(max_size=20), st.binary(max_size=8)),
    st.builds(Partial, words, whole, arrays()),
    st.builds(Entrusted, words, arrays()),
    st.builds(Disclosed, st.lists(words, max_size=2).map(tuple), arrays()),
)
#: The plan's hash, the step, the index and the body of a message.
messages = st.tuples(st.binary(min_size=32, max_size=32).map(bytes.hex), words, whole, replies)


# --- tables and how they are coded -------------------------------------------------------------------------------------------

rules: st.SearchStrategy[Literal["refuse", "absent", "indicator"]] = st.sampled_from(["refuse", "absent", "indicator"])


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    if draw(st.booleans()):
        categories = draw(st.lists(st.sampled_from("abcdef"), min_size=2, max_size=4, unique=True))
        return Column(name, categories=tuple(categories), missing=draw(rules))
    low = draw(st.floats(-1e9, 1e9))
    return Column(name, low, low + draw(st.floats(1e-3, 1e9)), missing=draw(rules))


@dataclass(frozen=True)
class Coded:
    """Raw columns and the coding that is declared for them; some values may be missing, or of no declared category."""

    coding: Coding
    block: tuple[np.ndarray, ...]

    @property
    def present(self) -> np.ndarray:
        """Which values are there, found one by one."""
        found = [
            [value in column.categories if column.categories else not math.isnan(value) for value in raw.tolist()]
            for column, raw in zip(self.coding.columns, self.block, strict=True)
        ]
        return np.array(found).T

    @property
    def may_be_coded(self) -> bool:
        whole = self.present.all(axis=0)
        return all(found or column.missing != "refuse" for column, found in zip(self.coding.columns, whole, strict=True))


@st.composite
def coded_tables(draw: st.DrawFn) -> Coded:
    declared = tuple(draw(columns(f"x{j}")) for j in range(draw(st.integers(1, 5))))
    rows, holes = draw(st.integers(1, 6)), draw(st.booleans())
    block = []
    for column in declared:
        missing = holes and (column.missing != "refuse" or draw(st.integers(0, 3)) == 0)
        if column.categories:
            values = st.sampled_from([*column.categories, *([None, "of no category"] if missing else [])])
            block.append(np.array(draw(st.lists(values, min_size=rows, max_size=rows)), dtype=object))
        else:
            ends = st.sampled_from([*column.range, column.centre, math.inf, -math.inf, 0.0])
            values = ends | st.floats(allow_nan=missing) | (st.just(math.nan) if missing else ends)
            block.append(np.array(draw(st.lists(values, min_size=rows, max_size=rows))))
    grid = draw(st.sampled_from([1, 8, 1000, 1 << 20, 1 << 30]))
    return Coded(Coding(declared, grid, draw(st.none() | st.sampled_from([1e-6, 0.5, 1.0, 3.0, 1e9]))), tuple(block))


# --- studies ------------------------------------------------------------------------------------------------------------------


# --- ledger histories ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Act:
    """One thing that happens to a ledger: places of a plan that are reserved, or answered; or that it is opened anew."""

    kind: Literal["reserve", "other data", "commit", "reopen"]
    places: tuple[int, ...] = ()


#: What each place of a plan costs: several small ones, and some that hardly fit.
PRICES = (
    Event(Kind.GAUSSIAN, 0.05),
    Event(Kind.GAUSSIAN, 0.1),
    Event(Kind.PURE, 0.2),
    Event(Kind.ZCDP, 0.005),
    Event(Kind.EXPONENTIAL, 0.1, 3),
    Event(Kind.GAUSSIAN, 0.2, 2),
    Event(Kind.PURE, 0.9),
    Event(Kind.GAUSSIAN, 0.24),
)
places = st.integers(0, len(PRICES) - 1)
acts = st.one_of(
    st.lists(places, min_size=1, max_size=3).map(lambda some: Act("reserve", tuple(some))),
    st.lists(places, min_size=1, max_size=3).map(lambda some: Act("reserve", tuple(some))),
    places.map(lambda place: Act("other data", (place,))),
    places.map(lambda place: Act("commit", (place,))),
    st.just(Act("reopen")),
)
histories = st.lists(acts, min_size=1, max_size=12)


# --- secure sums ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sum:
    """So many parties add up, so many of which may be lost; who is lost at which step."""

    parties: int
    tolerate: int
    lost: Mapping[str, frozenset[int]]

    @property
    def gone(self) -> frozenset[int]:
        return frozenset().union(*self.lost.values())


@st.composite
def sums(draw: st.DrawFn) -> Sum:
    parties = draw(st.integers(3, 9))
    tolerate = draw(st.integers(0, parties - 2))
    gone = draw(st.lists(st.integers(0, parties - 1), max_size=min(parties - 1, tolerate + 2), unique=True))
    early = draw(st.integers(0, len(gone)))
    return Sum(parties, tolerate, {"keys": frozenset(gone[:early]), "moments-fragment": frozenset(gone[early:])})
