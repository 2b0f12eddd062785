"""``[parameters]`` of a stacking study, the outcomes of its fits, and how perturbed fits on the same rows cost one epsilon together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from scipy.special import expit, softmax

from unpooled.errors import StudyError, UsageError
from unpooled.families import FAMILIES
from unpooled.kernels.logistic import logistic_minimum, softmax_minimum
from unpooled.linear.declared import FormulaText, Intercept
from unpooled.privacy.accounting import SAFETY, Composition
from unpooled.privacy.classes import DEFAULT, code, places
from unpooled.privacy.declared import says
from unpooled.privacy.events import Event
from unpooled.privacy.mechanisms import LossShape, LossSign, ObjectivePerturbation, calibrated
from unpooled.privacy.origin import PRIOR, RATES, SOURCE
from unpooled.privacy.plan import TRUSTED, check_parameters
from unpooled.privacy.sensitivity import logistic_gradient
from unpooled.privacy.study import Study
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.protocol.registry import Template
from unpooled.schedules import table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.estimation.earlier import CitedRun
    from unpooled.privacy.plan import Card

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]


# --- Fits ------------------------------------------------------------------------------------------------------------------
# Perturbed fits on the same rows, calibrated so that they cost one epsilon together.

_TUNED = table("stacking")
_COVERING = _TUNED.covering
#: The automatic penalty of the mean loss, for each column and over n epsilon, by the law of b.
_AUTO = {"gamma": _TUNED.penalty_gamma, "gaussian": _TUNED.penalty_gaussian}


def expm1(x: float) -> float:
    """e^x - 1, far out as large as a float holds: it only ever asks for a smaller least penalty."""
    return math.expm1(min(x, 700.0))


@dataclass(frozen=True)
class Fit:
    """The shape of one perturbed fit."""

    #: Numbers of one linear predictor.
    columns: int
    rows: int
    #: Length of its rows.
    weight: float
    #: How far the rows with and without one of their values can be apart, in lengths of a row (Theorem S.7).
    apart: float = 0.0
    #: Length of the weights to which the penalty pulls.
    source: float = 0.0
    #: How many classes there are, and of more than two whether each is told from the rest.
    classes: int = 2
    rest: bool = False

    @property
    def softmax(self) -> bool:
        """Return True if there is a linear predictor for every class in one fit."""
        return self.classes > 2 and not self.rest  # noqa: PLR2004 - more than two classes

    @property
    def shape(self) -> LossShape:
        """Return the shape of the loss."""
        return LossShape(LossSign.SOFTMAX, self.classes) if self.softmax else LossShape(LossSign.ONE_SIGN)

    @property
    def fits(self) -> int:
        """Return the number of fits: one for every class against the rest, or one in all."""
        return self.classes if self.classes > 2 and self.rest else 1  # noqa: PLR2004

    @property
    def width(self) -> int:
        """Return the numbers of one of them."""
        return self.columns * (self.classes if self.softmax else 1)

    @property
    def curvature(self) -> float:
        """Return beta, the curvature of each factor in the bound on the determinant of a row's Jacobian."""
        return 1 / self.classes if self.softmax else FAMILIES["logistic"].curvature

    @property
    def factors(self) -> int:
        """Return the rank of what one row adds to a Jacobian."""
        return self.classes - 1 if self.softmax else 1

    @property
    def bend(self) -> float:
        """Beta q^2 / n: how much curvature one row has in the mean loss."""
        return self.curvature * self.weight**2 / self.rows

    def lost(self, penalty: float) -> float:
        """Return the cost of the Jacobians of all its fits."""
        return self.fits * self.factors * math.log1p(self.bend / penalty)

    def least_penalty(self, left: float) -> float:
        """Return the penalty at which they cost this."""
        return self.bend / expm1(left / (self.fits * self.factors))

    def reach(self, adjacency: Adjacency, unit: Unit) -> float:
        """Return the sensitivity of the sum of its gradients to one unit."""
        if self.softmax:
            zero_out = adjacency is Adjacency.ZERO_OUT and unit is Unit.RECORD
            return self.weight * math.sqrt(2.0 if zero_out else 8.0)
        whole = logistic_gradient(self.weight, self.columns, adjacency)
        if unit is Unit.RECORD or adjacency is Adjacency.REPLACE:
            return whole
        # Another row stands in its place: never farther than a replaced one, nor nearer than the whole row's vanishing.
        most = logistic_gradient(self.weight, self.columns, Adjacency.REPLACE)
        return min(most, max(whole, self.apart * self.weight))


