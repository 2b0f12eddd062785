"""Everything that may leave a party: released weights, and predictions of the high-level rows, noisy or for a trusted coordinator."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Array, Entrusted, Released, Signed


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
