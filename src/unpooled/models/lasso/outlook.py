"""Outlook of a LASSO study of some shape: made-up columns, the noise of its plan, and the fit that its form makes of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.estimation.outlook import (
    MADE_UP,
    SHAPES,
    MadeUp,
    Outlook,
    Range,
    check_range,
    checked_shapes,
    drawn,
    in_words,
    shapes_in_words,
    simulated,
    standard_columns,
    without_prior,
)
from unpooled.kernels.l1_ball import nearest
from unpooled.models.lasso.declared import Coupling
from unpooled.models.lasso.frank_wolfe_rows import RESPONSE_WEIGHT, design_of, grids
from unpooled.models.lasso.joint import Correlations, Form, compile_plan, form_of
from unpooled.models.lasso.moments_fit import OwnMoments, fitting, heard_rows, in_ball, penalised
from unpooled.models.lasso.moments_rows import (
    AXIS,
    AXIS_CAP,
    CHOOSE,
    CLIP,
    CROSSING,
    PAIR,
    PRODUCTS,
    SUMS,
    longest_row,
)
from unpooled.schedules import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.models.lasso.frank_wolfe_rows import LassoDesign
    from unpooled.models.lasso.moments_fit import Axis, Products
    from unpooled.models.lasso.moments_rows import StandardDesign
    from unpooled.privacy.plan import Plan, Study

    Vector = NDArray[np.float64]
    Index = NDArray[np.intp]


# --- Outlook of the rounds -------------------------------------------------------------------------------------------------
# Outlook of the rounds of a study of this shape, before any data are touched.
#
# The algorithm is simulated in the space of its scores. Columns are taken as independent, with variance ``VARIANCE`` on their coded
# scale if nothing else is said; ``relevant`` of them carry the signal, with coefficients from 1/2 to 1 of the largest that fill the ball, and half of the
# response's variance is theirs. Then a score is the gradient plus noises whose deviations the plan knows: of the sample, of the released columns, and
# of the pick. Nothing of the size of the data is made.

_ROUNDS, _TUNED = table("frank_wolfe"), table("outlooks")
#: Settings that are tried: T, the part of the refit, and those of columns, picks and scores.
ROUNDS, REFITS = tuple(map(int, _ROUNDS.several("tried_rounds"))), _ROUNDS.several("tried_refits")
SHARES = tuple(
    zip(_ROUNDS.several("tried_columns"), _ROUNDS.several("tried_picks"), _ROUNDS.several("tried_scores"), strict=True)
)
#: Of a coded column: that of a normal one clipped at two deviations is 0.2, of a uniform one 0.33.
VARIANCE = _TUNED.lasso_variance


@dataclass(frozen=True)
class ScoreOutlook:
    """The averages that the simulated study came to."""

    #: Relative excess risk (f(x) - f*) / (f(0) - f*).
    excess: float
    #: The part of the relevant columns that was released.
    found: float
    #: C in the last round.
    clip: float


def outlook_of_rounds(
    study: Study, *, relevant: int = 6, variance: float = VARIANCE, repetitions: int = 30, seed: int = 0
) -> ScoreOutlook:
    """Simulate this study."""
    if relevant < 1 or not 0 < variance <= 1:
        raise UsageError("relevant is at least 1, and the variance of columns coded to [-1, 1] between 0 and 1")
    rng, design = np.random.default_rng(seed), design_of(study)
    runs = [_Run(design, study, relevant, variance, rng) for _ in range(repetitions)]
    means = np.mean([run.play(study) for run in runs], axis=0)
    return ScoreOutlook(*(float(value) for value in means))


def recommend(
    study: Study, *, relevant: int = 6, variance: float = VARIANCE, repetitions: int = 40
) -> tuple[dict[str, object], ScoreOutlook]:
    """Return the settings of this study's rounds and budget whose simulation came out best, and what it came to."""
    found = []
    for rounds, refit, shares in product(ROUNDS, REFITS, SHARES):
        settings: dict[str, object] = {"rounds": rounds, "refit": refit, "shares": shares}
        design = msgspec.structs.replace(study, parameters={**study.parameters, **settings, "shares": list(shares)})
        found.append((outlook_of_rounds(design, relevant=relevant, variance=variance, repetitions=repetitions), settings))
    best, settings = min(found, key=lambda pair: pair[0].excess)
    return settings, best


