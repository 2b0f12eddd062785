"""The proof that a row is somebody's or nobody's, at a place of one's own (Theorem H.3): fair rows pass, and every known cheat fails.

Each cheat is run against the product and against the proof of short rows alone, where it passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from unpooled.errors import UsageError
from unpooled.kernels.field import MODULUS, encode, four_squares
from unpooled.privacy.masks import masked
from unpooled.privacy.places import foreign_of
from unpooled.products import placed_rows
from unpooled.products.placed_rows import Carried, PlacedBlock, placed
from unpooled.products.prover import evaluate, judge, prove
from unpooled.products.short_rows import ROOTS, BlockShape, ProofPlace

pytestmark = pytest.mark.guarantee
PLACE = ProofPlace("plan", "run", "b", "a", "h", 0)
MASKS, SECRET = bytes(range(32)), bytes(range(32, 64))
COLUMNS, LENGTH = 3, 900
SHAPES = [(own, apart) for own in Carried for apart in (False, True)]


@dataclass(frozen=True, slots=True)
class Forged(PlacedBlock):
    """A prover that writes whatever it wants where rows and their roots stand, by the rules otherwise."""

    words: Any = None

    def completed(self, rows: np.ndarray) -> np.ndarray:
        return self.words


def fair(own: Carried, rows: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Placed rows, every second of them of nobody, and the places that are not the sender's."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-500, 500, (rows, COLUMNS))
    present = np.arange(rows) % 2 == 0
    return placed(x, present, own), foreign_of(np.flatnonzero(np.arange(rows) % 4 != 3), 0, rows)


def shape_of(own: Carried, *, apart: bool, rows: int = 12) -> PlacedBlock:
    return PlacedBlock.of(rows, COLUMNS, LENGTH**2, own, apart=apart)


def accepted(shape: PlacedBlock, rows: np.ndarray, foreign: np.ndarray, at_helper: np.ndarray | None = None) -> bool:
    """Whether the judge accepts rows of this shape; a forged one is judged by the honest shape of the same size."""
    honest = PlacedBlock.of(shape.rows, shape.inner, shape.square, shape.own, apart=shape.apart)
    to_judge, to_helper = prove(PLACE, shape, rows, MASKS, SECRET, foreign)
    found = evaluate(PLACE, honest, MASKS, to_helper, foreign if at_helper is None else at_helper)
    return judge(PLACE, honest, masked(rows, MASKS), to_judge, found).accepted


def forged(shape: PlacedBlock, rows: np.ndarray, roots: np.ndarray | None = None) -> Forged:
    """A prover of these rows, with roots that fit wherever some fit."""
    x = rows[:, 1 : 1 + shape.inner]
    lacks = shape.square * rows[:, :1] - (x**2 if shape.apart else (x**2).sum(axis=1, keepdims=True))
    if roots is None:
        roots = np.concatenate([four_squares(np.maximum(lack, 0)) for lack in lacks.T], axis=1)
    words = np.concatenate((encode(rows), encode(roots)), axis=1)
    return Forged(shape.rows, shape.columns, shape.square, shape.inner, shape.own, shape.apart, words)


@pytest.mark.parametrize(("own", "apart"), SHAPES)
def test_fair_rows_and_empty_places_are_accepted(own: Carried, apart: bool) -> None:
    rows, foreign = fair(own)
    shape = shape_of(own, apart=apart)
    assert accepted(shape, rows, foreign)
    assert accepted(shape, np.zeros_like(rows), np.ones_like(foreign))
    assert accepted(forged(shape, rows), rows, foreign)  # forging by itself changes nothing


def cheats(own: Carried) -> dict[str, np.ndarray]:
    """Fair rows of which one is not, by the name of the cheat."""
    rows, _ = fair(own)
    found = {}
    for name, at, change in (
        ("a presence of -1", 0, lambda row: row * np.r_[-1, np.ones(row.size - 1, int)]),
        ("a presence of 2", 0, lambda row: row * np.r_[2, np.ones(row.size - 1, int)]),
        ("columns of nobody", 1, lambda row: row + np.r_[0, 5, np.zeros(row.size - 2, int)]),
        ("at a place of another", 3, lambda row: row + np.r_[1, np.zeros(row.size - 1, int)]),
        ("too long", 0, lambda row: row * 0 + placed(np.array([[LENGTH + 1, 0, 0]]), np.array([True]), own)[0]),
    ):
        found[name] = rows.copy()
        found[name][at] = change(rows[at])
    if own is not Carried.NONE:
        for name, change in (
            ("products with another sign", lambda u: -u),
            ("a product off by one", lambda u: u + np.eye(1, u.size, dtype=int)[0]),
        ):
            found[name] = rows.copy()
            found[name][0, 1 + COLUMNS :] = change(rows[0, 1 + COLUMNS :])
        found["products of nobody"] = rows.copy()
        found["products of nobody"][1, 1 + COLUMNS] = 7
    return found


@pytest.mark.parametrize(("own", "apart"), SHAPES)
def test_every_cheat_is_rejected(own: Carried, apart: bool) -> None:
    _, foreign = fair(own)
    shape = shape_of(own, apart=apart)
    for name, rows in cheats(own).items():
        assert not accepted(forged(shape, rows), rows, foreign), name


def test_the_proof_of_short_rows_alone_accepts_a_negative_person_anywhere() -> None:
    """The control: presence, columns and products proven short each by itself, as rows with gaps are (Theorem J.13)."""
    rows = cheats(Carried.ALL)["a presence of -1"]
    rows[0, 1 + COLUMNS :] *= -1
    rows[3] = rows[0]  # a place that is not the sender's
    for columns in (slice(0, 1), slice(1, 1 + COLUMNS), slice(1 + COLUMNS, None)):
        part = np.ascontiguousarray(rows[:, columns])
        shape = BlockShape(len(part), part.shape[1], int((part**2).sum(axis=1).max()))
        to_judge, to_helper = prove(PLACE, shape, part, MASKS, SECRET)
        assert judge(PLACE, shape, masked(part, MASKS), to_judge, evaluate(PLACE, shape, MASKS, to_helper)).accepted


def test_roots_modulo_the_prime_are_rejected() -> None:
    """A row far too long has four roots in the field: their signed sums are out of range."""
    shape = shape_of(Carried.NONE, apart=False)
    rows, foreign = fair(Carried.NONE)
    rows[0, 1] = 2**33  # its square less L^2 is minus a square modulo p
    lack = (shape.square - int(rows[0, 1]) ** 2 - int((rows[0, 2:] ** 2).sum())) % MODULUS
    roots = forged(shape, rows * 0).words[:, -ROOTS:].copy()
    fair_words = forged(shape, fair(Carried.NONE)[0]).words
    roots[1:] = fair_words[1:, -ROOTS:]
    first = next(k for k in range(1, 100) if pow((lack - k * k) % MODULUS, (MODULUS - 1) // 2, MODULUS) == 1)
    roots[0] = [first, pow((lack - first * first) % MODULUS, (MODULUS + 1) // 4, MODULUS), 0, 0]
    words = np.concatenate((encode(rows), roots), axis=1)
    assert int(roots[0, 0]) ** 2 % MODULUS + int(roots[0, 1]) ** 2 % MODULUS in {lack, lack + MODULUS}
    forging = Forged(shape.rows, shape.columns, shape.square, shape.inner, shape.own, shape.apart, words)
    with pytest.raises(AssertionError):  # it never finds sums in range, so it has nothing to send
        accepted(forging, rows, foreign)


@pytest.mark.parametrize("present", [True, False])
def test_a_helper_with_other_places_is_rejected_whatever_is_there(present: bool) -> None:
    """So its lie tells it nothing of who is present."""
    x = np.full((4, COLUMNS), 3)
    rows = placed(x, np.full(4, present), Carried.ALL)
    shape = shape_of(Carried.ALL, apart=False, rows=4)
    honest = np.zeros(4, dtype=np.uint64) if present else np.ones(4, dtype=np.uint64)
    for row in range(4):
        lie = honest.copy()
        lie[row] = 1 - lie[row]
        assert accepted(shape, rows, honest)
        assert not accepted(shape, rows, honest, lie)


def test_without_the_equation_of_places_a_liar_is_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: if s counted for nothing, presence at a place of another would be accepted."""
    real = placed_rows.PlacedBlock.weights

    def without(self: PlacedBlock, coin: bytes) -> Any:
        return replace(real(self, coin), foreign=np.zeros((1, 2), dtype=np.uint64))

    rows, foreign = fair(Carried.ALL)
    rows[3] = placed(np.array([[1, 2, 3]]), np.array([True]), Carried.ALL)[0]
    shape = forged(shape_of(Carried.ALL, apart=False), rows)
    assert not accepted(shape, rows, foreign)
    monkeypatch.setattr(placed_rows.PlacedBlock, "weights", without)
    assert accepted(shape, rows, foreign)


