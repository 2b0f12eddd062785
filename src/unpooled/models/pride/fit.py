"""Pure generator: collect the sketches, pass each party those of the others, ask for estimates (or predictions); and the coefficients, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import ProtocolError, StudyAborted
from unpooled.models.pride.plan import (
    ESTIMATE,
    FOLDS,
    PREDICT,
    SCORE,
    SKETCH,
    EstimateRequest,
    FoldsRequest,
    PredictRequest,
    PrideDesign,
    Received,
    ScoreRequest,
)
from unpooled.privacy.bounds import Coding, text_of
from unpooled.protocol.messages import Array, Ask, Dropped, Entrusted, Nothing
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import ResultTerm, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation, Replies

    Vector = NDArray[np.float64]


# --- Units -----------------------------------------------------------------------------------------------------------------
# Coefficients of coded columns, as the parties keep them, to those of the data's own columns.


def in_own_units(
    design: PrideDesign,
    kept: Mapping[str, Mapping[str, Vector]],
    columns: Sequence[Column],
    means: Vector,
    *,
    fit_intercept: bool,
) -> tuple[NDArray[np.float64], float | Vector]:
    """Return (coefficients, intercept): b / half width, the intercept takes up the centres; nan where a party only sends.

    ``means`` are those of the coded columns, by which the intercept follows from the parties' mean decision. With a coefficient of every
    class the first has a row for each column and a column for each class; with several constants the second is an array.
    """
    coding = Coding(tuple(columns), 1)
    starts = np.searchsorted(coding.attribute, range(len(columns)))
    first = {column.name: int(i) for column, i in zip(columns, starts, strict=True)}
    shape = next((values["coded_coefficients"].shape[1:] for values in kept.values()), ())
    coefficients = np.full((means.size, *shape), np.nan)
    for part in design.parts:
        if part.card.name not in kept:
            continue
        own = iter(kept[part.card.name]["coded_coefficients"])
        for half in (part.private, part.public):
            for j, column in enumerate(half.columns):
                for k in range(half.attribute.count(j)):
                    coefficients[first[column.name] + k] = next(own)
    estimated = np.asarray(np.isfinite(coefficients.reshape(means.size, -1)).all(axis=1), dtype=np.bool_)
    decision = np.mean([values["mean_decision"] for values in kept.values()], axis=0)
    intercept = decision - means[estimated] @ coefficients[estimated]
    if not fit_intercept:
        intercept = np.asarray(sum(values["offset"] for values in kept.values()))
    for column in columns:
        at = first[column.name]
        if column.categories is None and estimated[at]:
            coefficients[at] /= column.half_width
            intercept = intercept - column.centre * coefficients[at]
    return coefficients, float(intercept[0]) if intercept.size == 1 else intercept


# --- Coordinator -----------------------------------------------------------------------------------------------------------
# Pure generator: collect the sketches, pass each party those of the others, ask for estimates (or predictions).

#: Penalties of global cross-validation, in units of n (the paper's lambda).
GLOBAL_PENALTIES = np.logspace(-5, 5, 41)


class PrideResult(msgspec.Struct, frozen=True):
    """The coordinator's result: the parties that estimated, and the penalty if it was chosen globally."""

    estimated: tuple[str, ...]
    alpha: float | None = None
    #: Privately published coefficients of each party's coded columns, where the study asked for them.
    published: dict[str, tuple[float, ...]] = {}


def coordinate(plan: Plan[PrideDesign]) -> Conversation:
    """Two rounds (four with global cross-validation, which is not private)."""
    design = plan.design
    parameters, parts = design.parameters, design.parts
    replies = yield [Ask(part.card.name, SKETCH, Nothing()) for part in parts]
    _complete(replies)
    for part, reply in zip(parts, replies, strict=True):
        wanted = [part.public.names] if part.public.columns and part.is_read else []
        if [disclosed.columns for disclosed in reply.disclosed] != wanted:
            msg = f"party {part.card.name!r} disclosed other columns than the study declares public"
            raise ProtocolError(msg)
    received = {
        part.card.name: Received(part.card.name, reply.sketch, reply.disclosed)
        for part, reply in zip(parts, replies, strict=True)
    }

    def others(name: str) -> tuple[Received, ...]:
        return tuple(r for other, r in received.items() if other != name and (r.sketch or r.disclosed))

    if parameters.fitted is not None:
        names = [part.card.name for part in parts if part.card.name in (parameters.predicting or received)]
        _complete((yield [Ask(name, PREDICT, PredictRequest(others(name))) for name in names]))
        return PrideResult(tuple(names))
    names = [part.card.name for part in parts if part.knows_response]
    alpha = None
    if parameters.alpha == "global-cv":
        alphas = tuple((GLOBAL_PENALTIES * parts[0].card.rows).tolist())
        replies = yield [Ask(name, FOLDS, FoldsRequest(others(name), alphas)) for name in names]
        _complete(replies)
        _shaped(names, [reply.contributions for reply in replies], (len(alphas), parts[0].card.rows))
        total = sum(reply.contributions.values.numpy() for reply in replies)
        request = ScoreRequest(Entrusted("cross-validation", Array.of(np.asarray(total))))
        replies = yield [Ask(names[0], SCORE, request)]
        _complete(replies)
        _shaped(names[:1], [reply.losses for reply in replies], (len(alphas),))
        alpha = alphas[int(np.argmin(replies[0].losses.values.numpy()))]
    replies = yield [Ask(name, ESTIMATE, EstimateRequest(others(name), alpha)) for name in names]
    _complete(replies)
    published = {
        name: tuple(release.values.numpy().tolist())
        for name, reply in zip(names, replies, strict=True)
        for release in reply.published
    }
    return PrideResult(tuple(names), alpha, published)


