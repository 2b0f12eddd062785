"""Pure generator: collect the low-level models, and have the high-level one learned where the study asks for it; and the models, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from scipy.special import expit

from unpooled.errors import ProtocolError
from unpooled.models.stacking.declared import BLOCK, GRID, META, PREDICTIONS, Meta
from unpooled.models.stacking.low_level import (
    PROBABILITIES,
    RANKED,
    RATE,
    SCORE,
    Calibrated,
    ReleasedRate,
    calibrated,
    release_of,
)
from unpooled.models.stacking.plan import Claim, MetaRequest, RankedRequest, ScoresRequest, ranks_of
from unpooled.privacy.bounds import text_of
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.privacy.unit import Split
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Array, Ask, Nothing
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import ResultTerm, plain

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from numpy.typing import NDArray

    from unpooled.models.stacking.low_level import LowLevel
    from unpooled.models.stacking.plan import StackingDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation, Replies


# --- Coordinator -----------------------------------------------------------------------------------------------------------
# Pure generator: collect the low-level models, and have the high-level one learned where the study asks for it.


class LowModel(msgspec.Struct, frozen=True):
    """A released low-level model: its weights for scaled rows, and its coefficients in the data's own units.

    Where there are more than two classes, a party has one of these for each of them.
    """

    party: str
    share: float
    #: Of the coded columns.
    names: tuple[str, ...]
    weights: tuple[float, ...]
    coefficients: tuple[float, ...]
    intercept: float
    #: The class whose linear predictor it is, where there are more than two.
    label: str = ""

    @property
    def name(self) -> str:
        """Return the party, and the class."""
        return f"{self.party}, {self.label}" if self.label else self.party


class StackingResult(msgspec.Struct, frozen=True):
    """The low-level models, and the weights of the high-level one on (2 p - 1, .., 1) / sqrt(number), if it was learned."""

    models: tuple[LowModel, ...]
    high: tuple[float, ...]
    #: How scores of the models become probabilities; None where their predictions are put together as they are.
    calibrated: Calibrated | None = None


def coordinate(plan: Plan[StackingDesign]) -> Conversation:
    """Low level, predictions of the high-level rows, high level."""
    design = plan.design
    blocks = list(design.blocks)
    if design.shares:
        scores = yield from everybody([Ask(block.card.name, SCORE, Nothing()) for block in blocks])
        claims = tuple(Claim(b.card.name, reply.score, reply.signed) for b, reply in zip(blocks, scores, strict=True))
        ranks = ranks_of(claims)
        blocks = [design.ranked(plan.study, block.card.name, ranks[block.card.name]) for block in blocks]
        replies = yield from everybody([Ask(block.card.name, RANKED, RankedRequest(claims)) for block in blocks])
        if any(r.weights.name != release_of(ranks[b.card.name]) for b, r in zip(blocks, replies, strict=True)):
            raise ProtocolError("a party released the fit of another rank than its score has")
    else:
        replies = yield from everybody([Ask(block.card.name, BLOCK, Nothing()) for block in blocks])
    weights = [reply.weights.values for reply in replies]
    models = []
    labels = [text_of(c) for c in design.parameters.classes] if design.outcomes.several else [""]
    for block, released in zip(blocks, weights, strict=True):
        own = released.numpy().reshape(len(labels), -1)
        coefficients, intercepts = block.in_own_units(released.numpy())
        models += [
            LowModel(
                block.card.name,
                block.weight,
                block.coding.coded_names,
                tuple(own[k].tolist()),
                tuple(coefficients[k].tolist()),
                float(intercepts[k]),
                label,
            )
            for k, label in enumerate(labels)
        ]
    high: tuple[float, ...] = ()
    if design.learns:
        features = weights if design.split is Split.HORIZONTAL else (yield from _predictions(plan, design))
        (reply,) = yield from everybody([Ask(design.holder, META, MetaRequest(tuple(features)))])
        high = tuple(reply.weights.values.numpy().tolist())
    found = None
    if design.probabilities is not None:
        found = yield from _probabilities(plan, blocks, [released.numpy() for released in weights])
    return StackingResult(tuple(models), high, found)


def _probabilities(
    plan: Plan[StackingDesign], blocks: list[LowLevel], weights: list[NDArray[np.float64]]
) -> Generator[list[Ask], Replies, Calibrated]:
    """Return how scores become probabilities: ask for the base rate, then for the classes along every party's score."""
    made, parties = plan.design.probabilities, [block.card.name for block in blocks]
    assert made is not None
    (first,) = yield from everybody([Ask(parties[0], RATE, Nothing())])
    rows = blocks[0].card.rows
    base = ReleasedRate(float(made.rate.decode(first.counts.values.numpy())[0]) / rows, made.rate.scale / rows, rows)
    replies = yield from everybody([Ask(party, PROBABILITIES, ScoresRequest(base.sent)) for party in parties])
    counts = [made.counts.decode(reply.counts.values.numpy()) for reply in replies]
    return calibrated(blocks, weights, counts, made.counts.scale, base)


