"""Parameters of a PRIDE study and the families that they name, and checks that they fit together."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
import numpy as np
from scipy.special import expit, softmax

from unpooled.errors import DataError, PrivacyLeakWarning, StudyError, UsageError, listed, warn_caller
from unpooled.estimation.earlier import (
    ALIKE,
    ANY,
    DrawnModel,
    EarlierCoefficients,
    ResponseKind,
    with_response,
)
from unpooled.estimation.parameters import SHARE, WHOLE, WORD
from unpooled.families import FAMILIES, Family
from unpooled.families.gamma import Gamma
from unpooled.families.gaussian import Gaussian
from unpooled.families.logistic import Logistic
from unpooled.families.names import refused_family
from unpooled.families.negative_binomial import NegativeBinomial
from unpooled.families.poisson import Poisson
from unpooled.families.quantile import HALF_WIDTH, Quantile
from unpooled.kernels.joint_newton import JointPath, ProportionalOdds, SoftmaxLoss, contrasts
from unpooled.kernels.survival import PartialLikelihood
from unpooled.linear.declared import EarlierModels, Intercept
from unpooled.models.pride.gram import OTHERS, Share, features, raised
from unpooled.privacy.bounds import text_of
from unpooled.privacy.classes import DEFAULT, Classes, check_classes
from unpooled.privacy.declared import says
from unpooled.protocol.registry import COLUMNS, Template
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.kernels.joint_newton import JointLoss
    from unpooled.models.pride.gram import Kernel
    from unpooled.privacy.plan import Card

    Vector = NDArray[np.float64]
    Matrix = NDArray[np.float64]


# --- Families of joint losses ----------------------------------------------------------------------------------------------
# Families whose loss is no sum over rows of one number each: Cox's partial likelihood, several classes, ordered levels.
#
# They are fitted as the others are, on [X_k, Z] or over the others' Gram matrix (THEORY.md, P.10): ``beta_k = X_k' V`` with one column of V
# for each decision of a row, at no further cost in privacy.

#: Thresholds of levels that do not occur lie no farther out than this.
_FAR = 30.0


@dataclass(frozen=True)
class JointFamily(ABC):
    """A loss of all rows together; responses as :meth:`loss` takes them."""

    name: ClassVar[str]
    #: Why its coefficients are not published; empty where a row of length 1 pulls at all of them by at most ``pull``.
    unpublished: ClassVar[str] = ""
    pull: ClassVar[float] = math.inf

    @abstractmethod
    def loss(self, y: Matrix, *, fit_intercept: bool) -> JointLoss:
        """For these responses."""

    @abstractmethod
    def told(self, loss: JointLoss, coefficients: Matrix, shared: Vector) -> tuple[Matrix, Vector]:
        """Return coefficients and constants as they are kept: of the decisions that the family's predictions are made of."""

    @abstractmethod
    def check(self, y: Matrix) -> None:
        """Refuse responses that are none of this family."""


@dataclass(frozen=True)
class Cox(JointFamily):
    """Proportional hazards of censored times, ties by Breslow; responses are (time, 1 for an event and 0 for the end of observation)."""

    name: ClassVar[str] = "cox"
    unpublished: ClassVar[str] = (
        "a partial likelihood is no sum over rows (a row is in others' risk sets), so there is no bound on what one row moves"
    )

    def loss(self, y: Matrix, *, fit_intercept: bool) -> PartialLikelihood:  # noqa: ARG002 - the baseline hazard takes its place
        """Return Breslow's partial likelihood."""
        return PartialLikelihood(np.ascontiguousarray(y[:, 0]), np.ascontiguousarray(y[:, 1]))

    def told(self, loss: JointLoss, coefficients: Matrix, shared: Vector) -> tuple[Matrix, Vector]:  # noqa: ARG002
        """Return log hazard ratios; no constant."""
        return coefficients[:, 0], np.zeros(1)

    def check(self, y: Matrix) -> None:
        """Times are above 0, events are 0 and 1."""
        if not np.isfinite(y).all() or (y[:, 0] <= 0).any():
            raise ValueError("times of a Cox regression are positive finite numbers")
        if not np.isin(y[:, 1], (0.0, 1.0)).all():
            raise ValueError("events of a Cox regression are 1 (it happened) and 0 (observation ended)")