class _Run:
    """One simulated data set."""

    def __init__(self, design: LassoDesign, study: Study, relevant: int, variance: float, rng: np.random.Generator) -> None:
        width, radius = sum(design.widths.values()), design.eta
        relevant = min(relevant, width)
        size = min(width, _TUNED.whole("lasso_simulated") + relevant)
        self._variance = variance
        self._asked, self._rng, self._rows, self._radius = design, rng, study.parties[0].rows, design.radius(study)
        self._truth = np.zeros(size)
        self._truth[:relevant] = np.linspace(1.0, 0.5, relevant)
        self._truth *= radius / self._truth.sum()
        # The largest of c equal scores with Gumbel noise is one of them plus log c.
        self._crowd = np.zeros(size)
        if size > relevant:
            self._crowd[relevant:] = math.log((width - relevant) / (size - relevant))
        owner = rng.permutation(np.arange(size) % len(design.widths))
        self._owned = [own for k in range(len(design.widths)) if (own := np.flatnonzero(owner == k)).size]
        # The residual varies as much as the signal.
        spread = math.sqrt(2 * self._variance * float(self._truth @ self._truth))
        self._sample = spread * self._blur()
        #: Of every released column, what its noise does to the scores.
        self._released: dict[int, Vector] = {}

    def _blur(self) -> Vector:
        """Return the product of every column with n independent standard normal numbers, over n."""
        return self._rng.normal(size=self._truth.size) * math.sqrt(self._variance / self._rows)

    def play(self, study: Study) -> tuple[float, float, float]:
        """Excess risk, part of the relevant columns released, and the last C."""
        design, x, end = self._asked, np.zeros(self._truth.size), 0.0
        for t in range(design.parameters.rounds):
            scores, reach, end = self._scores(x)
            gamma = design.step(study, t)
            x *= 1 - gamma
            for column, sign in self._steps(scores, reach):
                x[column] += gamma * self._radius * sign
                if column not in self._released:
                    self._released[column] = design.column_scale * self._blur()
        if design.refits:
            x = self._refitted()
        relevant = np.flatnonzero(self._truth)
        found = np.isin(relevant, list(self._released)).mean()
        excess = np.square(x - self._truth).sum() / np.square(self._truth).sum()
        return float(excess), float(found), end

    def _scores(self, x: Vector) -> tuple[Vector, float, float]:
        """Descents of all columns, how far one unit moves them, and C."""
        p, noise = self._asked.parameters, self._asked.column_scale * float(np.linalg.norm(x))
        eta = self._asked.eta
        end = p.clip or max(eta, min(2 * noise, self._asked.ceiling))
        slope = math.erf(end / (noise * math.sqrt(2))) if noise else 1.0  # what clipping leaves of a small change
        blur = sum((x[j] * own for j, own in self._released.items()), np.zeros(x.size))
        reach = 2 * (min(end, 4 * noise + eta) + p.response_bound) / self._rows
        return self._variance * (self._truth - slope * x) + self._sample - slope * blur, reach, end

    def _steps(self, scores: Vector, reach: float) -> list[tuple[int, float]]:
        """Return the signed columns that are stepped to: every party's noisy pick, or the best of them."""
        design, rng = self._asked, self._rng
        scale = 2 * reach / design.choice_epsilon
        picks = []
        for own in self._owned:
            signed = np.concatenate([scores[own], -scores[own]])
            best = int(np.argmax(signed + scale * (np.tile(self._crowd[own], 2) + rng.gumbel(size=signed.size))))
            value = signed[best] + design.score_multiplier * reach * rng.normal()
            picks.append((value, int(own[best % own.size]), 1.0 if best < own.size else -1.0))
        moving = [max(picks)] if design.coupling is Coupling.BALL else picks
        return [(column, sign) for _, column, sign in moving]

    def _refitted(self) -> Vector:
        """Return the coefficients from noisy products with the response: independent columns need no others."""
        p, chosen = self._asked.parameters, list(self._released)
        noise = 2 * self._asked.refit_multiplier * p.response_bound / (RESPONSE_WEIGHT * self._rows)
        correlations = (
            self._variance * self._truth[chosen] + self._sample[chosen] + noise * self._rng.normal(size=len(chosen))
        )
        threshold = noise * math.sqrt(2 * math.log(len(chosen)))
        fitted = np.sign(correlations) * np.maximum(np.abs(correlations) - threshold, 0) / self._variance
        x = np.zeros(self._truth.size)
        x[chosen] = fitted
        balls = [np.arange(x.size)] if self._asked.coupling is Coupling.BALL else self._owned
        for own in balls:
            x[own] = nearest(x[own], self._radius)
        return x


# --- Outlook ---------------------------------------------------------------------------------------------------------------
# Outlook of a LASSO study of some shape: made-up columns, the noise of its plan, and the fit that its form makes of them.

