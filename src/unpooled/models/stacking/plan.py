"""Plan of a stack: one perturbed fit per low-level model, what the high-level model needs, and every message."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.inference.coding import check_formula, formula_columns
from unpooled.linear.layout import symmetric
from unpooled.models.stacking.declared import (
    AUTO,
    BLOCK,
    GRID,
    HIGH,
    LOW,
    META,
    META_ROLE,
    PREDICTIONS,
    REST,
    SCALE,
    SHORTEN,
    UNIT_ROWS,
    Fit,
    Meta,
    Noise,
    Outcomes,
    Parameters,
    Perturb,
    by_law,
    check_way,
    combiner_of,
    fits,
    parameters_of,
    penalty_of,
    rates_of,
)
from unpooled.models.stacking.low_level import (
    LowLevel,
    Probabilities,
    probabilities,
    ranked_releases,
    ranked_shares,
    share_of,
)
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.classes import check_classes
from unpooled.privacy.exposure import Exposure
from unpooled.privacy.mechanisms import Block, GaussianRelease, Reach
from unpooled.privacy.origin import PRIOR, SOURCE
from unpooled.privacy.plan import Card, Plan, Release
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.study import Study
from unpooled.privacy.unit import ROWWISE, Split, Unit
from unpooled.protocol.messages import Array, Entrusted, Released, Signed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.inference.coding import FormulaColumns
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.events import Event
    from unpooled.privacy.mechanisms import ObjectivePerturbation

    Matrix = NDArray[np.float64]


# --- Messages --------------------------------------------------------------------------------------------------------------
# Everything that may leave a party: released weights, and predictions of the high-level rows, noisy or for a trusted coordinator.


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The minimiser of a perturbed objective, for rows as :meth:`unpooled.models.stacking.plan.Block.rows` scales them."""

    weights: Released


class Predictions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Probabilities of the high-level rows, for a trusted coordinator."""

    probabilities: Entrusted


class NoisyPredictions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same with Gaussian noise, on the grid."""

    probabilities: Released


class CountsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Noisy counts: of rows of the second class, or of rows by class and cell of the party's own score."""

    counts: Released


class ScoresRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base rate about whose log odds the cells of scores lie, as it was released."""

    rate: float


class MetaRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Training data of the high-level model: predictions per low-level model (columns split), or the models' weights (rows split)."""

    features: tuple[Array, ...]


