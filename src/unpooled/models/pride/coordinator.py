"""Pure generator: collect the sketches, pass each party those of the others, ask for estimates (or predictions)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from unpooled.errors import ProtocolError, StudyAborted
from unpooled.models.pride.messages import EstimateRequest, FoldsRequest, PredictRequest, Received, ScoreRequest
from unpooled.models.pride.plan import ESTIMATE, FOLDS, PREDICT, SCORE, SKETCH, PrideDesign
from unpooled.protocol.messages import Array, Ask, Dropped, Entrusted, Nothing
from unpooled.protocol.registry import Panel

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation, Replies

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
