"""Everything that may leave a party: released weights, and predictions of the high-level rows, noisy or for a trusted coordinator."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Array, Entrusted, Released


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The minimiser of a perturbed objective, for rows as :meth:`unpooled.models.stacking.plan.Block.rows` scales them."""

    weights: Released


class Predictions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Probabilities of the high-level rows, for a trusted coordinator."""

    probabilities: Entrusted


class NoisyPredictions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same with Gaussian noise, on the grid."""

    probabilities: Released


class MetaRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the high-level model is trained on: predictions per low-level model (columns split), or the models' weights (rows split)."""

    features: tuple[Array, ...]