def test_what_is_no_placed_row_is_refused_before_anything_is_sent() -> None:
    shape = shape_of(Carried.ALL, apart=False)
    rows, foreign = fair(Carried.ALL)
    for name, wrong in cheats(Carried.ALL).items():
        if name != "at a place of another":  # which the prover itself knows nothing of
            with pytest.raises(UsageError):
                shape.completed(wrong)
    for places in (None, foreign[:-1], foreign.astype(np.int64), foreign * 2):
        with pytest.raises(UsageError, match="place of every row"):
            prove(PLACE, shape, rows, MASKS, SECRET, places)
    with pytest.raises(UsageError, match="knows nothing of places"):
        prove(PLACE, BlockShape(12, 2, 100), np.ones((12, 2), dtype=np.int64), MASKS, SECRET, foreign)


def test_shapes_of_other_statements_have_other_bytes() -> None:
    found = [shape_of(own, apart=apart) for own, apart in SHAPES] + [BlockShape(12, 4, LENGTH**2)]
    assert len({shape.bytes() for shape in found}) == len(found)


def test_the_places_of_a_block_are_those_of_the_link() -> None:
    given = np.array([0, 3, 4, 9])
    assert foreign_of(given, 2, 6).tolist() == [1, 0, 0, 1]
    assert foreign_of(given, 0, 1).tolist() == [0]
    assert foreign_of(given[:0], 0, 3).tolist() == [1, 1, 1]