class Score(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A noisy score of a party's columns, signed by it."""

    score: Released
    signed: Signed


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A party's signed score, as the others are shown it."""

    party: str
    score: Released
    signed: Signed


class RankedRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everybody's scores, in the order of the study: each party works out its rank from them."""

    claims: tuple[Claim, ...]


def ranks_of(claims: tuple[Claim, ...]) -> dict[str, int]:
    """Return places by falling score, counted from 0; of equal ones the earlier party comes first."""
    order = sorted(range(len(claims)), key=lambda k: -int(claims[k].score.values.numpy()[0]))
    return {claims[k].party: rank for rank, k in enumerate(order)}


# --- Formulas --------------------------------------------------------------------------------------------------------------
# Reads the formula of a stacking study: returns the columns that it derives, or refuses it with the reason.


def made_of(study: Study, p: Parameters) -> FormulaColumns | None:
    """Return the columns that the formula derives; None without a formula."""
    if not p.formula:
        return None
    check_formula(p.formula, (p.response,))
    if p.split != "samples":
        raise UsageError(
            "a formula is for the rows of one party, or of several with the same columns: set split = 'samples'. Where columns are split, "
            "each party adds the columns that it derives to its own data, and declares them"
        )
    if p.norm is not None:
        raise UsageError("a formula goes without norm, which bounds rows of the declared columns: leave norm out")
    made = formula_columns(p.formula, study.parties[0].columns)
    if made.derived.offset_column is not None:
        raise UsageError(
            "a perturbed logistic fit has no offset: leave it out of the formula, or fit model 'glm', which has one"
        )
    if not made.features:
        raise UsageError("the formula names no column: a base rate alone is fitted by model 'glm' with method = 'mean'")
    return made


def features_of(made: FormulaColumns, *, intercept: bool) -> tuple[Column, ...]:
    """Return the derived columns as they are coded: about 0 where there is no constant that could take up the middle of a range."""
    columns = tuple(feature.column for feature in made.features)
    return columns if intercept else tuple(map(symmetric, columns))


# --- Plan ------------------------------------------------------------------------------------------------------------------
# Plan of a stack: one perturbed fit per low-level model, and what the high-level model needs.


@dataclass(frozen=True)
class StackingDesign:
    """A study, understood."""

    parameters: Parameters
    split: Split
    meta: Meta
    holder: str
    blocks: tuple[LowLevel, ...]
    outcomes: Outcomes
    #: The shares of the sensitivity by rank, where parties are ranked privately.
    shares: tuple[float, ...] = ()
    #: What makes probabilities of scores; None: log odds are averaged as they are, or a high-level model is learned.
    probabilities: Probabilities | None = None
    #: Whether a high level sees 2p - 1 of every prediction p, or p itself, as the paper prints it.
    centred: bool = True

    @property
    def made(self) -> FormulaColumns | None:
        """Return the columns that the formula makes of the parties' own; None without a formula."""
        return self.blocks[0].made

    @property
    def features(self) -> tuple[Column, ...]:
        """Return the columns that the formula makes, as they are coded."""
        return self.blocks[0].columns

    def ranked(self, study: Study, party: str, rank: int) -> LowLevel:
        """Return the low-level model of a party with this rank, counted from 0."""
        return low_level(study, self.parameters, study.card(party), self.shares[rank], self.outcomes)

    def of_share(self, study: Study, party: str, share: float) -> LowLevel:
        """Return the low-level model that a party was given this share for."""
        return low_level(study, self.parameters, study.card(party), share, self.outcomes)

    def block(self, party: str) -> LowLevel | None:
        """Return the low-level model of a party, if it has one."""
        return next((block for block in self.blocks if block.card.name == party), None)

    @property
    def learns(self) -> bool:
        """Return True if a high-level model is learned."""
        return bool(self.holder)

    def penalty(self, name: str, rows: int, epsilon: float, law: Noise) -> float:
        """Lambda of the mean loss: of the low-level models by the widest of them, or of the high-level one."""
        columns = self.high_columns if name == META else max(block.size for block in self.blocks)
        # Of several classes, the Gamma law's b is as much longer as there are more numbers; the Gaussian's less.
        columns *= self.outcomes.predictors if law is Noise.GAMMA else 1
        return penalty_of(self.parameters.penalty, columns, rows, epsilon, law)

    def beside(self, study: Study) -> list[Event]:
        """Return what one unit pays for probabilities, in addition to the fits of the same rows."""
        return [] if self.probabilities is None else self.probabilities.events(len(self.blocks), Unit(study.unit))

    @property
    def each(self) -> tuple[int, ...]:
        """Return the shape of one row's predictions: one number of two classes, or one of every class."""
        return (self.outcomes.classes,) if self.outcomes.several else ()

    @property
    def high_columns(self) -> int:
        """Return numbers of one linear predictor of the high-level model."""
        return len(self.blocks) * self.outcomes.predictors + self.parameters.fit_intercept

    def part(self, rows: int, name: str, seed: int) -> NDArray[np.intp] | None:
        """Return the rows of a part (columns split): a public permutation, independent of all values. None: all of them."""
        if not self.learns or self.split is Split.HORIZONTAL:
            return None
        order = np.random.default_rng(seed).permutation(rows)
        low = rows - self.high_rows(rows)
        return np.sort(order[:low] if name == LOW else order[low:])

    def high_rows(self, rows: int) -> int:
        """Return the number of these rows that the high-level model learns from."""
        return max(2, round(rows * self.parameters.high_share))


def _weights(study: Study, parameters: Parameters) -> dict[str, float]:
    """q_k >= 0 with sum 1 over the parties of a column split; 1 each where rows are split."""
    if parameters.split == "samples":
        return {card.name: 1.0 for card in study.parties}
    unknown = set(parameters.importance) - {card.name for card in study.parties}
    given = [parameters.importance.get(card.name, 1.0) for card in study.parties]
    total = math.fsum(given)
    if unknown or not all(0 <= q < math.inf for q in given) or not total > 0:
        raise UsageError("importance gives parties of the study public numbers >= 0, not all of them 0")
    return {card.name: q / total for card, q in zip(study.parties, given, strict=True)}


def _check_fit(p: Parameters) -> None:
    if p.penalty != AUTO and (isinstance(p.penalty, str) or not 0 < p.penalty < math.inf):
        raise UsageError('penalty must be a positive finite number, or "auto"')
    if p.norm is not None and not 0 < p.norm < math.inf:
        raise UsageError("norm must be a positive finite number")
    if p.noise not in set(Noise) or p.rows not in {SHORTEN, UNIT_ROWS}:
        raise UsageError('noise is "auto", "gamma" or "gaussian", and rows is "shorten" or "unit"')
    if p.parts not in {AUTO, SHORTEN, SCALE}:
        raise UsageError('parts is "auto", "shorten" or "scale"')


def _check(study: Study, p: Parameters) -> None:
    if len(p.classes) < 2:  # noqa: PLR2004
        raise UsageError("classes are two labels or more: what the response may hold")
    check_classes(p.classes)
    check_way(p.multi_class)
    _check_fit(p)
    if p.split not in {"features", "samples"}:
        msg = f'split is "features" or "samples", not {p.split!r}'
        raise UsageError(msg)
    if not 0 < p.high_share < 1 or not 0 < p.predictions_share < 1:
        raise UsageError("high_share and predictions_share must lie between 0 and 1")
    for card in study.parties:
        if p.response not in card.labels:
            msg = f"party {card.name!r} has no label column {p.response!r}: everybody who fits a model needs the response"
            raise UsageError(msg)
        if p.split == "samples" and card.columns != study.parties[0].columns:
            msg = f"party {card.name!r} declares other columns than {study.parties[0].name!r}: where rows are split they must be equal"
            raise UsageError(msg)
        if p.split == "features" and card.rows != study.parties[0].rows:
            msg = f"party {card.name!r} has {card.rows} rows, {study.parties[0].name!r} has {study.parties[0].rows}: the same people, please"
            raise UsageError(msg)
    if p.holder and p.holder not in {card.name for card in study.parties}:
        msg = f"holder {p.holder!r} is not a party of the study"
        raise UsageError(msg)


def _implied(columns: tuple[Column, ...], norm: float | None, share: float) -> tuple[Column, ...]:
    """Return columns whose range the norm of a whole row implied: a part of the row implies its own, and nothing is clipped to either."""
    if norm is None:
        return columns
    end = share * norm
    return tuple(
        msgspec.structs.replace(column, low=-end, high=end) if (column.low, column.high) == (-norm, norm) else column
        for column in columns
    )


def design_of(study: Study) -> StackingDesign:
    """Return the checked design that the study asks for."""
    p = parameters_of(study)
    _check(study, p)
    rows_split = p.split == "samples"
    try:
        meta = Meta(study.trust.get(META_ROLE, Meta.PUBLIC))
    except ValueError:
        msg = f"trust: meta is one of {', '.join(Meta)}, not {study.trust[META_ROLE]!r}"
        raise UsageError(msg) from None
    if rows_split and meta is not Meta.PUBLIC:
        raise UsageError("where rows are split nobody need see predictions: name a holder to learn the high-level model")
    if not rows_split and meta is Meta.PUBLIC and p.holder:
        raise UsageError("a holder learns from predictions of single rows: set trust meta to trusted or perturbed")
    holder = p.holder or ("" if rows_split or meta is Meta.PUBLIC else study.parties[0].name)
    weights = _weights(study, p)
    outcomes = Outcomes(len(p.classes), p.multi_class == REST)
    shares = ranked_shares(p, study, learns=bool(holder))
    blocks = tuple(
        low_level(study, p, card, shares[0] if shares else weights[card.name], outcomes)
        for card in study.parties
        if weights[card.name] > 0 and not (rows_split and card.name == holder)
    )
    if not blocks:
        raise UsageError("no party is left to fit a low-level model")
    combiner_of(p.combiner, p.split)
    rates_of(p.rates, outcomes.classes)
    for block in blocks:
        if block.centre and (len(block.centre) != block.numbers or not np.isfinite(block.centre).all()):
            msg = f"prior: party {block.card.name!r} needs {block.numbers} finite weights, as a fit of these columns released them"
            raise UsageError(msg)
    if p.prior and set(p.prior) - {block.card.name for block in blocks}:
        raise UsageError("prior names a party that fits no model here")
    share = share_of(p, study, len(blocks), learns=bool(holder))
    split = Split.HORIZONTAL if rows_split else Split.VERTICAL
    return StackingDesign(
        p, split, meta, holder, blocks, outcomes, shares, probabilities(study, share, len(blocks)) if share else None
    )


def low_level(study: Study, p: Parameters, card: Card, q: float, outcomes: Outcomes) -> LowLevel:
    """Return the low-level model of a party with a share q of the sensitivity."""
    made = made_of(study, p)
    intercept = p.fit_intercept and (made is None or made.derived.constant)
    # Of a whole row's length, the part that is left of a party's part: its share, or all of it.
    left = 1.0 if p.parts == SCALE else q
    columns = _implied(card.columns, p.norm, left) if made is None else features_of(made, intercept=intercept)
    everything = math.sqrt(len(columns) if p.split == "samples" else sum(len(c.columns) for c in study.parties))
    return LowLevel(
        card,
        columns,
        q,
        None if p.norm is None else left * p.norm,
        min(left * everything, math.sqrt(len(columns))),
        intercept,
        p.prior.get(card.name, ()),
        p.rows == UNIT_ROWS,
        outcomes,
        made,
    )


def compile_plan(study: Study, perturb: Perturb = fits, voids: tuple[Sentence, ...] = ()) -> Plan:
    """Return the releases of a stacking study, perturbed soundly unless the caller brings its own."""
    design = design_of(study)
    vertical, learns = design.split is Split.VERTICAL, design.learns
    rows = study.parties[0].rows
    high = design.high_rows(rows) if vertical and learns else 0
    if rows - high < 2 and vertical:  # noqa: PLR2004 - something to learn from
        raise UsageError("too few rows are left for the low-level models: lower high_share")
    part = LOW if high else ""
    shapes = [block.fit(rows - high if vertical else block.card.rows) for block in design.blocks]
    if design.shares:
        penalties = partial(design.penalty, BLOCK, rows, study.epsilon)
        releases = ranked_releases(
            study, design.parameters, design.blocks, design.shares, penalties, beside=design.beside(study)
        )
    else:
        releases = [
            Release(BLOCK, block.card.name, BLOCK, mechanism, exposure=Exposure(part, label=mechanism.label))
            for block, mechanism in zip(design.blocks, _perturbed(study, design, shapes, perturb), strict=True)
        ]
    if design.probabilities is not None:
        releases += design.probabilities.releases([block.card.name for block in design.blocks])
    if learns:
        releases += _high_level(study, design, high, perturb)
    public, trusted = _who_sees(design, high)
    return Plan(
        study,
        design.split,
        tuple(releases),
        public=public,
        not_protected=_not_protected(design),
        assumptions=(
            Sentence(
                "objective.double-precision",
                "The noise and the minimiser are computed in double precision, not on a grid: the proof does not cover their last bits.",
            ),
            *_of_prior(study, design.parameters),
        ),
        voids=voids,
        notes=() if design.probabilities is None else design.probabilities.notes,
        trusted=trusted,
        design=design,
    )


def _high_level(study: Study, design: StackingDesign, high: int, perturb: Perturb) -> list[Release]:
    """Return the releases of the high level: the parties' perturbed predictions, where there are any, and its own fit."""
    share = 1 - design.parameters.predictions_share if design.meta is Meta.PERTURBED else 1.0
    count = high or study.card(design.holder).rows
    outcomes = design.outcomes
    fit = Fit(design.high_columns, count, 1.0, apart=2.0, classes=outcomes.classes, rest=outcomes.rest)
    penalties = partial(design.penalty, META, count, study.epsilon)
    if perturb is fits and share == 1.0:
        (meta,) = by_law(study, [fit], penalties, Noise(design.parameters.noise))
    else:
        (meta,) = perturb(study, [fit], penalties(Noise.GAMMA), study.epsilon * share)
    found = (
        [_predictions(study, design, block.card.name, high) for block in design.blocks]
        if design.meta is Meta.PERTURBED
        else []
    )
    return [*found, Release(META, design.holder, META, meta, exposure=Exposure(HIGH if high else "", label=meta.label))]


def _who_sees(design: StackingDesign, high: int) -> tuple[tuple[Sentence, ...], tuple[Sentence, ...]]:
    """Return the sentences on what leaves the parties without noise, and on who is trusted with it."""
    if design.meta is not Meta.TRUSTED:
        return (), ()
    seen = Sentence(
        "stacking.predictions-seen",
        "The coordinator and {holder}, which are trusted, see every party's prediction of {rows} of the rows without noise.",
        holder=design.holder,
        rows=high,
    )
    trusted = (
        Sentence("trusted.coordinator", "the coordinator"),
        Sentence("trusted.high-level", "{holder}, which learns the high level", holder=design.holder),
    )
    return (seen,), trusted


def _perturbed(study: Study, design: StackingDesign, shapes: list[Fit], perturb: Perturb) -> Sequence[ObjectivePerturbation]:
    """Return the low-level fits: one after the other where rows are split, together where they are of the same rows."""
    noise = Noise(design.parameters.noise)

    def made(together: list[Fit]) -> Sequence[ObjectivePerturbation]:
        penalties = partial(design.penalty, BLOCK, together[0].rows, study.epsilon)
        if perturb is fits:
            return by_law(study, together, penalties, noise, beside=design.beside(study))
        return perturb(study, together, penalties(Noise.GAMMA), study.epsilon)

    return [made([fit])[0] for fit in shapes] if design.split is Split.HORIZONTAL else made(shapes)


def _predictions(study: Study, design: StackingDesign, party: str, high: int) -> Release:
    """Noisy probabilities: one row moves those of each party by at most 1 (of several classes: sqrt 2), so K of them together by sqrt(K) times it (Theorem S.5)."""
    mu = budget_mu(study.epsilon * design.parameters.predictions_share, study.delta) / math.sqrt(len(design.blocks))
    numbers = design.outcomes.predictors
    reach = dict.fromkeys(ROWWISE, Reach(GRID * (math.sqrt(2.0) if numbers > 1 else 1.0), numbers))
    mechanism = GaussianRelease.calibrated((Block(high * numbers, 1.0),), reach, Unit.RECORD, mu)
    return Release(PREDICTIONS, party, PREDICTIONS, mechanism, exposure=Exposure(HIGH))


def _of_prior(study: Study, p: Parameters) -> tuple[Sentence, ...]:
    """Return what is assumed of a prior's weights that no earlier run is named for."""
    if not p.prior or any(origin.input in {PRIOR, SOURCE} for origin in study.origins):
        return ()
    return (
        Sentence(
            "stacking.source-declared",
            "The weights that the fit is drawn to ({parties}) are public: they were released before with a guarantee of their own, or computed without these "
            "rows. The study declares them, and nothing here checks where they come from.",
            parties=", ".join(sorted(p.prior)),
        ),
    )


def _not_protected(design: StackingDesign) -> tuple[Sentence, ...]:
    if design.split is Split.HORIZONTAL:
        return ()
    return (
        Sentence(
            "stacking.response",
            "The response at the parties: every party that fits knows it. What is published protects it.",
        ),
    )