def fits(study: Study, sizes: Sequence[Fit], penalty: float, epsilon: float) -> list[ObjectivePerturbation]:
    """Perturbed fits that together cost epsilon, where the weights q sum to 1 (Theorems S.1 and S.3; Theorem S.9 is why they share it).

    eps' = eps - sum ln(1 + beta q^2 / (n (lambda + Delta))), Delta >= 0 as large as keeps eps' >= 0.9 eps.
    """
    adjacency, unit = Adjacency(study.adjacency), Unit(study.unit)

    def made(fit: Fit, own: float, scale: float, covering: float = 0.0) -> ObjectivePerturbation:
        reach, value = fit.reach(adjacency, Unit.RECORD), fit.reach(adjacency, Unit.ATTRIBUTE)
        # The gradient of a row of length 1 is at most so long; another label moves it by at most the same.
        slope = math.sqrt(2.0) if fit.softmax else FAMILIES["logistic"].slope
        return ObjectivePerturbation(
            size=fit.width * fit.fits,
            rows=fit.rows,
            bound=fit.weight,
            penalty=own,
            scale=scale,
            reach=reach,
            covering=covering,
            factors=fit.factors,
            value_reach=None if value == reach else value,
            centre=fit.source * penalty / own,
            slope=slope,
            curvature=fit.curvature,
            label_slope=slope,
            fits=fit.fits,
            predictors=fit.classes if fit.softmax else 1,
        )

    if epsilon == math.inf:
        return [made(fit, penalty, 0.0) for fit in sizes]
    usable = epsilon * (1 - _COVERING) * (1 - SAFETY)
    penalties = [max(penalty, f.least_penalty((1 - _TUNED.kept) * usable * f.weight)) for f in sizes]
    lost = math.fsum(fit.lost(own) for fit, own in zip(sizes, penalties, strict=True))
    scale = math.fsum(fit.fits * fit.reach(adjacency, unit) for fit in sizes) / (usable - lost)
    return [
        made(fit, own, scale, epsilon * _COVERING * fit.weight / fit.fits) for fit, own in zip(sizes, penalties, strict=True)
    ]


class Noise(StrEnum):
    """The law of b."""

    AUTO = "auto"
    #: Density proportional to exp(-|b| / scale): pure epsilon.
    GAMMA = "gamma"
    #: Normal: (epsilon, delta).
    GAUSSIAN = "gaussian"


def penalty_of(penalty: float | str, columns: int, rows: int, epsilon: float, law: Noise = Noise.GAUSSIAN) -> float:
    """Return a number as it is; "auto": 0.1 d/(n epsilon), at most one half (scikit-learn's C = 1 without privacy).

    Three times as much under the Gamma law, whose b is longer: in simulations of 486 shapes (d = 5 to 80, n = 1,000 to 16,000, base rates
    .5 to .02, epsilon .3 to 3) that has the smallest mean log-loss of .03, .1, .3, 1 and 3 times d/(n epsilon).
    """
    if not isinstance(penalty, str):
        return penalty
    return 1 / rows if epsilon == math.inf else min(_TUNED.penalty_most, _AUTO[law] * columns / (rows * epsilon))


