"""What the estimators of perturbed fits share: a study of them, the weights that it released, new rows scaled like those of the fit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.estimation.base import Declared
from unpooled.estimation.binary import BinaryClassifier
from unpooled.estimation.parameters import plain
from unpooled.estimation.tables import RESPONSE
from unpooled.models.stacking import MODEL, published
from unpooled.models.stacking.plan import META_ROLE, LowLevel, Meta
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.models.stacking.coordinator import StackingResult

    Vector = NDArray[np.float64]


class StackEstimator(BinaryClassifier):
    """What the two estimators share: a study of perturbed fits, and the weights that it released."""

    _model, _published = MODEL, published.MODEL
    penalty: float | str
    noise: str
    rows: str
    fit_intercept: bool

    def _fits(self, cards: tuple[Card, ...], declared: Declared, parameters: dict[str, Any], meta: str) -> Study:
        assert declared.classes is not None
        norm = self.bounds.norm if isinstance(self.bounds, Bounds) else None
        shared = {
            "response": RESPONSE,
            "classes": list(declared.classes.texts),
            "penalty": plain(self.penalty) if isinstance(self.penalty, str) else float(self.penalty),
            "noise": self.noise,
            "rows": self.rows,
            "norm": None if norm is None else float(norm),
            "fit_intercept": bool(self.fit_intercept),
        }
        return self._asked(cards, shared | parameters, declared.derived, {META_ROLE: meta}, pure=meta != Meta.PERTURBED)

    def _released(self, study: Study, tables: Mapping[str, Table], declared: Declared) -> StackingResult:
        result: StackingResult = self._run(study, tables).outcome.result
        self.released_ = {m.party: list(m.weights) for m in result.models}
        self._columns = declared.columns
        self._blocks: tuple[LowLevel, ...] = self.plan_.design.blocks
        return result

    def _scaled(self, block: LowLevel, X: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        """New rows as a low-level model was fitted to: clipped, and scaled to its lengths."""
        own = [X[name] for name in block.coding.names]
        # A table has at least two rows.
        repeated = [np.resize(values, max(2, values.size)) for values in own]
        return block.rows(Table(dict(zip(block.coding.names, repeated, strict=True))))[: own[0].size]


def added_log_odds(probabilities: NDArray[np.float64], prior: float) -> Vector:
    """The mean over K models of their log odds, less (K - 1)/K of the base rate's.

    Given the class, parts of a row are taken for independent: each model has counted the base rate once. At 1/2 nothing is taken away.
    """
    inside = np.clip(probabilities, 1e-12, 1 - 1e-12)
    known = (inside.shape[1] - 1) * math.log(prior / (1 - prior))
    return np.asarray(((np.log(inside) - np.log1p(-inside)).sum(axis=1) - known) / inside.shape[1])
