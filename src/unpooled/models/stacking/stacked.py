"""Stacks in process: who holds what, the study, the fit, and predictions put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError, warn_caller
from unpooled.estimation.base import ALL, Declared, DeclaredClassifier, StudyEstimator, cards_of, tables_of
from unpooled.estimation.calls import asked_of
from unpooled.estimation.parameters import NUMBERS, WHOLE, check, plain
from unpooled.estimation.tables import RESPONSE, part
from unpooled.models.stacking import MODEL
from unpooled.models.stacking.declared import (
    AUTO,
    BOTH_PRIORS,
    BOTH_RATES,
    LOG_ODDS,
    META_ROLE,
    Meta,
    Parameters,
    are_rates,
    combiner_of,
    meta_rows,
    rates_of,
)
from unpooled.models.stacking.fit import LowModel
from unpooled.models.stacking.low_level import Calibrated, ScoreLine, default_ranks
from unpooled.models.stacking.outlook import combined
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.origin import PRIOR, RATES, SOURCE
from unpooled.privacy.plan import Card, Plan, Study
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from unpooled.estimation.columns import Frames, On
    from unpooled.models.stacking.declared import Outcomes
    from unpooled.models.stacking.fit import StackingResult
    from unpooled.models.stacking.low_level import LowLevel
    from unpooled.models.stacking.plan import StackingDesign


# --- Groups ----------------------------------------------------------------------------------------------------------------
# Who holds what where nobody says so: groups of columns, of falling importance or random, and groups of rows.


def weighed(
    groups: Mapping[str, list[str]], names: Sequence[str], importance: object, *, seed: int | None
) -> tuple[dict[str, list[str]], dict[str, float]]:
    """Return columns and importance of every party; no seed where the caller named the parties, else the columns are dealt."""
    if seed is None:
        given = {} if importance is None else importance
        if not isinstance(given, Mapping):
            raise UsageError("where parties are named, importance is a mapping from their names to public numbers")
        return dict(groups), {party: float(q) for party, q in given.items()}
    if importance is None:
        order = np.random.default_rng(seed).permutation(len(names))
        weight = np.ones(len(names))
    else:
        weight = np.asarray(importance, dtype=float)
        if weight.shape != (len(names),) or not (np.isfinite(weight).all() and weight.min() >= 0 and weight.max() > 0):
            raise UsageError("importance holds one public number >= 0 for every column, not all of them 0")
        order = np.argsort(-weight, kind="stable")
    places = {f"group{k}": own for k, own in enumerate(np.array_split(order, len(groups)))}
    held = {group: [names[j] for j in own] for group, own in places.items()}
    if importance is None:
        return held, {}
    return held, {group: float(weight[own].sum()) for group, own in places.items()}


def dealt(rows: int, groups: int, seed: int, *, last: float | None = None) -> list[str]:
    """Return for every row the one of ``groups`` random groups that it is dealt to; ``last``: the share of the last one, where it has its own."""
    order = np.random.default_rng(seed).permutation(rows)
    if last is None:
        order %= groups
    else:
        low = rows - round(rows * last)
        order = np.where(order < low, order % (groups - 1), groups - 1)
    return [f"group{k:03d}" for k in order.tolist()]


# --- What the estimators share ---------------------------------------------------------------------------------------------
# Base of the estimators of perturbed fits: a study of them, the weights that it released, new rows scaled like those of the fit.


#: What both estimators ask of every perturbed fit.
_OF_FITS = ("multi_class", "penalty", "noise", "rows", "fit_intercept")


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
        own = self._given
        shared = asked_of(Parameters, {name: own[name] for name in _OF_FITS})
        shared |= {
            "response": RESPONSE,
            "classes": list(declared.classes.texts),
            "norm": None if norm is None else float(norm),
        }
        return self._asked(cards, shared | parameters, declared.derived, {META_ROLE: meta}, pure=meta != Meta.PERTURBED)

    def _drawn_to(self, prior: Any) -> dict[str, list[float]]:  # noqa: ANN401 - a list of one party's weights, or a mapping
        """Return the weights that the penalty pulls to, by party; empty without any."""
        given = prior
        if self.source is not None:
            if prior is not None:
                raise UsageError(BOTH_PRIORS)
            renamed("source", "prior")
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


def renamed(former: str, word: str) -> None:
    """Warn of a parameter by its name of the version before."""
    warn_caller(f"`{former}` is `{word}` now; the former name works for one version", FutureWarning)


def released_weights(result: StackingResult) -> dict[str, list[float]]:
    """Return the weights of every party as it released them, class by class."""
    found: dict[str, list[float]] = {}
    for model in result.models:
        found.setdefault(model.party, []).extend(model.weights)
    return found


# --- Stacked ---------------------------------------------------------------------------------------------------------------
# Stacks in process: who holds what, the study, the fit, and predictions put together.

#: ``meta`` where one site learns the high level on rows of its own.
HIGH_LEVEL = "high-level"


class StackedClassifier(StackEstimator):
    """The parameters of ``PrivateStackingClassifier`` at work."""

    parties: int | Mapping[str, Sequence[int | str]]
    split: str
    importance: Any
    falling: Sequence[float] | None
    ranking_share: float
    probabilities_share: float
    calibrated_: Calibrated | None
    meta: str
    combiner: str
    rates: float | Sequence[float] | None
    holder: str | None
    high_share: float
    parts: str
    predictions_share: float

    # --- groups ------------------------------------------------------------------------------------------------------------

    def _groups(self, names: Sequence[str]) -> dict[str, list[str]]:
        return self._weighed(names)[0]

    def _weighed(self, names: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, float]]:
        """Return columns and importance of every party."""
        declared = None if self._ranked else self.importance
        return weighed(
            super()._groups(names),
            names,
            declared,
            seed=None if isinstance(self._who(names), Mapping) else int(self.public_seed),
        )

    @property
    def _ranked(self) -> bool:
        return isinstance(self.importance, str)

    def _ranks(self, parties: int) -> list[float]:
        """Return the importances that are given out by rank, where parties are ranked privately."""
        if not self._ranked:
            if self.falling is not None:
                raise UsageError('falling goes with importance="private"')
            return []
        if self.importance != "private":
            msg = f'importance is "private", or public numbers, not {self.importance!r}'
            raise UsageError(msg)
        return list(default_ranks(parties)) if self.falling is None else [float(q) for q in self.falling]

    def _dealt(self, rows: int) -> list[str]:
        """Which of the random groups every row is dealt to, where rows are split without sites."""
        if isinstance(self.parties, Mapping) or self.parties < 1:
            raise UsageError(
                "parties must be at least 1, a number of groups to deal the rows to, where rows are split without sites="
            )
        if self._meta != HIGH_LEVEL:
            return dealt(rows, int(self.parties), int(self.public_seed))
        # As printed, a share of all rows learns the high level; else as many as every group has.
        share = None if self._row.form.promises else float(self._taken("high_share"))
        return dealt(rows, int(self.parties) + 1, int(self.public_seed), last=share)

    # --- fit -----------------------------------------------------------------------------------------------------------------

    def plan(self, n_samples: int, n_features: int) -> Plan:
        """Return the plan of a fit to data of this shape, without data (rows split: dealt to random groups)."""
        check({"n_samples": (WHOLE,)}, {"n_samples": n_samples})
        self._validate_params()
        if self.split != "samples":
            return self._planned({ALL: n_samples}, n_features)
        names, counts = np.unique(self._dealt(int(n_samples)), return_counts=True)
        return self._planned(dict(zip(names.tolist(), counts.tolist(), strict=True)), n_features)

    def _study(self, rows: Mapping[str, int], declared: Declared) -> Study:
        assert declared.classes is not None
        combiner_of(self.combiner, self.split)
        prior, rates = self._in_new_words()
        rates_of(rates, declared.classes.labels.size)
        weights = self._drawn_to(prior)
        parameters: dict[str, Any] = {
            "split": self.split,
            "holder": self.holder or "",
            # A study without weights and rates says so by the former names, by which its hash is known.
            **({} if weights else {SOURCE: {}}),
            "combiner": plain(self.combiner),
            **({PRIOR: weights or None} if weights or rates is None else {}),
            **({} if rates is None else {RATES: plain(rates)}),
        }
        if self.split != "samples":
            groups, importance = self._weighed(declared.names)
            parameters |= {
                "importance": importance,
                "ranks": self._ranks(len(groups)),
                "ranking_share": float(self.ranking_share),
                "probabilities_share": float(self.probabilities_share),
                "high_share": float(self.high_share),
                "predictions_share": float(self.predictions_share),
                # A study that leaves it to the form keeps the hash that it had before there was another way.
                **({"parts": self.parts} if self._taken("parts") != AUTO else {}),
            }
            return self._fits(cards_of(groups, declared, rows[ALL]), declared, parameters, self._meta)
        if self._meta not in {Meta.PUBLIC, HIGH_LEVEL}:
            msg = f'where rows are split, meta is "public-weights" or "high-level", not {self.meta!r}'
            raise UsageError(msg)
        cards = tuple(Card(party, count, declared.columns, labels=(RESPONSE,)) for party, count in rows.items())
        holder = (self.holder or cards[-1].name) if self._meta == HIGH_LEVEL else ""
        return self._fits(cards, declared, parameters | {"holder": holder}, Meta.PUBLIC)

    def _in_new_words(self) -> tuple[Mapping[str, Sequence[float]] | None, float | Sequence[float] | None]:
        """Return prior and rates; the version before took the rates as ``prior``."""
        if not are_rates(self.prior) and not isinstance(self.prior, np.ndarray):
            return self.prior, self.rates
        if self.rates is not None:
            raise UsageError(BOTH_RATES)
        renamed("prior", "rates")
        return None, np.asarray(self.prior).tolist()

    def fit(
        self,
        X: ArrayLike | Frames,
        y: ArrayLike | str,
        sites: Sequence[object] | None = None,
        *,
        on: On | None = None,
    ) -> Self:
        """Release the low-level models, and learn the high level where it is asked for (``sites``: a label per row, rows split).

        ``on``: the ids by which frames of the parties, {name: frame}, are linked where columns are split; y names a column then.
        """
        if on is not None and self.split == "samples":
            raise UsageError('on= links the rows of parties with columns: split="samples" has the rows themselves')
        table, declared, labels = self._labelled(*self._joined(X, y, on))
        if self.split == "samples":
            whole = part(table, table.names, labels)
            tables = whole.by_site(self._dealt(table.n_rows) if sites is None else sites)
            study = self._study({name: own.n_rows for name, own in tables.items()}, declared)
        else:
            if sites is not None:
                raise UsageError('sites belong to split="samples": where columns are split, name the parties\' columns')
            study = self._study({ALL: table.n_rows}, declared)
            tables = tables_of(study, table, labels)
        result = self._released(study, tables, declared)
        self.models_, self.high_, self.calibrated_ = result.models, np.array(result.high), result.calibrated
        return self

    # --- predict -------------------------------------------------------------------------------------------------------------

    def _decisions(self, X: ArrayLike) -> list[NDArray[np.float64]]:
        """Return the linear predictors of every low-level model (rows x predictors)."""
        check_is_fitted(self)
        new, outcomes, found = self._new(X), self._outcomes, []
        for place, block in enumerate(self._blocks):
            # One for every class, where they are more than two.
            models = self.models_[place * outcomes.predictors : (place + 1) * outcomes.predictors]
            # What was learned on predictions of clipped and scaled rows, or counted along them, is applied to the same.
            if self.high_.size or block.unit or self._calibrated is not None:
                found.append(self._scaled(block, new) @ np.array([m.weights for m in models]).T)
                continue
            found.append(block.natural(new) @ np.array([m.coefficients for m in models]).T + [m.intercept for m in models])
        return found

    def _low(self, X: ArrayLike) -> list[NDArray[np.float64]]:
        """Return probabilities of every class by every low-level model."""
        return [self._outcomes.probabilities(decisions) for decisions in self._decisions(X)]

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Positive means ``classes_[1]``: the high level's decision, or log odds of the combined probability; of several classes, one each."""
        if self._calibrated is not None:
            return self._calibrated.log_odds(np.hstack(self._decisions(X)))
        low, outcomes = self._low(X), self._outcomes
        if self.high_.size:
            design: StackingDesign = self.plan_.design
            given = [p if outcomes.several else p[:, 1] for p in low]
            features = meta_rows(given, intercept=design.parameters.fit_intercept, centred=design.centred)
            high = features @ self.high_.reshape(outcomes.predictors, -1).T
            return np.log(outcomes.probabilities(high)) if outcomes.several else np.asarray(high[:, 0])
        each = np.stack(low, axis=1)
        logs = combined(each, [block.weight for block in self._blocks], self._combiner)
        return logs if outcomes.several else np.asarray(logs[:, 1] - logs[:, 0])

    @property
    def _calibrated(self) -> Calibrated | None:
        """Return how scores become probabilities; None where log odds are put together as they are, or something else is."""
        found: Calibrated | None = vars(self).get("calibrated_")
        return found if self._combiner == LOG_ODDS else None

    @property
    def _of_form(self) -> dict[str, Any]:
        """Without what is of columns alone, where rows are split: nobody is trusted with predictions there."""
        own = super()._of_form
        return {name: value for name, value in own.items() if self.split != "samples" or name not in {"meta", "parts"}}

    @property
    def _meta(self) -> str:
        """Return how low-level models are combined: as printed by a high level that is learned, of rows as of columns."""
        asked = str(self._taken("meta"))
        printed = not self._row.form.promises and self._stands("meta", self.meta)
        return HIGH_LEVEL if printed and self.split == "samples" else asked

    @property
    def _combiner(self) -> str:
        return combiner_of(self._taken("combiner"), self.split)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")