def by_law(
    study: Study,
    sizes: Sequence[Fit],
    penalties: Penalties,
    noise: Noise,
    *,
    beside: Sequence[Event] = (),
) -> Sequence[ObjectivePerturbation]:
    """Fits of the same rows: with Gaussian noise where a delta was given, and where b is then shorter.

    Where something else is released of these rows (``beside``), Gaussian fits compose with it; Gamma fits cost the epsilon that it leaves.
    """
    left = study.epsilon
    if beside and left < math.inf:
        left -= Composition(beside).epsilon(study.delta)
    gamma = fits(study, sizes, penalties(Noise.GAMMA), left)
    if study.epsilon == math.inf or noise is Noise.GAMMA or (noise is Noise.AUTO and not study.delta):
        return gamma
    gaussian = calibrated(
        fits(study, sizes, penalties(Noise.GAUSSIAN), left),
        study.epsilon,
        study.delta,
        shape=sizes[0].shape,
        replaces=study.adjacency == Adjacency.REPLACE,
        unit=Unit(study.unit),
        beside=beside,
    )
    normal, laplace = (
        math.fsum(fit.scale * fit.fits * length(fit.width) for fit in made)
        for made, length in ((gaussian, math.sqrt), (gamma, float))
    )
    return gaussian if noise is Noise.GAUSSIAN or normal < laplace else gamma


#: The penalty of the mean loss, by the law of b.
Penalties = Callable[[Noise], float]
#: From a study, the shapes of fits on the same rows, and a penalty and an epsilon: fits that cost it together.
Perturb = Callable[[Study, Sequence[Fit], float, float], list[ObjectivePerturbation]]


# --- Outcomes --------------------------------------------------------------------------------------------------------------
# Outcomes of a fit: two classes, or several together or each against the rest. Labels in, minimisers and probabilities out.

#: How more than two classes are told apart: together, or each from the rest.
MULTINOMIAL, REST = "multinomial", "one-vs-rest"
#: Probabilities of single classes this small count as nothing.
_LEAST = 1e-300


def check_way(multi_class: str) -> None:
    """Refuse a way that nobody knows."""
    if multi_class not in {MULTINOMIAL, REST}:
        msg = f"multi_class is {MULTINOMIAL!r} or {REST!r}, not {multi_class!r}"
        raise UsageError(msg)


@dataclass(frozen=True)
class Outcomes:
    """The number of classes; ``rest``: if they are more than two, each is fitted against the rest."""

    classes: int = 2
    rest: bool = False

    @property
    def several(self) -> bool:
        """Return True if there are more than two classes."""
        return self.classes > 2  # noqa: PLR2004 - two classes need one linear predictor

    @property
    def predictors(self) -> int:
        """Return the number of linear predictors of a row."""
        return self.classes if self.several else 1

    def coded(self, labels: NDArray[Any], classes: Sequence[str | float], name: str) -> NDArray[Any]:
        """-1 and 1, or the place of every label among the classes."""
        return places(labels, classes, name) if self.several else code(labels, classes, name)

    def minimum(
        self, rows: Matrix, coded: NDArray[Any], penalty: float, *, linear: Vector, centre: Vector, tolerance: float
    ) -> Vector:
        """Return the minimiser of the perturbed sum of losses, predictor by predictor; never an error, whatever rounding allows."""
        if self.several and not self.rest:
            shape = (self.classes, rows.shape[1])
            found = softmax_minimum(
                rows,
                coded,
                self.classes,
                penalty,
                linear=linear.reshape(shape),
                centre=centre.reshape(shape),
                tolerance=tolerance,
            )
            return found.ravel()
        targets = [np.where(coded == k, 1.0, -1.0) for k in range(self.classes)] if self.several else [coded]
        parts = (part.reshape(len(targets), -1) for part in (linear, centre))
        return np.concatenate(
            [
                logistic_minimum(rows, y, penalty, linear=own, centre=middle, tolerance=tolerance, best=True).coefficients
                for y, own, middle in zip(targets, *parts, strict=True)
            ]
        )

    def probabilities(self, decisions: Matrix) -> Matrix:
        """Return the probabilities of every class, from the values of the linear predictors (rows x predictors)."""
        if not self.several:
            second = expit(decisions[:, 0])
            return np.column_stack([1 - second, second])
        if not self.rest:
            return np.asarray(softmax(decisions, axis=1))
        alone = np.maximum(expit(decisions), _LEAST)
        return np.asarray(alone / alone.sum(axis=1, keepdims=True))

    def of(self, rows: Matrix, weights: Vector) -> Matrix:
        """Return probabilities of rows by released weights."""
        return self.probabilities(rows @ weights.reshape(self.predictors, -1).T)


