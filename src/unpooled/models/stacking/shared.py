"""Base of the estimators of perturbed fits: a study of them, the weights that it released, new rows scaled like those of the fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError
from unpooled.estimation.base import ALL, Declared, DeclaredClassifier, StudyEstimator
from unpooled.estimation.parameters import NUMBERS, plain
from unpooled.estimation.tables import RESPONSE
from unpooled.models.stacking import MODEL
from unpooled.models.stacking.calibrating import Calibrated, ScoreLine
from unpooled.models.stacking.coordinator import LowModel
from unpooled.models.stacking.parameters import BOTH_PRIORS, META_ROLE, Meta
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.origin import PRIOR
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.stacking.coordinator import StackingResult
    from unpooled.models.stacking.low_level import LowLevel
    from unpooled.models.stacking.outcomes import Outcomes
    from unpooled.models.stacking.plan import StackingDesign


class StackEstimator(DeclaredClassifier):
    """Base of the two estimators: a study of perturbed fits, and the weights that it released."""

    _model = MODEL
    _several = True
    _saved_types = (*StudyEstimator._saved_types, LowModel, Calibrated, ScoreLine)  # noqa: SLF001 - its base's
    penalty: float | str
    noise: str
    rows: str
    fit_intercept: bool
    multi_class: str
    models_: tuple[LowModel, ...]
    prior: Any
    source: Any

    def _fits(self, cards: tuple[Card, ...], declared: Declared, parameters: dict[str, Any], meta: str) -> Study:
        assert declared.classes is not None
        norm = self.bounds.norm if isinstance(self.bounds, Bounds) else None
        shared = {
            "response": RESPONSE,
            "classes": list(declared.classes.texts),
            "multi_class": self.multi_class,
            "penalty": plain(self.penalty) if isinstance(self.penalty, str) else float(self.penalty),
            "noise": self.noise,
            "rows": self.rows,
            "norm": None if norm is None else float(norm),
            "fit_intercept": bool(self.fit_intercept),
        }
        return self._asked(cards, shared | parameters, declared.derived, {META_ROLE: meta}, pure=meta != Meta.PERTURBED)

    def _drawn_to(self, prior: Any) -> dict[str, list[float]]:  # noqa: ANN401 - a list of one party's weights, or a mapping
        """Return the weights that the penalty pulls to, by party; empty without any."""
        given = prior
        if self.source is not None:
            if prior is not None:
                raise UsageError(BOTH_PRIORS)
            renamed("source", "prior", stacklevel=5)
            given = self.source
        named = given if isinstance(given, Mapping) else {} if given is None else {ALL: given}
        if not all(NUMBERS.holds(weights) for weights in named.values()):
            raise UsageError("prior must be released weights: a list of numbers, or a mapping from parties to such lists")
        return {party: [float(w) for w in weights] for party, weights in named.items()}

    def _released(self, study: Study, tables: Mapping[str, Table], declared: Declared) -> StackingResult:
        result: StackingResult = self._run(study, tables).outcome.result
        self.__dict__["released_"] = released_weights(result)
        self._columns = declared.columns
        return result

    @property
    def released_(self) -> Any:  # noqa: ANN401 - a mapping from parties to lists
        """Return the released weights of every party, which carry their origin to the ``prior`` of another fit."""
        if "released_" not in vars(self):
            raise AttributeError("no weights of perturbed fits were released")
        return self.plan_.sourced(PRIOR, vars(self)["released_"])

    @property
    def _is_linear(self) -> bool:
        return super()._is_linear and not any(block.unit for block in self._blocks)

    @property
    def _outcomes(self) -> Outcomes:
        outcomes: Outcomes = self.plan_.design.outcomes
        return outcomes

    @property
    def _blocks(self) -> tuple[LowLevel, ...]:
        design: StackingDesign = self.plan_.design
        if not design.shares:
            return design.blocks
        shares = {model.party: model.share for model in self.models_}
        return tuple(design.of_share(self.plan_.study, block.card.name, shares[block.card.name]) for block in design.blocks)

    def _scaled(self, block: LowLevel, X: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        """New rows as a low-level model was fitted to: clipped, and scaled to its lengths."""
        return block.scaled(X)


def renamed(former: str, word: str, *, stacklevel: int) -> None:
    """Warn of a parameter by its name of the version before."""
    warnings.warn(f"`{former}` is `{word}` now; the former name works for one version", FutureWarning, stacklevel=stacklevel)


def released_weights(result: StackingResult) -> dict[str, list[float]]:
    """Return the weights of every party as it released them, class by class."""
    found: dict[str, list[float]] = {}
    for model in result.models:
        found.setdefault(model.party, []).extend(model.weights)
    return found