def _complete(replies: Replies) -> None:
    for reply in replies:
        if isinstance(reply, Dropped):
            msg = f"party {reply.party!r} dropped out ({reply.reason}); a vertical study needs them all: resume it later"
            raise StudyAborted(msg)


def _shaped(names: list[str], given: list[Entrusted], shape: tuple[int, ...]) -> None:
    for name, entrusted in zip(names, given, strict=True):
        if entrusted.values.shape != shape:
            msg = f"party {name!r} sent values for cross-validation of another shape than the plan has"
            raise ProtocolError(msg)


def render(result: PrideResult) -> str:
    """Return the result as text."""
    lines = [f"coefficients are kept at {', '.join(result.estimated)}"]
    for name, values in result.published.items():
        lines.append(f"published by {name}: " + ", ".join(f"{v:.4g}" for v in values))
    if result.alpha is not None:
        lines.append(f"alpha by global cross-validation (not private): {result.alpha:.6g}")
    return "\n".join(lines)


def panels(plan: Plan, result: PrideResult) -> tuple[Panel, ...]:  # noqa: ARG001 - as every model
    """Published coefficients; the others stay where they were estimated."""
    return tuple(
        Panel(f"coefficients published by {name}", tuple(f"column {j}" for j in range(len(values))), tuple(values))
        for name, values in result.published.items()
    )


# --- Lines -----------------------------------------------------------------------------------------------------------------
# The coefficients of a PRIDE study, line by line: what a party keeps, in its data's own units, and what was published.

#: Without an intercept: what the party's columns contribute where all of them are 0. With one: the fit where every column has its mean.
OWN_CONSTANT, AT_THE_MEANS = "(constant of these columns)", "(fit at the columns' means)"


def terms(plan: Plan[PrideDesign], result: PrideResult) -> tuple[ResultTerm, ...]:
    """Privately published coefficients of coded columns (a range is coded as -1 to 1); the others stay at their parties."""
    design = plan.design
    found: tuple[ResultTerm, ...] = ()
    for party, values in result.published.items():
        part = design.part(party)
        assert part is not None
        names = (*part.private.coded_names, *part.public.coded_names)
        found += plain((f"{name} (coded)" for name in names), values, party)
    return found


def kept_terms(plan: Plan[PrideDesign], party: str, kept: Mapping[str, NDArray[Any]]) -> tuple[ResultTerm, ...]:
    """Return coefficients of the party's own columns, and a constant.

    With an intercept, a prediction is the fit at the columns' means plus, over all parties, coefficient times (value - mean of the column).
    """
    design = plan.design
    part = design.part(party)
    if part is None or "coded_coefficients" not in kept:
        return ()
    parameters = design.parameters
    several = parameters.is_joint and parameters.has_classes
    classes = [text_of(each) for each in parameters.classes] if several else []
    coded = kept["coded_coefficients"]
    # A column of coefficients, and what its lines are called; levels share one.
    columns = [(f"{name}: ", coded[:, k]) for k, name in enumerate(classes)] if coded.ndim > 1 else [("", coded)]
    found: tuple[ResultTerm, ...] = ()
    centres = []
    for label, own in columns:
        names, values, centre, at = [], [], 0.0, 0
        for half in (part.private, part.public):
            widths, middles = half.units
            for name, w, c in zip(half.coded_names, widths.tolist(), middles.tolist(), strict=True):
                values.append(float(own[at]) / w)
                centre += c * values[-1]
                names.append(f"{label}{name}")
                at += 1
        found += plain(names, values)
        centres.append(centre)
    if parameters.named == "cox":  # hazards are in proportion to those at the columns' means
        return found
    labels = [f"{name}: " for name in classes] if coded.ndim > 1 else [f"above {name}: " for name in classes[:-1]] or [""]
    if parameters.fit_intercept:
        return (*found, *plain([f"{label}{AT_THE_MEANS}" for label in labels], kept["mean_decision"].tolist()))
    constants = [float(offset) - centre for offset, centre in zip(kept["offset"], centres, strict=True)]
    return (*found, *plain([f"{label}{OWN_CONSTANT}" for label in labels], constants))
