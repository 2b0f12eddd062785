"""Values of single rows: what two released models say of a row, and what the row contributes to the effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from unpooled.errors import PlanMismatch
from unpooled.models.effects.declared import PROPENSITY, Estimand, Estimator, OutcomeFamily
from unpooled.privacy.bounds import Coding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.models.effects.plan import EffectDesign
    from unpooled.privacy.table import Table

    Floats = NDArray[np.float64]
    Held = Mapping[str, NDArray[Any]]

#: Public numbers of a request are below this, so that every value of a row is finite.
_LARGEST = 1e9
#: The largest linear predictor.
_FARTHEST = 300.0


@dataclass(frozen=True)
class ReleasedModel:
    """A released linear predictor: of coded columns in the data's own units."""

    layout: MomentsLayout
    slopes: Floats
    constant: float

    def natural(self, held: Held) -> Floats:
        """Return the rows that the coefficients multiply."""
        made = self.layout.made
        names = [column.name for column in self.layout.features]
        raw = made.values(held, names) if made is not None else [held[name] for name in names]
        return np.asarray(Coding(self.layout.features, 1).natural(raw))

    def fitted(self, held: Held, lift: Floats) -> Floats:
        """Return the rows in the coordinates in which the model was fitted; ``lift`` leads from these to coefficients and constant."""
        natural = self.natural(held)
        return np.asarray(natural @ lift[:-1] + lift[-1])

    def predictor(self, held: Held) -> Floats:
        """Return the linear predictors of these rows."""
        return np.clip(np.nan_to_num(self.natural(held) @ self.slopes + self.constant), -_FARTHEST, _FARTHEST)


@dataclass(frozen=True)
class Models:
    """Both released models, as everybody evaluates them, and the numbers that later requests carry."""

    design: EffectDesign
    outcome: ReleasedModel
    propensity: ReleasedModel | None
    #: Of survival: the integrated baseline hazard to the horizon.
    hazard: float = 0.0
    #: Of survival: both arms' probability of still being watched, at the ends of the intervals.
    watched: Floats | None = None
    more: tuple[float, ...] = ()

    @classmethod
    def of(cls, design: EffectDesign, settings: tuple[float, ...], further: int) -> Models:
        """Return the models of a request, and this number of further numbers; refuse another count, or wild ones. No sensitivity depends on them."""
        numbers = np.asarray(settings, dtype=np.float64)
        models: list[ReleasedModel | None] = []
        at = 0
        least = sum(len(layout.names) + 1 for layout in (design.outcome, design.propensity) if layout is not None)
        survival = design.declared.family is OutcomeFamily.SURVIVAL
        ends = 2 * len(design.exits.edges) if survival else 0
        count = least + survival + ends + further
        if numbers.size != count or not (np.abs(numbers) <= _LARGEST).all():
            msg = f"this request about an effect carries {count} finite numbers"
            raise PlanMismatch(msg)
        for layout in (design.outcome, design.propensity):
            if layout is None:
                models.append(None)
                continue
            p = len(layout.names)
            models.append(ReleasedModel(layout, numbers[at : at + p], float(numbers[at + p])))
            at += p + 1
        outcome, propensity = models
        assert outcome is not None
        hazard = float(numbers[at]) if survival else 0.0
        at += survival
        watched = numbers[at : at + ends].reshape(2, -1) if ends else None
        return cls(design, outcome, propensity, hazard, watched, tuple(numbers[at + ends :].tolist()))

    @property
    def settings(self) -> tuple[float, ...]:
        """Return the numbers of a request, in the order in which :meth:`of` reads them."""
        found: list[float] = []
        for model in (self.outcome, self.propensity):
            found += [] if model is None else [*model.slopes.tolist(), model.constant]
        if self.design.declared.family is OutcomeFamily.SURVIVAL:
            assert self.watched is not None
            found += [self.hazard, *self.watched.ravel().tolist()]
        # Coefficients of a model that the noise has carried off: what follows from them is said to be nothing, and no row overflows.
        return tuple(np.clip(np.nan_to_num([*found, *self.more]), -_LARGEST, _LARGEST).tolist())