@dataclass(frozen=True)
class Multinomial(JointFamily):
    """Softmax of C unordered classes, all of which have coefficients (they sum to 0); responses are 0 .. C - 1."""

    name: ClassVar[str] = "multinomial"
    pull: ClassVar[float] = math.sqrt(2.0)
    classes: int = 2

    def loss(self, y: Matrix, *, fit_intercept: bool) -> SoftmaxLoss:
        """-log p."""
        return SoftmaxLoss(y[:, 0].astype(np.intp), self.classes, fit_intercept)

    def told(self, loss: JointLoss, coefficients: Matrix, shared: Vector) -> tuple[Matrix, Vector]:  # noqa: ARG002
        """Return a column, and a constant, for every class."""
        basis = contrasts(self.classes)
        return coefficients @ basis.T, basis @ shared if shared.size else np.zeros(self.classes)

    def check(self, y: Matrix) -> None:
        """Classes were coded when they were read."""


@dataclass(frozen=True)
class Ordinal(JointFamily):
    """Proportional odds of J ordered levels: logit P(y > level j) = u - s_j; responses are 0 .. J - 1."""

    name: ClassVar[str] = "ordinal"
    unpublished: ClassVar[str] = "there is no proof yet of how far one row moves the thresholds"
    classes: int = 2

    def loss(self, y: Matrix, *, fit_intercept: bool) -> ProportionalOdds:  # noqa: ARG002 - thresholds take its place
        """-log of a difference of two logistic functions."""
        return ProportionalOdds(y[:, 0].astype(np.intp), self.classes)

    def told(self, loss: JointLoss, coefficients: Matrix, shared: Vector) -> tuple[Matrix, Vector]:
        """Return the common coefficients; a constant -s_j for every level but the last."""
        assert isinstance(loss, ProportionalOdds)
        return coefficients[:, 0], -np.clip(loss.thresholds(shared), -_FAR, _FAR)

    def check(self, y: Matrix) -> None:
        """Levels were coded when they were read."""


@dataclass(frozen=True)
class JointDesignPath:
    """Solutions on a design whose first columns are the party's own."""

    family: JointFamily
    inner: JointPath
    design: Matrix
    own: int

    @classmethod
    def of(cls, family: JointFamily, design: Matrix, own: int, response: Matrix, *, fit_intercept: bool) -> JointDesignPath:
        """Return the path for a party's response."""
        loss = family.loss(response, fit_intercept=fit_intercept)
        return cls(family, JointPath.of(design, loss, centred=fit_intercept), design, own)

    @property
    def squares(self) -> Vector:
        """Return squared singular values of the design."""
        return self.inner.squares

    def evidence_alpha(self) -> float:
        """Return the penalty of largest marginal likelihood."""
        return self.inner.evidence_alpha()

    def cross_validated(self, alphas: Sequence[float] | Vector, folds: Sequence[NDArray[np.intp]]) -> Vector:
        """Return for every penalty the loss that held-out rows add."""
        return self.inner.cross_validated(alphas, folds)

    def solve(self, alpha: float) -> Share:
        """Return the coefficients of the own columns and of the received ones."""
        found = self.inner.minimum(alpha)
        coefficients, mean = self.family.told(self.inner.loss, found.coefficients, found.shared)
        # Decisions at the columns' means are the constants; those of Cox are counted from there.
        constant = mean - self.inner.column_means @ coefficients
        return Share(coefficients[: self.own], coefficients[self.own :], constant, mean, found.decisions[:, 0])