_ROWS, _NEW, _COLUMNS = _TUNED.whole("lasso_rows"), _TUNED.whole("lasso_new_rows"), _TUNED.whole("lasso_columns")
#: What is assumed where nothing is said: the part of the variance of y that columns explain, and how they correlate.
SIGNAL, CORRELATION = _TUNED.pair("lasso_signal"), _TUNED.pair("lasso_correlation")
#: How many deviations of y half of its range is taken to have.
_RANGE = _TUNED.lasso_range
#: An epsilon without noise to speak of, at which the study keeps its form.
_QUIET = 1e4


def outlook(
    study: Study,
    *,
    relevant: int = 6,
    r2: Range = SIGNAL,
    correlation: Range = CORRELATION,
    shapes: str | tuple[str, ...] = SHAPES,
    seed: int = 0,
    quick: bool = False,
) -> Outlook:
    """Return squared error of predictions over the variance of y, against epsilon."""
    check_range("r2", r2, 0.0, 1.0)
    check_range("correlation", correlation, 0.0, 0.999)
    check_range("relevant", relevant, 1, 1e6)
    shapes = checked_shapes(shapes)
    study, left = without_prior(study)
    plans: dict[float, Plan] = {}
    alone: list[float] = []

    def run(epsilon: float, k: int) -> tuple[float, float]:
        rng = np.random.default_rng([seed, k])
        at = min(epsilon, _QUIET)
        asked = msgspec.structs.replace(study, epsilon=at)
        part, shape = drawn(r2, rng), shapes[k % len(shapes)]
        if form is Form.ROUNDS and math.isinf(epsilon):
            return 1 - part, 1 - part
        if form is Form.ROUNDS:
            # The planner's own simulation, of independent columns.
            found = outlook_of_rounds(asked, relevant=relevant, repetitions=1, seed=int(rng.integers(1 << 30)))
            return 1 - part + part * found.excess, 1 - part
        if at not in plans:
            plans[at] = compile_plan(asked)
        related = drawn(correlation, rng)
        if form is Form.JOINT:
            rows = MadeUp.of(plans[at].design, part, related, _RANGE, rng, int(relevant), shape)
            if math.isinf(epsilon):
                alone.append(rows.alone())
                return rows.without_privacy(), 1 - part
            return joint_error(rows, study, rng), 1 - part
        return _error(plans[at], int(relevant), part, related, shape, rng), 1 - part

    form = form_of(study)
    made = {Form.ROUNDS: math.inf, Form.JOINT: MADE_UP}.get(form, _ROWS)
    points, free = simulated(study.epsilon, run, part=min(1.0, made / study.parties[0].rows), quick=quick)
    words = [f"{relevant} relevant columns", in_words("R^2", r2)]
    if form is Form.ROUNDS:
        words.append("independent columns")
    else:
        words += [shapes_in_words(shapes), in_words("correlation of columns", correlation)]
    if form is not Form.ROUNDS and study.parameters.get("radius_in_half_ranges") is not None:
        words.append("a radius that just holds the coefficients")
    words += left
    return Outlook(
        f"lasso ({form.value})",
        study.parties[0].rows,
        sum(len(card.columns) for card in study.parties),
        study.epsilon,
        points,
        1.0,
        free,
        "squared error of predictions / variance of y",
        ", ".join(words),
        nothing_released=min(float(np.mean(alone)), 1.0) if alone else math.nan,
    )


def joint_error(rows: MadeUp, study: Study, rng: np.random.Generator) -> float:
    """Return the error of the fit to joint moments; a radius is taken to just hold the coefficients without noise."""
    radius, columns = None, rows.design.layout.features
    if study.parameters.get("radius_in_half_ranges") is not None:
        slopes, _ = rows.pooled(columns)
        radius = float(np.abs(slopes * rows.design.layout.half_widths[: slopes.size]).sum())
    return rows.error(*Correlations.of(rows.moments(rng)).slopes(radius))