@dataclass(frozen=True)
class Rows:
    """A block of rows: arms, outcomes, and what the models say of them."""

    models: Models
    held: Held
    treated: NDArray[np.bool_]
    #: The outcome between its limits, and the weight by which those count of whom it is known.
    outcome: Floats
    known: Floats

    @classmethod
    def blocks(cls, table: Table, models: Models) -> Iterator[Rows]:
        """Blocks of a party's table."""
        declared = models.design.declared
        names = tuple(dict.fromkeys((*declared.reads, *declared.outcome_needs, *declared.propensity_needs)))
        for block in table.blocks(names):
            held = dict(zip(names, block, strict=True))
            treated = np.asarray(Coding((declared.treatment,), 1).code((held[declared.treatment.name],))[0][:, 1] > 0)
            if declared.event is None:
                raw, known = held[declared.response.name], np.ones(treated.size)
                if declared.response.categories is not None:
                    outcome = Coding((declared.response,), 1).code((raw,))[0][:, 1].astype(np.float64)
                else:
                    outcome = np.clip(raw, *declared.limits)
            else:
                outcome, known = models.design.exits.at_horizon(held, treated, models.watched)
            yield cls(models, held, treated, outcome, known)

    @property
    def propensity(self) -> Floats:
        """Return the probability of treatment that the model gives these rows, as it is."""
        assert self.models.propensity is not None
        return np.asarray(expit(self.models.propensity.predictor(self.held)))

    @property
    def kept_propensity(self) -> Floats:
        """Return the same between the declared ends."""
        least = self.models.design.declared.parameters.overlap
        return np.clip(self.propensity, least, 1 - least)

    def _under(self, arm: int) -> Held:
        """Return the rows as if all had this treatment."""
        declared = self.models.design.declared
        return {**self.held, declared.treatment.name: np.full(self.treated.size, declared.arms[arm], dtype=object)}

    def mean(self, arm: int) -> Floats:
        """Return the outcome that is expected of these rows under this treatment, between its limits."""
        return self._mean_of(self.models.outcome.predictor(self._under(arm)))

    def _mean_of(self, u: Floats) -> Floats:
        declared = self.models.design.declared
        if declared.family is OutcomeFamily.LOGISTIC:
            return np.asarray(expit(u))
        if declared.family is OutcomeFamily.SURVIVAL:
            return np.asarray(np.exp(-abs(self.models.hazard) * np.exp(np.minimum(u, 50.0))))
        return np.clip(np.exp(u) if declared.logs else u, *declared.limits)

    def moved(self, arm: int, lift: Floats) -> Floats:
        """Return how that mean moves with the outcome model's coefficients, as they were fitted, a column each."""
        held = self._under(arm)
        declared, model = self.models.design.declared, self.models.outcome
        mean = self._mean_of(model.predictor(held))
        steep = {OutcomeFamily.LINEAR: np.ones_like(mean), OutcomeFamily.LOGISTIC: mean * (1 - mean)}.get(
            declared.family, mean
        )
        if declared.family is OutcomeFamily.SURVIVAL:
            steep = mean * np.log(np.maximum(mean, 1e-300))
        return np.asarray(steep[:, None] * model.fitted(held, lift))

    # --- contributions ---------------------------------------------------------------------------------------------------

    @property
    def weights(self) -> Floats:
        """Return one over the probability of the arm that a row is in; of the effect on the treated, the odds in the control."""
        e, estimand = self.kept_propensity, self.models.design.declared.parameters.estimand
        if estimand == Estimand.TREATED:
            return np.where(self.treated, 1.0, e / (1 - e))
        return np.where(self.treated, 1 / e, 1 / (1 - e))

    @property
    def parts_of_weights(self) -> Floats:
        """Return the same as parts of the largest weight that counts."""
        return np.minimum(self.weights / self.models.design.most, 1.0)

    @property
    def standard(self) -> Floats:
        """Return the rows in the coordinates in which the propensity was fitted: standardised columns, and the constant."""
        model = self.models.propensity
        assert model is not None  # weights have one
        return model.fitted(self.held, np.array(self.models.more).reshape(len(model.layout.names) + 1, -1))

    def contributions(self) -> Floats:
        """Return what every row adds to n times the effect, as the estimator has it."""
        design = self.models.design
        if design.estimator is Estimator.OUTCOME:
            return self.mean(1) - self.mean(0)
        sign = np.where(self.treated, 1.0, -1.0)
        if design.declared.parameters.estimand == Estimand.TREATED:
            return np.asarray(sign * self.weights * self.known * (self.outcome - self.mean(0)))
        means = self.mean(0), self.mean(1)
        residual = self.outcome - np.where(self.treated, means[1], means[0])
        whole = sign * self.weights * self.known * residual
        return np.asarray(whole if design.estimator is Estimator.IPTW else whole + means[1] - means[0])

    def pieces(self) -> list[Floats]:
        """Return contributions about their middles in parts of their bounds: of all rows, or of each arm."""
        design, values = self.models.design, self.contributions()
        if design.estimator is not Estimator.IPTW:
            centre, bound = self.models.more
            about = centre * self.treated if design.declared.parameters.estimand == Estimand.TREATED else centre
            return [(values - about) / bound]
        return [
            np.where(self.treated == arm, values / bound, 0.0)
            for arm, bound in zip((False, True), self.models.more, strict=True)
        ]

    def slopes(self) -> list[Floats]:
        """Return how contributions move with coefficients, in parts of the largest length: a row's vector for each model."""
        design, more = self.models.design, np.array(self.models.more)
        found = []
        for name, size in design.sizes.items():
            layout = design.propensity if name == PROPENSITY else design.outcome
            assert layout is not None  # it has a size
            count = size * (len(layout.names) + 1)
            longest, lift, more = more[0], more[1 : count + 1].reshape(-1, size), more[count + 1 :]
            found.append((self._by_propensity(lift) if name == PROPENSITY else self._by_outcome(lift)) / longest)
        return found

    def _by_propensity(self, lift: Floats) -> Floats:
        design, model = self.models.design, self.models.propensity
        assert model is not None  # it has a slope
        e, least = self.propensity, design.declared.parameters.overlap
        inside = (e > least) & (e < 1 - least)  # where it is cut, it does not move
        treated = design.declared.parameters.estimand == Estimand.TREATED
        own = self.mean(0) if treated else np.where(self.treated, self.mean(1), self.mean(0))
        residual = np.where(inside, self.known * (self.outcome - own), 0.0)
        odds = np.divide(e, 1 - e, out=np.ones_like(e), where=inside)
        steep = np.where(self.treated, 0.0, odds) if treated else np.where(self.treated, 1 / odds, odds)
        return np.asarray((-residual * steep)[:, None] * model.fitted(self.held, lift))

    def _by_outcome(self, lift: Floats) -> Floats:
        design, moved = self.models.design, [self.moved(arm, lift) for arm in (0, 1)]
        if design.estimator is Estimator.OUTCOME:
            return moved[1] - moved[0]
        weights = self.weights * self.known
        if design.declared.parameters.estimand == Estimand.TREATED:
            return np.where(self.treated, -1.0, weights)[:, None] * moved[0]
        used = np.where(self.treated, 1 - weights, 1.0)[:, None] * moved[1]
        return np.asarray(used - np.where(self.treated, 1.0, 1 - weights)[:, None] * moved[0])
