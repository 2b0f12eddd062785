"""Everything that may leave a party: its perturbed sketch, columns declared public, and (not private) cross-validation scores."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Disclosed, Entrusted, Public, Released


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