def _error(
    plan: Plan[StandardDesign], relevant: int, r2: float, correlation: float, shape: str, rng: np.random.Generator
) -> float:
    """Return one made-up study of the default form: standardised columns of this shape, sums over rows scaled to the study's."""
    design = plan.design
    lost = _mean_error(plan) ** 2
    if design.mean_only:
        return 1 + lost
    names, rows = design.parties, design.rows
    share = min(1.0, _COLUMNS / sum(design.widths.values()))
    widths = [max(design.kept[name], int(design.widths[name] * share)) for name in names]
    ends = np.cumsum([0, *widths])
    size, relevant = int(ends[-1]), min(relevant, int(ends[-1]))
    truth = np.zeros(size)
    truth[rng.choice(size, relevant, replace=False)] = rng.uniform(0.5, 1, relevant) * rng.choice([-1, 1], relevant)
    count = min(rows, _ROWS)
    x, new = np.split(standard_columns(count + _NEW, size, correlation, shape, rng), [count])
    truth *= math.sqrt(r2 / float(np.var(new @ truth)))
    y = x @ truth + math.sqrt(1 - r2) * rng.normal(size=count)
    cross, owns, chosen = x.T @ y / count, [], []
    for k, name in enumerate(names):
        own = np.arange(ends[k], ends[k + 1])
        if design.picks(name):
            own = _picked(plan, name, own, cross, rng)
        chosen.append(own)
        owns.append(_noisy(plan, name, x[:, own].T @ x[:, own] / count, cross[own], rng))
    scale = np.ones(sum(map(len, chosen)))
    if design.parameters.bound is None:
        steps = fitting(owns, scale, lambda g, c, p, w: (penalised(g, c, p, w), 0.0), design.stages, 1 / math.sqrt(rows))
    else:
        # The ball is taken to be as large as the true coefficients ask for, as the radius of a study should be.
        radius = float(np.abs(truth).sum())
        steps = fitting(owns, scale, lambda g, c, _, w: (in_ball(g, c, w, radius), 0.0), design.stages)
    b, products = None, None
    while b is None:
        try:
            axes = steps.send(products)  # type: ignore[arg-type]
        except StopIteration as ended:
            b = ended.value[0]
        else:
            products = _products(plan, axes, [x[:, own] for own in chosen], rng)
    off = np.zeros(size)
    off[np.concatenate(chosen)] = b
    return float(1 - r2 + np.mean((new @ (off - truth)) ** 2) + lost)


def _mean_error(plan: Plan) -> float:
    """Return the standard deviation of the noise in the response's mean, in deviations of the response."""
    mechanism: Any = plan.release(plan.design.parties[0], SUMS).mechanism
    width = 0 if plan.design.mean_only else plan.design.widths[plan.design.parties[0]]
    steps = grids(plan.design.rows)[0] * plan.design.rows
    return float(mechanism.deviations[2 * width] / steps * _RANGE)


def _picked(
    plan: Plan[StandardDesign], name: str, own: NDArray[np.intp], cross: Vector, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Return the columns that noisy picks of the planned epsilon keep."""
    design = plan.design
    mechanism: Any = plan.release(name, CHOOSE).mechanism
    epsilon = dict(mechanism.epsilon)[mechanism.unit]
    scale = 4 * PAIR / epsilon / design.rows if math.isfinite(epsilon) else 0.0
    # Both signs of every column are candidates: the larger of two Gumbel numbers where there is no signal.
    crowd = math.log(max(design.widths[name] / own.size, 1.0))
    left = list(range(own.size))
    for _ in range(design.kept[name]):
        values = np.abs(cross[own[left]]) + scale * (crowd + rng.gumbel(size=len(left)))
        left.pop(int(np.argmax(values)))
    return np.delete(own, left)


def _noisy(plan: Plan[StandardDesign], name: str, gram: Vector, cross: Vector, rng: np.random.Generator) -> OwnMoments:
    design = plan.design
    mechanism: Any = plan.release(name, PRODUCTS).mechanism
    noise = mechanism.deviations / (float(design.grid(name)) ** 2 * design.rows)
    count, back = cross.size, CLIP / design.radius(name)
    upper = np.triu(rng.normal(size=(count, count)), 1) * (noise[count] if count > 1 else 0.0)
    gram = gram + upper + upper.T + np.diag(rng.normal(size=count) * noise[0])
    return OwnMoments(gram, cross + noise[-1] * back * rng.normal(size=count), float(noise[0]), float(noise[-1]) * back)


def _products(plan: Plan[StandardDesign], axes: list[Axis], x: list[Vector], rng: np.random.Generator) -> Products:
    design = plan.design
    first, second = grids(design.rows)
    scores = [np.clip(part @ axis.direction, -AXIS_CAP, AXIS_CAP) for part, axis in zip(x, axes, strict=True)]
    exact = np.array([[float(s @ t) / s.size for t in scores] for s in scores])
    variance = np.zeros_like(exact)
    for k, name in enumerate(design.parties):
        axis, crossing = (plan.release(name, kind).mechanism.deviations for kind in (AXIS, CROSSING))  # type: ignore[attr-defined]
        heard = float(axis[0]) * AXIS_CAP / first
        # Shortened rows leave about what they leave of noise alone.
        _, kept = heard_rows(heard * rng.normal(size=(_ROWS, len(axes) - 1)), heard)
        unit = AXIS_CAP / first / second * longest_row(len(axes) - 1, heard) / design.rows
        variance[k] = ((float(crossing[0]) * unit) ** 2 + (1 + heard**2) / design.rows) / kept**2
    return exact + np.sqrt(variance) * rng.normal(size=exact.shape), variance