def _predictions(plan: Plan, design: StackingDesign) -> Generator[list[Ask], Replies, list[Array]]:
    """Predictions of the high-level rows by every low-level model."""
    step = "entrust" if design.meta is Meta.TRUSTED else PREDICTIONS
    replies = yield from everybody([Ask(block.card.name, step, Nothing()) for block in design.blocks])
    if design.meta is Meta.TRUSTED:
        rows = design.high_rows(plan.study.parties[0].rows)
        for block, reply in zip(design.blocks, replies, strict=True):
            if reply.probabilities.values.shape != (rows, *design.each):
                msg = f"party {block.card.name!r} predicts another number of rows than the high level has"
                raise ProtocolError(msg)
        return [reply.probabilities.values for reply in replies]
    noisy = []
    for block, reply in zip(design.blocks, replies, strict=True):
        mechanism = plan.release(block.card.name, PREDICTIONS).mechanism
        assert isinstance(mechanism, GaussianRelease)
        decoded = mechanism.decode(reply.probabilities.values.numpy()).reshape(-1, *design.each)
        noisy.append(Array.of(np.clip(decoded / GRID, 0.0, 1.0)))
    return noisy


def render(result: StackingResult) -> str:
    """Return the models as a table."""
    lines = [f"{'model':<16}{'share':>8}   {'column':<24}{'coefficient':>14}"]
    for model in result.models:
        head = f"{model.name:<16}{model.share:>8.3f}   "
        rows = [*zip(model.names, model.coefficients, strict=True), ("(intercept)", model.intercept)]
        lines += [f"{head if k == 0 else '':<{len(head)}}{name:<24}{value:>14.4g}" for k, (name, value) in enumerate(rows)]
    if result.calibrated is not None:
        lines.append(
            f"probabilities follow from counts of classes along these scores: base rate {expit(result.calibrated.base):.3f}, "
            f"{result.calibrated.factor:.2f} of what the models add to it together"
        )
    if result.high:
        lines.append(f"{'high level':<27}{' '.join(f'{value:.4g}' for value in result.high)}")
    return "\n".join(lines)


def panels(plan: Plan, result: StackingResult) -> tuple[Panel, ...]:  # noqa: ARG001 - as every model
    """Return the coefficients of every low-level model."""
    return tuple(Panel(f"coefficients of {m.name}", m.names, m.coefficients) for m in result.models)


# --- Lines -----------------------------------------------------------------------------------------------------------------
# The models of a stack, line by line, and the one that a party keeps of it.

_INTERCEPT = "(intercept)"
#: The group of the weights that combine the models.
HIGH = "high level"


def terms(plan: Plan[StackingDesign], result: StackingResult) -> tuple[ResultTerm, ...]:
    """Return log odds per unit of every column, for each party's model; then the weights of the high level, where one was learned."""
    found: list[ResultTerm] = []
    for model in result.models:
        found += plain((*model.names, _INTERCEPT), (*model.coefficients, model.intercept), model.name)
    design = plan.design
    classes = [text_of(c) for c in design.parameters.classes] if design.outcomes.several else [""]
    if not result.high:
        return tuple(found)
    names = [m.name for m in result.models] + [_INTERCEPT] * design.parameters.fit_intercept
    for label, weights in zip(classes, np.array(result.high).reshape(len(classes), -1).tolist(), strict=True):
        found += plain(names, weights, f"{HIGH}, {label}" if label else HIGH)
    return tuple(found)


def kept_terms(plan: Plan[StackingDesign], party: str, kept: Mapping[str, NDArray[Any]]) -> tuple[ResultTerm, ...]:
    """Return the party's own model, which it also released."""
    from unpooled.models.stacking.rows import KEPT, KEPT_RANK

    block = plan.design.block(party)
    if block is None or KEPT not in kept:
        return ()
    if KEPT_RANK in kept:
        block = plan.design.ranked(plan.study, party, int(kept[KEPT_RANK][0]))
    outcomes = plan.design.outcomes
    labels = [text_of(c) for c in plan.design.parameters.classes] if outcomes.several else [""]
    found: list[ResultTerm] = []
    for label, own, intercept in zip(labels, *block.in_own_units(kept[KEPT]), strict=True):
        found += plain((*block.coding.coded_names, _INTERCEPT), (*own.tolist(), float(intercept)), label)
    return tuple(found)