TWO = Outcomes()


def meta_rows(probabilities: list[Matrix], *, intercept: bool, centred: bool = True) -> Matrix:
    """2 p - 1 of every low-level model, and a constant, divided by the square root of their number: rows of norm at most 1.

    Not ``centred``, it is p itself, of two classes alone.

    Of several classes, their probabilities less 1/C each, lengthened so that a certain one makes a part of length 1. Whatever is given is
    clipped first: it may come from a coordinator, and a row's length must not depend on its honesty.
    """
    inside = [np.clip(np.nan_to_num(p, nan=0.5), 0.0, 1.0) for p in probabilities]
    parts = [_signed(p) if centred else p[:, None] for p in inside]
    if intercept:
        parts.append(np.ones((parts[0].shape[0], 1)))
    return np.asarray(np.hstack(parts) * ((1 - SAFETY) / np.sqrt(len(parts))))


def _signed(p: Matrix) -> Matrix:
    """Return a part of a row, of length at most 1."""
    if p.ndim == 1:
        return np.asarray(2 * p - 1)[:, None]
    classes = p.shape[1]
    centred = (p - 1 / classes) * np.sqrt(classes / (classes - 1))
    return np.asarray(centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1.0))


# --- Parameters ------------------------------------------------------------------------------------------------------------
# ``[parameters]`` of a stacking study, and the words that its files share.

AUTO, SHORTEN, UNIT_ROWS, SCALE = "auto", "shorten", "unit", "scale"
BLOCK, PREDICTIONS, META = "block", "predictions", "meta"
LOW, HIGH = "low", "high"
#: The role of ``[trust]`` that sees predictions of single rows.
META_ROLE = "meta"
#: Grid of noisy probabilities.
GRID = 1 << 20
#: How far rates may be from adding up to 1.
_ALMOST = 1e-6
LOG_ODDS = "log-odds"
#: What is said to those who use both words for the same.
BOTH_RATES = "prior holds the rates of the classes, which is what rates is for: name them once, under rates"
BOTH_PRIORS = "source was the name of prior in the version before: name the released weights once, under prior"
COMBINERS = ("probability", "majority", "weighted-majority", LOG_ODDS)