@dataclass(frozen=True)
class GramJointPath:
    """Solutions over the others' Gram matrix: beta_k = X_k' V, with the kernel's e_0 as effects of every row's decisions."""

    family: JointFamily
    kernel: Kernel
    path: JointPath

    @classmethod
    def of(cls, family: JointFamily, kernel: Kernel, response: Matrix, *, fit_intercept: bool) -> GramJointPath:
        """Return the path for a party's response."""
        loss = family.loss(response, fit_intercept=fit_intercept)
        path = JointPath.of(features(kernel), loss, centred=fit_intercept, outside=kernel.outside)
        return cls(family, kernel, path)

    @property
    def squares(self) -> Vector:
        """Return squared singular values of the features."""
        return self.path.squares

    def evidence_alpha(self) -> float:
        """Return the penalty of largest marginal likelihood."""
        return self.path.evidence_alpha()

    def cross_validated(self, alphas: Sequence[float] | Vector, folds: Sequence[NDArray[np.intp]]) -> Vector:
        """Return for every penalty the loss that held-out rows add, their own effects unknown."""
        return self.path.cross_validated(alphas, folds)

    def solve(self, alpha: float) -> Share:
        """Return the party's share: F's coefficients are F'V, so U'V stands in them."""
        found = self.path.minimum(alpha)
        coefficients, mean = self.family.told(self.path.loss, found.coefficients, found.shared)
        inside = (coefficients[: self.kernel.own.rank].T / raised(self.kernel)).T
        return self.kernel.share(inside, mean, found.decisions[:, 0])


JOINT: dict[str, type[JointFamily]] = {family.name: family for family in (Cox, Multinomial, Ordinal)}


# --- Levels ----------------------------------------------------------------------------------------------------------------
# Several classes, or ordered levels: declared and public, distinguished in words, and coded by their place.


def check_levels(classes: Sequence[str | float]) -> None:
    """Refuse declared classes, or ordered levels, that a column of labels could not tell apart."""
    texts = [text_of(each) for each in classes]
    numbers = [number for text in texts if not math.isnan(number := _number(text))]
    finite = all(isinstance(each, str) or math.isfinite(each) for each in classes)
    alike = len(set(texts)) < len(texts) or len(set(numbers)) < len(numbers)
    if len(texts) < 2 or alike or "" in texts or not finite:  # noqa: PLR2004 - one class is no choice
        raise UsageError("classes are two or more different labels: words, or finite numbers")


def places(labels: NDArray[np.generic], classes: Sequence[str | float], name: str) -> Vector:
    """Return the place of every label among the declared classes, from 0; any other label is refused, unnamed."""
    found = np.full(labels.shape[0], -1.0)
    for k, each in enumerate(classes):
        text = text_of(each)
        found[np.asarray(labels == (text if labels.dtype == object else _number(text)), dtype=np.bool_)] = k
    if (found < 0).any():
        msg = f"column {name!r} must hold the declared classes, {listed([text_of(each) for each in classes])}, and nothing else"
        raise DataError(msg).at(column=name)
    return found


