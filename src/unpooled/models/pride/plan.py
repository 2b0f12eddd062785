"""Budget to releases: one perturbed sketch per party (THEORY.md, section 2), coefficients where they are published, and every message."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from scipy.fft import dct

from unpooled.errors import UsageError
from unpooled.inference.priors import assumed, check_models
from unpooled.kernels.hadamard import Srht
from unpooled.models.pride.declared import JointFamily, Parameters, automatic_size, check_sizes, most_columns
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Coding
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach, ScaledGaussian
from unpooled.privacy.origin import PRIOR
from unpooled.privacy.plan import Card, Plan, Release, Study, check_parameters
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.unit import Adjacency, Split, Unit
from unpooled.protocol.messages import Disclosed, Entrusted, Public, Released

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.mechanisms import Mechanism
    from unpooled.privacy.table import Table
    from unpooled.protocol.context import Context


# --- Messages --------------------------------------------------------------------------------------------------------------
# Everything that may leave a party: its perturbed sketch, columns declared public, and (not private) cross-validation scores.


class Sketch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Step "sketch": Z_k = X_k Pi_k + W_k of the private columns (none or one), and the public columns plain (none or one)."""

    sketch: tuple[Released, ...]
    disclosed: tuple[Disclosed, ...]


class Received(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The messages of one party that the coordinator passes on: the same bytes to everybody."""

    party: str
    sketch: tuple[Released, ...]
    disclosed: tuple[Disclosed, ...]


class EstimateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sketches of the other parties, and a penalty where the coordinator has chosen it (global cross-validation)."""

    received: tuple[Received, ...]
    alpha: float | None = None


class Estimated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Step "estimate": the coefficients stay; only their private publication, if it was asked for, leaves."""

    published: tuple[Released, ...]


class FoldsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Global cross-validation: fit these penalties on every training fold."""

    received: tuple[Received, ...]
    alphas: tuple[float, ...]


class Folds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Step "folds": held-out contributions of the party's own block, one row per penalty. NOT private."""

    contributions: Entrusted


class ScoreRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contributions of all parties added up."""

    contributions: Entrusted


class PenaltyLosses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Step "score": the loss of every penalty, from a party that knows the response. NOT private."""

    losses: Entrusted


class PredictRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """New rows: their sketches from the other parties. Whose coefficients to use stands in the plan."""

    received: tuple[Received, ...]


class Predicted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Step "predict": the predictions stay at the party."""

    rows: Public[int]


# --- Sketch ----------------------------------------------------------------------------------------------------------------
# The public matrices Pi, and how far one unit moves a row of X Pi (THEORY.md, section 2).
#
# A sketch is an integer matrix: the SRHT's entries are :math:`\pm1` (times :math:`1/\sqrt m`), every other Pi is rounded to a grid of
# :math:`2^{-bits}`. Coded data are integers too, so X Pi is exact, and its sensitivity is that of the very numbers released.

#: Sums that stay below this are exact in a float64 matrix product.
_EXACT = 2.0**53


@dataclass(frozen=True)
class PublicSketch:
    """One party's Pi (coded columns x m): integer entries ``integers * unit``, or an SRHT whose entries are +-1 * unit."""

    size: int
    unit: float
    #: Largest absolute value of the coded data.
    grid: int
    srht: Srht | None = None
    integers: NDArray[np.float64] | None = None
    #: The matrix before it was rounded to integers: what the noise-free algorithm uses.
    exact: NDArray[np.float64] | None = None

    @classmethod
    def draw(
        cls,
        kind: str,
        features: int,
        size: int,
        seed: int,
        *,
        grid: int,
        shape: tuple[int, ...] = (),
        matrix: NDArray[np.float64] | None = None,
    ) -> PublicSketch:
        """Return the sketch of this kind for ``features`` coded columns; ``grid`` is the coded data's largest absolute value."""
        if kind == "srht":
            return cls(size, 1 / math.sqrt(size), grid, srht=Srht.draw(features, size, seed))
        if kind == "gaussian":
            matrix = np.random.default_rng(seed).standard_normal((features, size)) / math.sqrt(size)
        elif kind == "dct":
            matrix = low_frequencies(shape or (features,), size)
        elif kind != "matrix":
            msg = f"unknown sketch {kind!r}: choose srht, gaussian, dct or matrix"
            raise UsageError(msg)
        if matrix is None or matrix.shape != (features, size) or not np.isfinite(matrix).all() or not matrix.any():
            msg = f"the sketch of a party with {features} private coded columns must be a finite, non-zero matrix of that many rows"
            raise UsageError(msg)
        # As fine a grid as keeps every sum below 2^53.
        largest = float(np.abs(matrix).sum(axis=0).max()) * grid
        bits = min(24, math.floor(math.log2(_EXACT / 2 / largest)))
        return cls(size, 2.0**-bits, grid, integers=np.trunc(matrix * 2.0**bits), exact=matrix)

    def apply(self, coded: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return exact integers X Pi / unit of a block of coded rows."""
        if self.srht is not None:
            return np.asarray(self.srht.apply(coded.astype(np.int32), bound=self.grid), dtype=np.int64)
        assert self.integers is not None
        return (coded.astype(np.float64) @ self.integers).astype(np.int64)

    def apply_real(self, real: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return X Pi of real rows, for the noise-free algorithm."""
        if self.srht is not None:
            product: NDArray[np.float64] = self.srht.apply(real)
            return product
        assert self.exact is not None
        return real @ self.exact

    # --- what one unit moves, in integers (units of ``unit`` times the data's grid) --------------------------------------

    def row(self, j: int) -> NDArray[np.float64]:
        """Row j of Pi in integers."""
        if self.integers is not None:
            row: NDArray[np.float64] = self.integers[j]
            return row
        assert self.srht is not None
        parity = np.array([int(j & int(c)).bit_count() & 1 for c in self.srht.columns])
        return np.where(parity == 1, -1.0, 1.0) * float(self.srht.signs[j])

    def row_norm(self, j: int) -> float:
        """Return its length; exactly sqrt(m) for an SRHT (Theorem P.1)."""
        return math.sqrt(self.size) if self.integers is None else float(np.linalg.norm(self.integers[j]))

    @property
    def operator_norm(self) -> float:
        """Return the largest stretch of any row vector: sqrt(P) for an SRHT (columns are distinct) (Theorem P.2)."""
        if self.srht is not None:
            return math.sqrt(self.srht.padded)
        assert self.integers is not None
        # A hair more than computed, so that rounding cannot make it too small.
        return float(np.linalg.norm(self.integers, 2)) * (1 + 1e-9)

    @property
    def mean_square(self) -> float:
        """Return the mean squared length of a row of Pi: the share of the energy of unrelated columns that it keeps."""
        if self.srht is not None:
            return 1.0
        assert self.exact is not None
        return float((self.exact**2).sum(axis=1).mean())

    @property
    def is_isometry(self) -> bool:
        """Return True if Pi Pi' = I, so that X Pi has the Gram matrix of X."""
        if self.srht is not None:
            return self.size == self.srht.padded
        assert self.exact is not None
        return np.allclose(self.exact @ self.exact.T, np.eye(self.exact.shape[0]), rtol=0, atol=1e-12)

    def attribute_reach(self, column: Column, first: int) -> float:
        """Return the sensitivity of a sketched row to one value of ``column``, whose coded columns begin at ``first`` (data grid = 1).

        The distance is convex in both values, so its maximum is over the extreme points of what the value is coded to: the two ends
        of the range (and zero or the indicator when it may be missing); for categories every pair of them, and a missing one.
        """
        if column.categories is None and column.missing != "indicator":
            return 2 * self.row_norm(first)
        extremes: list[NDArray[np.float64]] = []
        if column.categories is None:
            extremes += [self.row(first), -self.row(first)]
        else:
            extremes += [self.row(first + c) for c in range(len(column.categories))]
        if column.missing == "absent":
            extremes.append(np.zeros(self.size))
        elif column.missing == "indicator":
            extremes.append(self.row(first + len(extremes) - (column.categories is None)))
        return max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(extremes, 2))

    def record_reach(self, columns: Sequence[Column], firsts: Sequence[int]) -> float:
        """Return the sensitivity of a sketched row to a whole row, without clipping: the smaller of two bounds (data grid = 1)."""
        diameters = [2.0 if c.categories is None else math.sqrt(2.0) for c in columns]
        return min(
            self.operator_norm * math.sqrt(math.fsum(d * d for d in diameters)),
            math.fsum(self.attribute_reach(c, f) for c, f in zip(columns, firsts, strict=True)),
        )


def low_frequencies(shape: tuple[int, ...], size: int) -> NDArray[np.float64]:
    """Return the ``size`` lowest frequencies of an orthonormal DCT-II over an axis or a grid, one basis vector per column.

    Frequencies of a grid are ordered by f1^2/n1^2 + f2^2/n2^2; ties by the first index. Columns are the row-major cells.
    """
    if len(shape) not in (1, 2) or math.prod(shape) < size:
        msg = f"a DCT basis of {size} vectors needs one or two axes with at least as many cells, not {shape}"
        raise UsageError(msg)
    axes = [dct(np.eye(n), norm="ortho", axis=0) for n in shape]  # row f is the basis vector of frequency f
    frequencies = sorted(
        itertools.product(*(range(n) for n in shape)),
        key=lambda f: (sum((x / n) ** 2 for x, n in zip(f, shape, strict=True)), f),
    )[:size]
    basis = np.empty((math.prod(shape), size))
    for j, frequency in enumerate(frequencies):
        vector = axes[0][frequency[0]]
        basis[:, j] = vector if len(shape) == 1 else np.outer(vector, axes[1][frequency[1]]).ravel()
    return basis


# --- Plan ------------------------------------------------------------------------------------------------------------------
# Budget to releases: one perturbed sketch per party (THEORY.md, section 2), and coefficients where they are published.

SKETCH, FOLDS, SCORE, ESTIMATE, PREDICT = "sketch", "folds", "score", "estimate", "predict"
COEFFICIENTS = "coefficients"
#: What a party keeps of a solver that stops at a duality gap.
DUALITY_GAP = "duality_gap"
_SHOWN = Sentence(
    "pride.shown",
    "What an estimator shows that runs all parties in one process (coef_, intercept_, alpha_, kept_, predictions, scores). These values are "
    "functions of raw data; between organisations they stay with their party.",
)
_COEFFICIENTS = Sentence(
    "pride.coefficients",
    "The coefficients beta_k. They are functions of raw data and stay with their party; publishing them is another release.",
)
_LOCAL = Sentence(
    "pride.local",
    "A party's model of the other parties' columns. It is computed from the party's own columns and these releases; nothing further is released for it.",
)
_GLOBAL_CV = Sentence(
    "pride.global-cv",
    "A choice of alpha by global cross-validation, which needs raw predictions. The default choice and local cross-validation release nothing.",
)


@dataclass(frozen=True)
class Part:
    """One party's part of a study: its private columns, their coding and sketch, and its public columns."""

    card: Card
    private: Coding
    public: Coding
    sketch: PublicSketch | None
    knows_response: bool
    #: Whether some other party estimates (or predicts) from what this one sends: nothing is planned that nobody reads.
    is_read: bool

    @property
    def firsts(self) -> list[int]:
        """Return the first coded column of every private column."""
        return [int(i) for i in np.searchsorted(self.private.attribute, range(len(self.private.columns)))]


@dataclass(frozen=True)
class Own:
    """A party's private columns as they enter its fit: (coded - mean) / deviation."""

    rows: NDArray[np.float64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]


def coded(part: Part, table: Table) -> Own:
    """As the declared bounds code them."""
    width = len(part.private.attribute)
    blocks = [part.private.real(block) for block in table.blocks(part.private.names)] if width else []
    return Own(np.concatenate(blocks) if blocks else np.empty((table.n_rows, 0)), np.zeros(width), np.ones(width))


def coded_here(context: Context[PrideDesign], part: Part) -> Own:
    """Return the columns of a step's table as the declared bounds code them."""
    return coded(part, context.table)


@dataclass(frozen=True)
class PrideDesign:
    """The design that the model made of a study."""

    parameters: Parameters
    #: What every party holds and sends, in the study's order.
    parts: tuple[Part, ...]
    #: How a party's private columns enter its fit, or its prediction of new rows.
    own: Callable[[Context[PrideDesign], Part], Own] = coded_here
    #: Whether the plan states the noise of the columns that a party receives.
    states_noise: bool = True

    @property
    def models_gram(self) -> bool:
        """Return True if parties model the Gram matrix of the others' columns, which takes noise of a stated size."""
        return self.parameters.noise_model == "gram" and self.states_noise

    def part(self, party: str) -> Part | None:
        """Return the part that one party holds and sends; None for a party that the study does not have."""
        return next((part for part in self.parts if part.card.name == party), None)


def data_grid(features: int) -> int:
    """Return the grid of coded data: 2^16, or what keeps the sum of a row of integers below 2^30."""
    return 1 << min(16, 30 - max(features - 1, 1).bit_length())


def parts_of(study: Study) -> tuple[Part, ...]:
    """Return the parts that every party holds and sends, in the study's order: a function of the public study."""
    parameters = check_parameters(study, Parameters)
    declared, disclosed = {c.name for card in study.parties for c in card.columns}, set(parameters.public)
    for name in parameters.public:
        if name not in declared:
            msg = f"parameters.public names the column {name!r}, which no party declares"
            raise UsageError(msg)
    readers = _readers(study, parameters)
    parts = []
    for card in study.parties:
        private = tuple(c for c in card.columns if c.name not in disclosed)
        public = tuple(c for c in card.columns if c.name in disclosed)
        features = len(Coding(private, 1).attribute)
        grid = data_grid(max(features, 1))
        is_read = bool(readers - {card.name})
        sketch = sketch_of(study, card, features) if is_read else None
        knows = knows_response(parameters, card)
        parts.append(Part(card, Coding(private, grid), Coding(public, grid), sketch, knows, is_read))
    return tuple(parts)


def widths_of(cards: Iterable[Card]) -> dict[str, int]:
    """Return the number of coded columns of every party."""
    return {card.name: len(Coding(card.columns, 1).attribute) for card in cards}


def sketch_of(study: Study, card: Card, features: int) -> PublicSketch | None:
    """Return the public matrix for ``features`` private coded columns of a party; None where the study sends nothing of them."""
    parameters = check_parameters(study, Parameters)
    size = _size(study, parameters, card, features)
    if not size:
        return None
    given = parameters.matrices.get(card.name)
    return PublicSketch.draw(
        parameters.sketch,
        features,
        size,
        study.public_seed * 1_000_003 + [other.name for other in study.parties].index(card.name),
        grid=data_grid(max(features, 1)),
        shape=tuple(parameters.grids.get(card.name, ())),
        matrix=None if given is None else np.array(given, dtype=np.float64),
    )


def sizes_of(design: PrideDesign) -> dict[str, int]:
    """For a study of new rows: sketches as large as those of the fit, whatever the number of rows."""
    return {part.card.name: part.sketch.size if part.sketch else 0 for part in design.parts}


def predictions(study: Study, plan: Plan) -> dict[str, Any]:
    """Return the parameters of the study that predicts new rows with what the parties keep of a study: its own, its plan, its sketches' sizes."""
    parameters = {
        key: value for key, value in study.parameters.items() if key not in {"publish", "folds", "response_bound", PRIOR}
    }
    if parameters.get("alpha") == "global-cv":
        del parameters["alpha"]  # new rows choose no penalty
    parameters |= {"fitted": plan.hash, "sketch_dim": sizes_of(plan.design)}
    estimated = [card.name for card in study.parties if card.labels]
    if len(estimated) < len(study.parties):  # the others only sent, and keep no coefficients
        parameters["predicting"] = estimated
    return parameters


def without_joint_rows(study: Study) -> tuple[Study, str] | None:
    """Return the study of sketches of the same persons, whose response is a label of the party that holds it; None where it is another question."""
    response = study.parameters.get("response")
    holder = next((card.name for card in study.parties if any(c.name == response for c in card.columns)), "")
    if not holder or study.parameters.get("loss") or math.isinf(study.epsilon):
        return None
    cards = tuple(
        msgspec.structs.replace(
            card,
            columns=tuple(c for c in card.columns if c.name != response),
            labels=(str(response),) if card.name == holder else (),
            key="",
        )
        for card in study.parties
    )
    return (
        msgspec.structs.replace(
            study, model="pride", parties=cards, helpers=(), trust={}, parameters={"response": response}, ids=""
        ),
        "PRIDE",
    )


def knows_response(parameters: Parameters, card: Card) -> bool:
    """Return True if a party has the response, and so estimates: all label columns of the family."""
    return all(name in card.labels for name in parameters.labels)


def _label_columns(parameters: Parameters) -> str:
    first, *more = (repr(name) for name in parameters.labels)
    return f"the label columns {first} and {more[0]}" if more else f"a label column {first}"


def _columns(parameters: Parameters) -> str:
    return ("column " if len(parameters.labels) == 1 else "columns ") + " and ".join(map(repr, parameters.labels))


def _readers(study: Study, parameters: Parameters) -> set[str]:
    """Return the parties that estimate, or predict: each reads what all others send."""
    names = {card.name for card in study.parties}
    if parameters.fitted is None:
        return {card.name for card in study.parties if knows_response(parameters, card)}
    if not names.issuperset(parameters.predicting):
        raise UsageError("parameters.predicting names somebody who is no party of the study")
    return set(parameters.predicting) or names


def _size(study: Study, parameters: Parameters, card: Card, features: int) -> int:
    if parameters.sketch == "matrix" and features:
        given = parameters.matrices.get(card.name)
        if given is None:
            msg = f"sketch = 'matrix' needs parameters.matrices.{card.name}"
            raise UsageError(msg)
        return len(given[0])
    wanted = parameters.sketch_dim
    if features == 0:
        return 0
    if isinstance(wanted, str):
        wanted = automatic_size(card.rows, features, study.epsilon)
    if isinstance(wanted, dict):
        if card.name not in wanted:
            msg = f"sketch_dim names the columns of every party's sketch, and none for {card.name!r}"
            raise UsageError(msg)
        wanted = wanted[card.name]
    if wanted == 0:
        return 0
    most = features if parameters.sketch == "dct" else most_columns(features)
    if isinstance(wanted, float):
        return min(max(1, round(min(wanted, 1e9) * features)), most)
    return min(wanted, most) if parameters.sketch != "gaussian" else wanted


# --- calibration ------------------------------------------------------------------------------------------------------


def _mechanism(study: Study, part: Part, senders: Sequence[Part]) -> Mechanism:
    """Return the mechanism of one party's release, given those of all ``senders``."""
    assert part.sketch is not None
    numbers = part.card.rows * part.sketch.size
    if study.epsilon == math.inf:
        return ScaledGaussian.silent(numbers)
    grid, m = part.private.grid, part.sketch.size
    columns = part.private.columns
    attribute = grid * max(part.sketch.attribute_reach(c, f) for c, f in zip(columns, part.firsts, strict=True))
    parameters = check_parameters(study, Parameters)
    mu = budget_mu(study.epsilon, study.delta) * math.sqrt(1 - parameters.publish)
    if Unit(study.unit) is Unit.ATTRIBUTE:
        mu /= math.sqrt(shared_columns(sender.card for sender in senders))
    if Unit(study.unit) is Unit.RECORD:
        # Rows are shortened to C after sketching; a shortened row is then rounded toward zero, by less than 1 per coordinate.
        record = 2.0 * clip_length(study, part)
        attribute = min(attribute + math.sqrt(m), record)
        mu /= math.sqrt(len(senders))
    else:
        record = grid * part.sketch.record_reach(columns, part.firsts)
    reach = {Unit.RECORD: Reach(record, m), Unit.ATTRIBUTE: Reach(attribute, m)}
    return GaussianRelease.calibrated([Block(numbers, 1.0)], reach, Unit(study.unit), mu)


def shared_columns(cards: Iterable[Card]) -> int:
    """At how many of these parties the most widely held column is: changing one of its values moves the releases of all of them."""
    return max(Counter(column.name for card in cards for column in card.columns).values())


def _publication(study: Study, part: Part, estimating: list[Part]) -> Mechanism:
    """Return the release of one party's own coefficients; an attribute moves those of the parties that hold it, a record those of all."""
    parameters = check_parameters(study, Parameters)
    # Of several classes, every column has a coefficient for each.
    several = len(parameters.classes) if isinstance(parameters.law, JointFamily) else 1
    size = (len(part.private.attribute) + len(part.public.attribute)) * several
    if study.epsilon == math.inf:
        return ScaledGaussian.silent(size)
    mu = budget_mu(study.epsilon, study.delta) * math.sqrt(parameters.publish)
    moved = len(estimating) if Unit(study.unit) is Unit.RECORD else shared_columns(p.card for p in estimating)
    mu /= math.sqrt(moved)
    return ScaledGaussian(size, ((Unit.RECORD, mu), (Unit.ATTRIBUTE, mu)), 1 / mu)


def coefficients_reach(part: Part, rows: int, parameters: Parameters, received: NDArray[np.float64]) -> float:
    r"""Return the sensitivity of the solution to one person's row: a closed form of the plan and of what was received (THEORY.md, section 7: Theorems P.5 and P.11).

    The objective is alpha-strongly convex, so the solution moves by at most 2 sup|grad f| / alpha. Rows of the design have length
    at most R, R^2 = (own coded columns) + max_i |received_i|^2. Where |f'| <= L: |grad f| <= L R. Squared loss: |b| <= Y sqrt(n / alpha)
    because the objective at b is at most its value at 0, so |grad f| <= R (R Y sqrt(n / alpha) + Y).
    """
    assert not isinstance(parameters.alpha, str)
    # A one-hot group has length 1, as a numeric column has; an indicator replaces its column.
    own = len(part.private.columns) + len(part.public.columns)
    longest = math.sqrt(own + float((received**2).sum(axis=1).max(initial=0.0)))
    law = parameters.law
    if isinstance(law, JointFamily):
        return 2 * longest * law.pull / parameters.alpha * (1 + 1e-9)
    steepest = law.steepest(math.inf if parameters.response_bound is None else parameters.response_bound)
    slope = longest * steepest * unit_of(parameters, np.empty(0))
    if slope == math.inf:
        assert parameters.response_bound is not None
        slope = longest * parameters.response_bound * (longest * math.sqrt(rows / parameters.alpha) + 1)
    return 2 * slope / parameters.alpha * (1 + 1e-9)


def unit_of(parameters: Parameters, response: NDArray[np.float64]) -> float:
    """Return the unit by which the response is divided before the fit: public where a threshold is declared."""
    law = parameters.law
    if isinstance(law, JointFamily):
        return 1.0
    return parameters.threshold / parameters.unit_threshold if parameters.threshold else law.unit(response)


def clip_length(study: Study, part: Part) -> int:
    """Return the bound C on a sketched row, in the integers of the sketch (Theorem P.2)."""
    assert part.sketch is not None
    parameters = check_parameters(study, Parameters)
    bound = parameters.clip_norm
    if bound is None:
        bound = 1.25 * math.sqrt(len(part.private.attribute) / 3)
    return max(1, math.floor(bound * part.private.grid / part.sketch.unit))


def compile_plan(study: Study) -> Plan:
    """Return the plan of a PRIDE study."""
    parameters = check_parameters(study, Parameters)
    check(study, parameters)
    parts = parts_of(study)
    senders = [part for part in parts if part.sketch is not None]
    releases = [Release(SKETCH, part.card.name, SKETCH, _mechanism(study, part, senders)) for part in senders]
    if parameters.publish and parameters.fitted is None:
        estimating = [part for part in parts if part.knows_response]
        releases += [Release(COEFFICIENTS, p.card.name, ESTIMATE, _publication(study, p, estimating)) for p in estimating]
    return plan_of(study, tuple(releases), PrideDesign(parameters, parts))


def check(study: Study, parameters: Parameters) -> None:
    """Refuse what no form of PRIDE does."""
    if Adjacency(study.adjacency) is not Adjacency.REPLACE:
        raise UsageError(
            "rows of a vertical study are aligned and visible, so a row cannot vanish: adjacency must be 'replace'"
        )
    rows = {card.rows for card in study.parties}
    if len(rows) != 1:
        raise UsageError(
            "the parties of a vertical study must hold the same rows, in the same order: their cards differ in number"
        )
    allowed = {"cross-validation": "trusted"} if parameters.alpha == "global-cv" else {}
    if study.trust != allowed:
        msg = (
            "alpha = 'global-cv' sends raw predictions: the study must say [trust] cross-validation = 'trusted'"
            if allowed
            else f"PRIDE needs no trust; remove {', '.join(study.trust)}"
        )
        raise UsageError(msg)
    if not any(knows_response(parameters, card) for card in study.parties) and parameters.fitted is None:
        msg = f"no party has {_label_columns(parameters)}: somebody must know the response"
        raise UsageError(msg)
    if parameters.sketch == "gaussian":  # the others end at the size of their transform, whatever is asked
        check_sizes(parameters.sketch_dim, widths_of(study.parties))
    columns = {column.name: column for card in study.parties for column in card.columns}
    check_models(parameters.prior, Coding(tuple(columns.values()), 1).coded_names, intercept=True)


def plan_of(study: Study, releases: tuple[Release, ...], design: PrideDesign) -> Plan:
    """Return the plan of these releases with everything that a statement says about them, in any form of the model."""
    parameters = design.parameters
    public = tuple(
        Sentence("pride.public-column", "The column {name}, which the study declares public.", name=repr(name))
        for name in parameters.public
    )
    voids: tuple[Sentence, ...] = ()
    trusted: tuple[Sentence, ...] = ()
    if parameters.alpha == "global-cv":
        voids = (
            Sentence(
                "pride.global-cv-raw",
                "Global cross-validation sends held-out predictions, which are raw functions of the data, to the coordinator. It is not private.",
            ),
        )
        trusted = (
            Sentence("trusted.coordinator", "the coordinator"),
            Sentence("trusted.scorer", "the party that scores penalties"),
        )
    return Plan(
        study,
        Split.VERTICAL,
        releases,
        public,
        assumptions=assumed(study, parameters.prior),
        voids=voids,
        trusted=trusted,
        not_protected=(
            Sentence(
                "pride.labels",
                "The labels ({columns}). Every estimating party has its own copy; nobody else gets one.",
                columns=_columns(parameters),
            ),
            _COEFFICIENTS,
            *([_LOCAL] if design.models_gram else []),
            _SHOWN,
            _GLOBAL_CV,
        ),
        design=design,
    )