class Meta(StrEnum):
    """Ways to combine low-level models."""

    PUBLIC = "public-weights"
    TRUSTED = TRUSTED
    PERTURBED = "perturbed"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[parameters]`` of a stacking study."""

    response: Annotated[
        str, says("Every party's own label column, under ``labels`` in its party file.", column=True, study=True, shown=True)
    ] = "y"
    classes: Annotated[
        tuple[str | int | float, ...],
        says(
            "The labels, as they stand in the data: two, of which the first is coded -1 and the second 1, or more.",
            study=True,
            shown=True,
        ),
    ] = DEFAULT
    multi_class: Annotated[
        str,
        says(
            "Of perturbation with more than two classes: one softmax fit, or one fit for each class, which all together cost the budget.",
            choices=(MULTINOMIAL, REST),
        ),
    ] = MULTINOMIAL
    split: Annotated[str, says("Whether parties hold columns or rows.", choices=("features", "samples"), shown=True)] = (
        "features"
    )
    penalty: Annotated[
        float | str,
        says(
            'lambda of the mean loss, on scaled rows; scikit-learn\'s C is 1 / (n lambda). The constant is penalised with the rest. "auto" is '
            "0.3 d / (n epsilon), 0.1 with Gaussian noise, at most one half; d is of the widest low-level model.",
            choices=(AUTO,),
        ),
    ] = AUTO
    noise: Annotated[
        str,
        says(
            'The law of the perturbation. "gamma" is pure; "gaussian" needs a ``delta``, and is what "auto" takes where there is one and it is shorter. '
            'Low-level models of the same rows compose; a high level that learns from noisy predictions is always "gamma".',
            choices=Noise,
        ),
    ] = Noise.AUTO
    rows: Annotated[
        str,
        says(
            "\"unit\" scales every row (of every party's part of it) to one length, which suits texts and spectra: predictions then depend on a row's "
            'direction alone, and ``coef_`` is of such rows. "shorten" shortens longer ones alone.',
            choices=(SHORTEN, UNIT_ROWS),
        ),
    ] = SHORTEN
    parts: Annotated[
        str,
        says(
            'Where columns are split. "shorten": a whole row has some length at most, and a party\'s part that is longer than its share of it is '
            'shortened. "scale": every part may be as long as its own bounds allow, and is multiplied by its share, as in the paper, which costs more '
            'noise. "auto" shortens, and scales in the published form.',
            choices=(AUTO, SHORTEN, SCALE),
        ),
    ] = AUTO
    norm: Annotated[
        float | None,
        says(
            "L2 bound on a centred row of one party, in the data's own units; without it what the columns' ranges allow.",
            1.0,
            study=True,
        ),
    ] = None
    fit_intercept: Intercept = True
    importance: Annotated[
        dict[str, float],
        says(
            "Where columns are split, a public number for every party: the budget's shares q_k are proportional to it; missing ones are 1, and 0 leaves a "
            "party out."
        ),
    ] = {}
    ranks: Annotated[
        tuple[float, ...],
        says(
            "Where columns are split, falling importance that is given out by rank: every party releases a noisy score of its columns, and nothing but "
            "their order is used.",
            study=True,
        ),
    ] = ()
    ranking_share: Annotated[float, says("Share of the budget that those scores cost.")] = 0.1
    probabilities_share: Annotated[
        float,
        says(
            "Share of the budget that makes probabilities of the parties' scores: a base rate, and counts of both classes along every party's score. It is "
            'used where columns of two classes are split, low-level models are combined by "log-odds", and there is a ``delta``; else, and with 0, log '
            "odds are averaged as they are."
        ),
    ] = 0.6
    holder: Annotated[
        str,
        says("The party that learns a high level. Left out: the first where columns are split, the last where rows are."),
    ] = ""
    high_share: Annotated[float, says("The part of the rows that is kept for a learned high level of a column split.")] = 0.2
    predictions_share: Annotated[
        float, says('Share of those rows\' epsilon that their noisy predictions cost (``meta="perturbed"``).')
    ] = 0.5
    prior: Annotated[
        dict[str, tuple[float, ...]],
        says("Released weights of an earlier model for each party, to which the penalty pulls instead of to 0."),
    ] = {}
    combiner: Annotated[
        str,
        says(
            'How public weights are applied. "log-odds" averages the models\' log odds (or see ``probabilities_share``): averages of probabilities pull to '
            'the base rate. "auto" is "log-odds" where columns are split, else "probability". A learned high level replaces it.',
            choices=(AUTO, *COMBINERS),
        ),
    ] = AUTO
    rates: Annotated[
        float | tuple[float, ...] | None,
        says(
            "The declared base rate of the second class, or those of all classes: what scores of privately ranked parties are taken from. Left out, they "
            "are equal.",
            0.5,
        ),
    ] = None
    formula: FormulaText = ""

    @property
    def base_rates(self) -> tuple[float, ...]:
        """Return the public rates of all classes."""
        return rates_of(self.rates, len(self.classes))


def parameters_of(study: Study) -> Parameters:
    """Return the parameters of a study, which may have the words of the version before."""
    return check_parameters(msgspec.structs.replace(study, parameters=in_new_words(study.parameters)), Parameters)


def in_new_words(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``[parameters]`` in the words of this version: what was ``source`` is ``prior``, and the rates that were ``prior`` are ``rates``."""
    found = dict(given)
    if are_rates(found.get(PRIOR)):
        if found.get(RATES) is not None:
            raise UsageError(BOTH_RATES)
        found[RATES] = found.pop(PRIOR)
    if not found.get(PRIOR, True):
        del found[PRIOR]
    if source := found.pop(SOURCE, None):
        if PRIOR in found:
            raise UsageError(BOTH_PRIORS)
        found[PRIOR] = source
    return found