def _number(text: str) -> float:
    """Return the number that a label stands for, nan for words; booleans are stored as 0 and 1."""
    try:
        return float({"false": "0", "true": "1"}.get(text.lower(), text))
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class Levels(Classes):
    """Two or more labels: in the order of :func:`numpy.unique`, or from the lowest level up as they were declared."""

    @classmethod
    def declared(
        cls, classes: Sequence[object] | None, y: ArrayLike | None = None, *, ordered: bool, warn: bool = True
    ) -> Levels:
        """Return the levels that a caller passed as ``classes``; None reads them off ``y`` with a warning."""
        if classes is None and y is None:
            raise UsageError("a plan needs the classes: pass classes=(first, second, ..)")
        given = np.asarray(list(classes)) if classes is not None else np.unique(np.asarray(y))
        # NumPy makes text of numbers that stand beside text: then they are not what the data hold.
        mixed = classes is not None and given.dtype.kind == "U" and not all(isinstance(each, str) for each in classes)
        if given.ndim != 1 or mixed or given.dtype.kind not in "biufUO":
            raise UsageError("classes are labels of one kind, text or numbers, each once: classes=(first, second, ..)")
        if classes is None and given.size == 1:
            raise UsageError("Classifier can't train when only one class is present.")
        check_levels(given.tolist())
        if classes is None and warn:
            message = (
                "no classes were declared, so they were read off the labels: the result is for exploration only and carries no "
                "privacy guarantee. Pass classes=(first, second, ..) to get one."
            )
            warn_caller(message, PrivacyLeakWarning)
        return cls(given if ordered else np.unique(given), derived=classes is None)

    @property
    def texts(self) -> tuple[str, ...]:
        """All of them as a study's parameters and a plan's hash have them."""
        return tuple(map(text_of, self.labels.tolist()))

    def column(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return the labels as a party's table holds them; one that is none of the classes is refused, without naming it or its row."""
        known, words = np.zeros(y.shape[0], dtype=np.bool_), np.empty(y.shape[0], dtype=object)
        for label in self.labels:
            same = np.asarray(y == label, dtype=np.bool_)
            known |= same
            words[same] = str(label)
        if not known.all():
            raise DataError("y holds a label that is none of the declared classes: correct the labels, or declare others")
        if self.labels.dtype.kind in "biuf":
            return np.asarray(y)
        if self.labels.dtype.kind == "U":
            return words
        return np.array([text_of(label) for label in y.tolist()], dtype=object)


# --- Probabilities ---------------------------------------------------------------------------------------------------------
# Probabilities of classes from a row's decisions.


def probabilities(family: str, decisions: NDArray[np.float64]) -> Matrix:
    """Return the probabilities of the classes, from one decision (logistic), one for each class, or one for each level but the last.

    >>> probabilities("ordinal", np.array([[2.0, -2.0]])).round(2).tolist()
    [[0.12, 0.76, 0.12]]
    """
    if family == "multinomial":
        return np.asarray(softmax(decisions, axis=1))
    # Thresholds that are averages of parties' rise as each party's do.
    above = expit(decisions if decisions.ndim > 1 else decisions[:, None])
    padded = np.hstack([np.ones((above.shape[0], 1)), above, np.zeros((above.shape[0], 1))])
    return np.asarray(padded[:, :-1] - padded[:, 1:])


# --- Parameters ------------------------------------------------------------------------------------------------------------
# Parameters of a PRIDE study, and checks that they fit together.

#: Families of numbers (and of censored times), and families of classes; the first of each is the default.
NUMBERS: tuple[str, ...] = ("squared", "huber", "quantile", "poisson", "gamma", "negative-binomial", "cox")
CLASSES: tuple[str, ...] = ("logistic", "multinomial", "ordinal")
#: Those that are drawn to earlier models: the evidence of each is known at a given variance of the coefficients.
DRAWN: tuple[str, ...] = ("squared", "logistic", "poisson", "negative-binomial")
#: A sketch as large as is worth its noise.
AUTO = "auto"
#: The largest cap: e to it is the largest mean.
MOST_CAP = 50.0
_TUNED = table("pride")


def automatic_size(rows: int, columns: int, epsilon: float) -> int:
    """Return columns of a sketch from what is public before any data: 5 % of the party's, times epsilon above 1, up to half; at most n.

    A few columns are sketched whole: the next power of two, so that nothing is lost but by the noise.
    """
    if columns <= _TUNED.whole("sketched_whole"):
        return min(most_columns(columns), max(rows, 1))
    share = min(_TUNED.sketch_most, _TUNED.sketch_share * max(1.0, epsilon))
    return min(max(_TUNED.whole("sketch_fewest"), round(share * columns)), columns, max(rows, 1))


def most_columns(features: int) -> int:
    """Return the largest size of a sketch of this number of columns: that of the Hadamard transform, a power of two."""
    return 1 << max(features - 1, 0).bit_length()


def check_sizes(wanted: float | str | Mapping[str, int], widths: Mapping[str, int]) -> None:
    """Refuse a number of sketched columns beyond the Hadamard transform of a party's coded columns, whose number ``widths`` has by party.

    Such a sketch costs noise and memory, and carries nothing more. A number for all parties is held against the widest one.
    """
    asked: Mapping[str, int] = {}
    if isinstance(wanted, Mapping):
        asked = wanted
    elif isinstance(wanted, int):
        asked = {max(widths, key=widths.__getitem__): wanted}
    for name, size in asked.items():
        if name in widths and size > (most := most_columns(widths[name])):
            who = f"party {name!r}" if isinstance(wanted, Mapping) else "the widest party"
            msg = f"sketch_dim must be at most {most}, for {who} has {widths[name]} columns to be sketched"
            raise UsageError(msg)


def undrawn(family: str) -> str:
    """Return words that refuse earlier models of a family."""
    return f"prior goes with family = {', '.join(DRAWN)}, not with {family}: leave prior out, or choose one of them"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Parameters that a study may set for this model."""

    response: Annotated[
        str,
        says(
            "The label column with the response, at every party that estimates; a party without it only sends (scenario B).",
            column=True,
            study=True,
            shown=True,
        ),
    ] = "y"
    task: Annotated[
        str,
        says('"regression", or "classification" of two classes.', choices=("regression", "classification"), study=True),
    ] = "regression"
    classes: Annotated[
        tuple[str | int | float, ...],
        says(
            "The labels of a classification, which the response holds: of two the first is coded -1, the second 1; of ordered ones from the lowest up.",
            study=True,
        ),
    ] = DEFAULT
    family: Annotated[
        str,
        says(
            "The law of the response: two, several or ordered classes (proportional odds); numbers; counts and positive numbers with the logarithm as "
            "link; censored times (proportional hazards, ties by Breslow).",
            choices=(*CLASSES, *NUMBERS),
        ),
    ] = ""
    loss: Annotated[
        str,
        says(
            '"huber" lets responses far from the fit pull no harder than those ``threshold`` away from it. The choice costs no privacy. None is '
            '"squared", for a classifier "logistic".',
            choices=("squared", "huber", "logistic"),
        ),
    ] = ""
    threshold: Annotated[
        float | None,
        says(
            "In units of y: where Huber's loss becomes straight, or half the width over which a quantile's is smoothed. None is 1.345, or 0.2, robust "
            "deviations of what a first fit leaves, as each party computes them.",
            1.345,
        ),
    ] = None
    event: Annotated[
        str,
        says(
            'Of the family "cox": the label column that is 1 where the response is the time of an event and 0 where observation ended.',
            column=True,
            study=True,
        ),
    ] = ""
    dispersion: Annotated[float, says("Of the negative binomial: the variance is mean + dispersion * mean^2.")] = 1.0
    quantile: Annotated[float, says("Which quantile.")] = 0.5
    cap: Annotated[
        float | None,
        says(
            "Poisson and gamma: beyond this linear predictor (gamma: below minus this) the loss is a straight line. ``publish`` needs it.",
            10.0,
        ),
    ] = None
    sketch: Annotated[
        str,
        says(
            "The public random matrix that a party's columns are multiplied by before they get noise.",
            choices=("srht", "gaussian", "dct", "matrix"),
        ),
    ] = "srht"
    sketch_dim: Annotated[
        int | float | str | dict[str, int],
        says(
            'Columns of a sketch: a number, or a fraction up to 1 of the party\'s columns. "auto" is 5 % of them, times epsilon where that is above 1, up '
            "to half; up to eight columns are sketched whole. 0 sends nothing: each party has its own columns only (the semi-naive baseline if "
            '``noise_model`` is not "gram").',
            kinds=(WHOLE, SHARE, WORD),
            call='"auto", int or float, default "auto"',
            written="float | str",
        ),
    ] = AUTO
    grids: Annotated[
        dict[str, tuple[int, ...]],
        says('The shape of the grid that a party\'s columns lie on, row by row, for the sketch "dct".'),
    ] = {}
    matrices: Annotated[
        dict[str, tuple[tuple[float, ...], ...]], says('A public matrix for each party (sketch = "matrix").', study=True)
    ] = {}
    public: Annotated[
        tuple[str, ...],
        says("Columns that are not sensitive (scenario A); they are sent as they are.", written="Sequence[int | str]"),
    ] = ()
    alpha: Annotated[
        float | str,
        says(
            'The penalty, as scikit-learn\'s alpha on columns scaled by their declared half width. "global-cv" is not private.',
            choices=("marginal-likelihood", "local-cv", "global-cv"),
        ),
    ] = "marginal-likelihood"
    noise_model: Annotated[
        str,
        says(
            "What a party makes of the sketches that it received: a model of the others' Gram matrix from its own columns and the sketches' likelihood, "
            "regression calibration, or the paper's plain use of them. All three release the same.",
            choices=("gram", "calibrated", "plain"),
        ),
    ] = "gram"
    others: Annotated[
        str,
        says(
            "With ``noise_model=\"gram\"``, what the study declares of the others' columns: that they relate to a party's own as halves of its own do to "
            "each other, that they measure the same variables again, or that they have nothing in common.",
            choices=("like mine", "copies", "unrelated"),
        ),
    ] = "like mine"
    prior: EarlierModels = ()
    fit_intercept: Intercept = True
    clip_norm: Annotated[
        float | None,
        says(
            'With ``unit="record"``, the length to which sketched rows are shortened. None is 1.25 sqrt(columns / 3).', 1.0
        ),
    ] = None
    folds: Annotated[int, says("Folds of a cross-validation of ``alpha``.")] = 5
    publish: Annotated[
        float,
        says(
            "Share of the squared budget that releases the coefficients too, of the coded columns. It needs a number ``alpha``, "
            '``fit_intercept=False`` and ``noise_model="plain"``, because everything else reads the data. 0 keeps them at their parties.'
        ),
    ] = 0.0
    response_bound: Annotated[
        float | None,
        says("Bound on |y| (regression with publish > 0 only); the response is clipped to it.", 1.0, study=True),
    ] = None
    fitted: Annotated[
        str | None,
        says(
            "The plan whose coefficients predict these (new) rows; left out, the study fits: `unpooled new pride --fitted STUDY` writes it.",
            "...",
            study=True,
        ),
    ] = None
    predicting: Annotated[
        tuple[str, ...],
        says(
            "Parties that predict new rows, each of which has estimated under that plan; none named: all of them.",
            study=True,
        ),
    ] = ()

    def __post_init__(self) -> None:  # noqa: C901, PLR0912 - one line per rule
        choices = {
            "task": ("regression", "classification"),
            "sketch": ("srht", "gaussian", "dct", "matrix"),
            "noise_model": ("gram", "calibrated", "plain"),
            "others": OTHERS,
        }
        for name, words in choices.items():
            if getattr(self, name) not in words:
                msg = f"{name} must be one of {', '.join(words)}"
                raise ValueError(msg)
        self._check_family()
        self._check_prior()
        if isinstance(self.alpha, str):
            if self.alpha not in ("marginal-likelihood", "local-cv", "global-cv"):
                raise ValueError("alpha must be a number, marginal-likelihood, local-cv or global-cv")
        elif not 0 < self.alpha < math.inf:
            raise ValueError("alpha must be positive and finite")
        if self.alpha == "global-cv" and self.named != "squared":
            raise ValueError("global-cv reproduces the paper's regressions only: choose another alpha")
        if isinstance(self.sketch_dim, str) and (self.sketch_dim != AUTO or self.fitted is not None):
            raise ValueError(
                "sketch_dim must be auto, a number, a fraction, or a number for every party; where new rows are predicted, the numbers "
                "that the fitted plan had"
            )
        sizes = self.sketch_dim.values() if isinstance(self.sketch_dim, dict) else [self.sketch_dim]
        given = [size for size in sizes if not isinstance(size, str)]
        if not all(0 <= size < math.inf for size in given):
            raise ValueError("sketch_dim must be >= 0 and finite")
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise ValueError("clip_norm must be positive and finite")
        if not 0 <= self.publish < 1:
            raise ValueError("publish must lie in [0, 1)")
        if self.publish and isinstance(law := self.law, JointFamily) and law.unpublished:
            msg = f"publish is not for family = {law.name}: {law.unpublished}"
            raise ValueError(msg)
        if self.publish and (isinstance(self.alpha, str) or self.fit_intercept or self.noise_model != "plain"):
            raise ValueError(
                "publish needs a number alpha, fit_intercept = false and noise_model = plain: anything else reads the data"
            )
        if self.publish:
            self._check_publication()
        if self.predicting and self.fitted is None:
            raise ValueError(
                "predicting names the parties that predict new rows: it needs fitted, the plan that they estimated under"
            )
        if self.folds < 2:  # noqa: PLR2004 - one fold leaves nothing to train on
            raise ValueError("folds must be at least 2")

    def _check_family(self) -> None:
        """The family, its classes, and what belongs to it."""
        if self.family and self.loss:
            raise ValueError("loss is the older name of family: a study gives one of them")
        fitting = (*NUMBERS, *CLASSES) if self.family else NUMBERS
        fitting = CLASSES if self.task == "classification" else fitting
        if self.family and self.task == "regression" and self.named not in fitting:
            raise ValueError(refused_family(self.family, fitting))
        if self.named not in fitting:
            msg = f"{'family' if self.family else 'loss'} must be one of {', '.join(fitting)} where task = {self.task}"
            raise ValueError(msg)
        if self.named == "logistic":
            if len(self.classes) != 2:  # noqa: PLR2004
                raise ValueError("classes of the logistic family are two: more are for family = multinomial, or ordinal")
            check_classes(self.classes)
        elif self.has_classes:
            check_levels(self.classes)
        named, cap = self.named, self.cap
        rules = (
            (
                self.threshold is None or (named in ("huber", "quantile") and 0 < self.threshold < math.inf),
                "threshold is a positive finite number, and belongs to loss = huber or quantile",
            ),
            (
                cap is None or (named in ("poisson", "gamma") and 0 < cap <= MOST_CAP),
                f"cap is a positive number up to {MOST_CAP:g}, and belongs to family = poisson or gamma",
            ),
            (
                0 < self.dispersion < math.inf and (self.dispersion == 1 or named == "negative-binomial"),
                "dispersion is a positive finite number, and belongs to family = negative-binomial",
            ),
            (
                0 < self.quantile < 1 and (self.quantile == 0.5 or named == "quantile"),  # noqa: PLR2004
                "quantile lies between 0 and 1, and belongs to family = quantile",
            ),
            (
                bool(self.event) == (named == "cox") and self.event != self.response,
                "family = cox needs event, a label column beside the response; no other family has one",
            ),
            (
                self.fit_intercept or named not in ("cox", "ordinal"),
                f"family = {named} has a baseline or thresholds in the place of a constant: fit_intercept = true",
            ),
            (
                self.has_classes or self.classes == DEFAULT,
                f"classes belong to task = classification, or to family = {', '.join(CLASSES)}",
            ),
        )
        for holds, words in rules:
            if not holds:
                raise ValueError(words)

    def _check_prior(self) -> None:
        """Refuse earlier models where the fit would take no notice of them."""
        if not self.prior:
            return
        if self.named not in DRAWN:
            raise ValueError(undrawn(self.named))
        others = {
            f"alpha = {self.alpha}": self.alpha != "marginal-likelihood",
            f"noise_model = {self.noise_model}": self.noise_model != "gram",
            "fit_intercept = false": not self.fit_intercept,
            "publish": bool(self.publish),
            "fitted (new rows are predicted with what the parties keep)": self.fitted is not None,
        }
        if given := [words for words, there in others.items() if there]:
            msg = f"prior goes without {', '.join(given)}: leave one of the two out"
            raise ValueError(msg)

    def _check_publication(self) -> None:
        """Check that everything is declared that a bound on one row's pull needs (THEORY.md, section 7)."""
        law = self.law
        if isinstance(law, JointFamily):
            return
        if self.named in ("huber", "quantile") and self.threshold is None:
            which = "Huber" if self.named == "huber" else "quantile"
            msg = f"publish needs a declared threshold of the {which} loss: the default reads the response"
            raise ValueError(msg)
        if self.named in ("poisson", "gamma") and self.cap is None:
            msg = f"publish needs cap where family = {self.named}: without it a row's pull has no bound"
            raise ValueError(msg)
        if law.slope == math.inf and not (self.response_bound and 0 < self.response_bound < math.inf):
            raise ValueError("publish needs response_bound, a declared bound on the absolute value of the response")

    @property
    def named(self) -> str:
        """Return the name of the family."""
        return self.family or self.loss or ("squared" if self.task == "regression" else "logistic")

    @property
    def has_classes(self) -> bool:
        """Return True if the response is one of declared classes."""
        return self.named in CLASSES

    @property
    def is_joint(self) -> bool:
        """Return True if the loss is no sum over rows of one number each."""
        return self.named in JOINT

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the label columns that an estimating party has."""
        return (self.response, self.event) if self.event else (self.response,)

    @property
    def law(self) -> Family | JointFamily:
        """Return the family of the response."""
        name = self.named
        if name in JOINT:
            return Cox() if name == "cox" else replace(JOINT[name](), classes=len(self.classes))  # type: ignore[call-arg]
        capped = {} if self.cap is None else {"cap": self.cap}
        families: dict[str, Family] = FAMILIES | {
            "poisson": Poisson(**capped),
            "gamma": Gamma(**capped),
            "negative-binomial": NegativeBinomial(dispersion=self.dispersion),
            "quantile": Quantile(tau=self.quantile),
        }
        return families[name]

    @property
    def unit_threshold(self) -> float:
        """Return the threshold in units of the response: what the family calls 1.345, or 0.2, robust deviations."""
        return HALF_WIDTH if self.named == "quantile" else FAMILIES["huber"].slope


def earlier(parameters: Mapping[str, Any], cards: tuple[Card, ...]) -> EarlierCoefficients:
    """Return how a study of these parameters and cards takes earlier coefficients: a study of kept coefficients is drawn to runs of models that release them."""
    said = {"response": "y", "classes": DEFAULT, **parameters}
    family = said.get("family") or said.pop("loss", "")
    family = family or (Logistic.name if said.get("task") == "classification" else Gaussian.name)
    if family not in DRAWN:
        raise StudyError(undrawn(str(family)))
    if not isinstance(said["classes"], list | tuple) or len(said["classes"]) != 2:  # noqa: PLR2004 - of two classes
        raise StudyError("prior: classes of the logistic family are a list of two labels")
    said["family"] = family
    if family == Gaussian.name:
        return EarlierCoefficients(DrawnModel("pride", "bayes", family=family), said, with_response(said, cards, ANY))
    two = family == Logistic.name
    drawing = DrawnModel(
        "pride",
        "glm",
        ResponseKind.TWO_CLASSES if two else ResponseKind.NUMBER,
        family=family,
        alike={**ALIKE, "family": Logistic.name},
        estimator=_log_odds if two else _of_counts,
    )
    labels = tuple(map(text_of, said["classes"])) if two else None
    return EarlierCoefficients(drawing, said, with_response(said, cards, ANY, labels))


def _log_odds() -> Any:  # noqa: ANN401 - scikit-learn's own
    from unpooled.estimation.priors import log_odds  # takes long to import

    return log_odds()


def _of_counts() -> Any:  # noqa: ANN401 - as above
    from unpooled.estimation.priors import of_counts

    return of_counts()


# --- The new study file ----------------------------------------------------------------------------------------------------
# The new study file of PRIDE.

TEMPLATE = Template.of(
    Parameters,
    "Ridge, logistic or another generalised linear regression; each party keeps its own coefficients.",
    COLUMNS,
    unit="attribute",
)
