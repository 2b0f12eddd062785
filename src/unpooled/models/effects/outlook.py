"""Outlook of a treatment effect: its standard error by made-up studies of the declared shape, and the rows that an effect needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.estimation.outlook import (
    EPSILONS,
    Expected,
    Outlook,
    Range,
    check_range,
    drawn,
    in_range,
    in_words,
    made_up_features,
    without_prior,
)
from unpooled.estimation.outlook import imagine_rounds as imagine
from unpooled.inference.drawing import ACCENT, OTHER, SOFT
from unpooled.models.effects.declared import OutcomeFamily, declared_of
from unpooled.models.effects.fit import coordinate
from unpooled.models.effects.plan import STATISTICS, compile_plan
from unpooled.privacy.table import Table
from unpooled.schedules import table
from unpooled.totals.whole_rows import SHARES, expected_missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from unpooled.models.effects.plan import EffectDesign
    from unpooled.models.effects.result import EffectResult
    from unpooled.privacy.plan import Plan, Study

_TUNED = table("outlooks")
_RUNS, _QUICK = _TUNED.whole("effect_runs"), _TUNED.whole("effect_quick_runs")
#: What is assumed where nothing is said.
RANGES, R2, SELECTION = _TUNED.effect_ranges, _TUNED.effect_explained, _TUNED.effect_selection


@dataclass(frozen=True, repr=False)
class EffectOutlook(Outlook):
    """The standard error to expect of an effect, in the outcome's own units."""

    #: The parts of the variance at the epsilon asked for: over people, and by privacy.
    sampling: float = math.nan
    privacy: float = math.nan
    #: Where people may lack a value: parts of them that do, and the standard error to expect at each, at the epsilon asked for.
    missing: tuple[tuple[float, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return super().to_dict() | {"missing": [list(pair) for pair in self.missing]}

    def __str__(self) -> str:
        said = super().__str__()
        return said + (f"\n  {self._missing()}" if self.missing else "")

    def _foot(self) -> list[str]:
        return [*super()._foot(), *([self._missing()] if self.missing else [])]

    def _missing(self) -> str:
        """Return the standard errors at several parts with gaps, in words."""
        return "at epsilon {:g} with gaps in {}".format(
            self.epsilon, ", ".join(f"{share:.0%} of the rows {error:.3g}" for share, error in self.missing)
        )

    def rows_for(self, effect: float, power: float = 0.8, confidence: float = 0.95) -> int:
        """Return the rows with which a test finds an effect of this size with this probability, at this epsilon.

        The variance over people falls like 1/n, that of the noise like 1/n^2.
        """
        if not effect or not 0 < power < 1 or not 0 < confidence < 1:
            raise UsageError("effect is not 0, and power and confidence lie between 0 and 1")
        normal = NormalDist()
        asked = (abs(effect) / (normal.inv_cdf(0.5 + confidence / 2) + normal.inv_cdf(power))) ** 2
        over, noise = self.sampling * self.rows, self.privacy * self.rows**2
        return math.ceil((over + math.sqrt(over**2 + 4 * asked * noise)) / (2 * asked))

    @property
    def drawings(self) -> tuple[tuple[str, Callable[[Any], None]], ...]:
        """Return the drawing of the standard error, and that of the power at this study's rows and at half and twice that number."""
        own = () if not math.isfinite(self.error) else (("power against the size of the effect", self._draw_power),)
        return (*super().drawings, *own)

    def _draw_power(self, axes: Any) -> None:  # noqa: ANN401 - matplotlib axes
        sizes = np.linspace(0, 5 * self.error, 101)
        for times, line in ((0.5, ":"), (1.0, "-"), (2.0, "--")):
            error = math.sqrt(self.sampling / times + self.privacy / times**2)
            power = [replace(self, points=(replace(self.at, error=error),)).power(size) for size in sizes.tolist()]
            asked = times == 1
            colour = ACCENT if asked else SOFT
            axes.plot(
                sizes, power, color=colour, linestyle=line, lw=2 if asked else 1.2, label=f"{times * self.rows:,.0f} rows"
            )
        axes.axhline(0.8, color=OTHER, lw=0.8)
        axes.set(xlabel="effect", ylabel=f"power at epsilon = {self.epsilon:g}", xlim=(0, sizes[-1]), ylim=(0, 1.02))
        axes.legend()

    def power(self, effect: float, confidence: float = 0.95) -> float:
        """Return the probability with which a test at this epsilon finds an effect of this size."""
        normal = NormalDist()
        return normal.cdf(abs(effect) / self.error - normal.inv_cdf(0.5 + confidence / 2))


def outlook(
    study: Study,
    *,
    r2: Range = R2,
    selection: Range = SELECTION,
    correlation: Range = (0.0, 0.3),
    ranges: Range = RANGES,
    quick: bool = False,
) -> EffectOutlook:
    """Return the standard error to expect against epsilon.

    ``r2``: the part of the variance of the outcome that the covariates explain; ``selection``: the deviation of the log odds of treatment;
    ``correlation`` of the covariates; ``ranges``: half a declared range in deviations.
    """
    study, left = without_prior(study)
    check_range("r2", r2, 0.0, 0.99)
    check_range("selection", selection, 0.0, 3.0)
    check_range("correlation", correlation, 0.0, 0.99)
    check_range("ranges", ranges, 0.5, 100.0)
    assumed = (r2, selection, correlation, ranges)
    grid = (study.epsilon,) if quick else sorted({*EPSILONS, study.epsilon})
    runs = _QUICK if quick else _RUNS
    rows = sum(card.rows for card in study.parties)
    expected, gaps = expected_missing(study), bool(declared_of(study).left_out)
    free = _played(study, math.inf, assumed, _QUICK)
    points, parts = [], (math.nan, math.nan)
    for epsilon in grid:
        found = _played(study, epsilon, assumed, runs)
        errors = [math.hypot(*pair) for pair in found]
        points.append(Expected(epsilon, float(np.median(errors)), min(errors), max(errors)))
        if epsilon == study.epsilon:
            parts = (float(np.median([a**2 for a, _ in found])), float(np.median([b**2 for _, b in found])))
    told = (
        in_words("R^2", r2),
        in_words("selection", selection),
        in_words("correlation", correlation),
        in_words("ranges", ranges),
        *left,
        *([f"gaps in {expected:.0%} of the rows"] if gaps else []),
    )
    missing = []
    for share in sorted({0.0, expected, *SHARES}) if gaps else ():
        met = next(p.error for p in points if p.epsilon == study.epsilon) if share == expected else None
        missing.append((share, _middle(_played(study, study.epsilon, assumed, runs, share)) if met is None else met))
    return EffectOutlook(
        "effects",
        rows,
        len(study.parties[0].columns),
        study.epsilon,
        tuple(points),
        math.nan,
        math.hypot(*free[0]),
        "standard error of the effect",
        ", ".join(told),
        sampling=parts[0],
        privacy=parts[1],
        missing=tuple(missing),
    )


def _middle(found: list[tuple[float, float]]) -> float:
    """Return the middle standard error of played studies."""
    return float(np.median([math.hypot(*pair) for pair in found]))


def _played(
    study: Study, epsilon: float, assumed: tuple[Range, ...], runs: int, share: float | None = None
) -> list[tuple[float, float]]:
    """Return (the part over people, the part by privacy) of the standard error of made-up studies; endless where nothing is identified.

    ``share``: the part of the rows with gaps, where it is not the one that the study expects.
    """
    share = expected_missing(study) if share is None else share
    plan = compile_plan(msgspec.structs.replace(study, epsilon=epsilon))
    found = []
    for run in range(runs):
        rng = np.random.default_rng([run, 11])
        result = play(plan, _rows(plan.design, [drawn(value, rng) for value in assumed], share, rng), rng)
        effect = result.effect
        if effect is None:
            found.append((math.inf, math.inf))
            continue
        sampling = max(effect.std_error**2 - effect.privacy**2, 0.0)
        found.append((math.sqrt(sampling), effect.privacy))
    return found


def play(plan: Plan[EffectDesign], table: Table, rng: np.random.Generator) -> EffectResult:
    """Return the result of one study of these rows with the noise that its plan has."""
    found: EffectResult = imagine(plan, coordinate, STATISTICS, table, rng)
    return found


def _rows(design: EffectDesign, assumed: list[float], share: float, rng: np.random.Generator) -> Table:
    """Return made-up rows: a signal of the covariates drives treatment and outcome; this part of them has a gap, in one of the columns that may."""
    declared = design.declared
    r2, selection, correlation, ranges = assumed
    features = tuple(dict.fromkeys(_features(design)))
    count = min(design.rows, _TUNED.whole("effect_rows"))
    columns, rows = made_up_features(features, count, correlation, ranges, rng)
    signal = rows @ rng.normal(size=rows.shape[1])
    signal = (signal - signal.mean()) / max(float(signal.std()), 1e-9)
    treated = rng.uniform(size=count) < 1 / (1 + np.exp(-selection * signal))
    columns[declared.treatment.name] = np.where(treated, declared.arms[1], declared.arms[0]).astype(object)
    latent = math.sqrt(r2) * signal + math.sqrt(1 - r2) * rng.normal(size=count)
    columns |= _outcome(design, latent, ranges, rng)
    gone = np.flatnonzero(rng.uniform(size=count) < share)
    may = [column.name for column in (declared.unseen, *declared.always[:1]) if column is not None]
    for k, name in enumerate(may):
        own, values = gone[k :: len(may)], np.array(columns[name])
        values[own] = np.nan if values.dtype.kind == "f" else None
        columns[name] = values
    return Table(columns)


def _features(design: EffectDesign) -> list[Any]:
    needs = {*design.declared.outcome_needs, *design.declared.propensity_needs}
    layouts = [layout for layout in (design.outcome, design.propensity) if layout is not None]
    return [column for layout in layouts for column in layout.sources if column.name in needs]


def _outcome(design: EffectDesign, latent: np.ndarray, ranges: float, rng: np.random.Generator) -> dict[str, Any]:
    declared = design.declared
    response = declared.response
    if declared.family is OutcomeFamily.SURVIVAL:
        assert declared.event is not None  # of survival
        end = declared.parameters.horizon or 1.0
        time = -np.log(rng.uniform(size=latent.size)) * end * 2 / np.exp(latent / 2)
        there = np.minimum(time, response.range[1])
        return {response.name: there, declared.event.name: (time <= there).astype(np.float64)}
    if response.categories is not None:
        return {response.name: np.where(latent > 0, response.categories[1], response.categories[0]).astype(object)}
    low, high = response.range
    if declared.logs:
        mean = (high - low) / 6 * np.exp(latent / 3)
        counts = rng.poisson(np.minimum(mean, high)).astype(np.float64)
        return {response.name: np.clip(counts if low <= 0 else mean * rng.gamma(4, 1 / 4, latent.size), low, high)}
    return {response.name: in_range(response, latent, ranges)}