def are_rates(prior: object) -> bool:
    """Return True of what the version before took as ``prior``: the rate of the second class, or a list of all rates."""
    several = list(prior) if isinstance(prior, list | tuple) else [prior]
    return bool(several) and all(isinstance(one, int | float) and not isinstance(one, bool) for one in several)


def combiner_of(combiner: str, split: str) -> str:
    """Return the combiner that is meant; refuses one that nobody knows."""
    if combiner == AUTO:
        return LOG_ODDS if split == "features" else COMBINERS[0]
    if combiner not in COMBINERS:
        msg = f"combiner is {AUTO} or one of {', '.join(COMBINERS)}, not {combiner!r}"
        raise UsageError(msg)
    return combiner


def rates_of(given: float | Sequence[float] | None, classes: int) -> tuple[float, ...]:
    """Return the public rates of all classes; refuses rates that are none."""
    if given is None:
        return (1 / classes,) * classes
    rates = tuple(float(r) for r in given) if isinstance(given, Sequence) else (1 - float(given), float(given))
    if len(rates) != classes or not all(0 < rate < 1 for rate in rates) or abs(math.fsum(rates) - 1) > _ALMOST:
        msg = f"rates lie between 0 and 1: the rate of the second of two classes, or {classes} rates that add up to 1"
        raise UsageError(msg)
    return rates


# --- Cited -----------------------------------------------------------------------------------------------------------------
# ``prior`` in a study file: the run whose models a stack starts from.

#: What must be alike for the weights of a run to mean the same: they are of scaled and coded rows.
_ALIKE: dict[str, Any] = {
    "classes": ["-1", "1"],
    "norm": None,
    "fit_intercept": True,
    "rows": "shorten",
    "importance": {},
    "split": "features",
}


@dataclass(frozen=True)
class EarlierWeights:
    """The study that starts from the models of an earlier run: its parameters and cards."""

    parameters: Mapping[str, Any]
    cards: tuple[Card, ...]

    def of_run(self, cited: CitedRun) -> dict[str, list[float]]:
        """Return the weights of every party's model of a run; refused where they would mean something else in this study."""
        key, run, study = cited.key, cited.folder, cited.plan.study
        if study.model != "stacking":
            msg = f"{key}: {run} is a run of model {study.model!r}; a stack starts from a run of stacking, which releases models to start from"
            raise StudyError(msg)
        for name, default in _ALIKE.items():
            if self.parameters.get(name, default) != study.parameters.get(name, default):
                msg = f"{key}: {run} was run with another {name}, so its weights would mean something else here"
                raise StudyError(msg)
        weights = {model.party: list(model.weights) for model in cited.result.models}
        own = {card.name: card.columns for card in self.cards}
        for name in weights:
            if own.get(name) != study.card(name).columns:
                msg = f"{key}: {run} has a model of party {name!r}; this study needs a party of that name with the same declared columns"
                raise StudyError(msg)
        return weights


def former_words(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return the names that parameters had in the version before, with what they are called now."""
    former = {name: name.replace(SOURCE, PRIOR, 1) for name in (SOURCE, f"{SOURCE}_rows", f"{SOURCE}_analysis")}
    return former | ({PRIOR: RATES} if are_rates(parameters.get(PRIOR)) else {})


# --- The new study file ----------------------------------------------------------------------------------------------------
# The new study file of stacks of classifiers.

TEMPLATE = Template.of(
    Parameters,
    "Private logistic regression: a stack of the parties' models.",
    "columns of the same people, or rows of different people (split)",
    beside_formula=(('split = "features"', 'split = "samples"'),),
)
