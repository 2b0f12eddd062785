r"""edPLS as printed (Algorithm 1 of the paper) and as its package computes it: kept for comparison, no guarantee (THEORY.md, section 4).

Per component Gaussian noise goes to the normalised weights, the normalised scores, the loadings and the y loading, of the analytic scale
for (epsilon, delta) each, times bounds that are read off the deflated data: :math:`\max|f|\max|E_i|`, :math:`\max|E_i|`, :math:`\max|E_i|`, :math:`\max|f|`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np

from unpooled.errors import ProtocolError, UsageError
from unpooled.models import pls
from unpooled.models.pls.components import PlsFit
from unpooled.models.pls.declared import (
    ALONE,
    PUBLIC,
    SIGMA,
    Parameters,
    PlsDesign,
    design_of,
)
from unpooled.models.pls.fit import PlsResult, stored
from unpooled.models.pls.spectra import NONE
from unpooled.papers.settings import lacking, settings_of, with_settings
from unpooled.papers.unpriced import Unpriced
from unpooled.privacy import noise
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.mechanisms import Vector
from unpooled.privacy.plan import Plan, Release, Study
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.study import AGGREGATION
from unpooled.privacy.unit import Split, Unit
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Array, Ask, Nothing, Released
from unpooled.protocol.registry import ModelForm, Step, Template

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from unpooled.privacy.noise import RandomBits
    from unpooled.protocol.context import Context
    from unpooled.protocol.registry import Conversation

    Matrix = NDArray[np.float64]

MODEL_RELEASE, PUBLISHED, ROWS = "model", "published", "rows"


class EntrustedRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A holder's channels and responses as they are, for the provider that all trust."""

    rows: Released


class PublishedRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks the provider for the model of its own rows and of these, one part for each of the other holders."""

    rows: tuple[Released, ...] = ()


class PublishedReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The components of a model with the noise of the paper, and means without noise."""

    model: Released


#: Standard normals are rounded to this part of a deviation.
_FINE = 2.0**18


@dataclass(frozen=True)
class ComponentsLayout:
    """Where things are in the flat vector of a model."""

    rows: int
    channels: int
    components: int

    @property
    def width(self) -> int:
        """Return the number of values of one component: weights, scores, loadings, y loading."""
        return 2 * self.channels + self.rows + 1

    @property
    def size(self) -> int:
        """Return the number of values of the whole: the components, the mean spectrum and the mean response."""
        return self.components * self.width + self.channels + 1

    def parts(self, flat: Matrix) -> tuple[Matrix, Matrix, Matrix, Matrix, Matrix, float]:
        """Weights, scores, loadings (a column per component), y loadings, mean spectrum, mean response."""
        m, n = self.channels, self.rows
        table = flat[: self.components * self.width].reshape(self.components, self.width)
        means = flat[self.components * self.width :]
        return table[:, :m].T, table[:, m : m + n].T, table[:, m + n : -1].T, table[:, -1], means[:m], float(means[m])


def components(X: Matrix, y: Matrix, layout: ComponentsLayout) -> Matrix:
    """Return the exact model, flat, and behind it the bounds max|E_i| and max|f| of every component."""
    mean, middle = X.mean(axis=0), float(y.mean())
    E, f = X - mean, y - middle
    table, bounds = np.zeros((layout.components, layout.width)), np.zeros((layout.components, 2))
    m, n = layout.channels, layout.rows
    for k in range(layout.components):
        w = E.T @ f
        w /= np.linalg.norm(w) or 1.0
        w *= np.sign(w[np.abs(w).argmax()])
        t = E @ w
        t /= np.linalg.norm(t) or 1.0
        p, c = E.T @ t, float(f @ t)
        bounds[k] = np.linalg.norm(E, axis=1).max(), np.abs(f).max()
        table[k, :m], table[k, m : m + n], table[k, m + n : -1], table[k, -1] = w, t, p, c
        E, f = E - np.outer(t, p), f - c * t
    return np.concatenate([table.ravel(), mean, [middle], bounds.ravel()])


def coefficients(weights: Matrix, loadings: Matrix, y_loadings: Matrix) -> Matrix:
    """Equation (1): b = W (P^T W)^-1 c; a combination that noise made singular is solved by least squares."""
    inside = loadings.T @ weights
    return np.asarray(weights @ np.linalg.lstsq(inside, y_loadings, rcond=None)[0])


@dataclass(frozen=True, slots=True)
class PublishedModel(Unpriced):
    """The paper's noise on every component. Its bounds are read off the data and its argument fails: the cost is unknown (Theorem C.1; measured: C.2)."""

    kind: ClassVar[str] = "published: Gaussian on components"
    layout: ComponentsLayout
    #: The analytic scale for sensitivity 1; 0 is no noise.
    multiplier: float
    #: "sigma" is the paper's standard deviation, "sigma^2" that of the authors' package.
    sd: str
    name: ClassVar[str] = "published Gaussian"

    @property
    def size(self) -> int:
        """Return the number of values that are published."""
        return self.layout.size

    def draw(self, given: Vector, bits: RandomBits) -> Matrix:
        """Return the noise in the order of Algorithm 1: weights and scores are normalised again after it."""
        layout, statistic = self.layout, given.values
        if statistic.shape != (layout.size + 2 * layout.components,):
            msg = f"this release is of {layout.size} numbers, with two bounds for each of {layout.components} components behind them"
            raise UsageError(msg)
        published, bounds = statistic[: layout.size].copy(), statistic[layout.size :].reshape(-1, 2)
        table = published[: layout.components * layout.width].reshape(layout.components, layout.width)
        z = noise.rounded_gaussian(_FINE, table.size, stream=bits).reshape(table.shape) / _FINE
        m, n = layout.channels, layout.rows
        x, y = bounds.T
        table += self._deviation(np.repeat([x * y, x, x, y], [m, n, m, 1], axis=0).T) * z
        for part in (table[:, :m], table[:, m : m + n]) if self.multiplier else ():
            np.divide(part, np.maximum(np.linalg.norm(part, axis=1, keepdims=True), np.finfo(float).tiny), out=part)
        return published

    def _deviation(self, sensitivity: Matrix) -> Matrix:
        sigma = self.multiplier * sensitivity
        return sigma if self.sd == SIGMA else sigma**2


@dataclass(frozen=True, slots=True)
class HandedOver(Unpriced):
    """A holder's rows as they are, which go to the provider: there is no noise, so the cost is unbounded."""

    kind: ClassVar[str] = "published: rows as they are"
    size: int
    name: ClassVar[str] = "rows as they are"

    def draw(self, given: Vector, bits: RandomBits) -> Matrix:
        """Return the rows without noise."""
        del bits
        return given.values


# --- the row of the registry -----------------------------------------------------------------------------------------------

_VOIDS = (
    Sentence(
        "pls-published.units",
        "The noise on a weight vector of length 1 has the units of X'y, so that rescaling the spectra removes it (THEORY.md, section 4).",
    ),
    Sentence(
        "pls-published.bounds",
        "The bounds that set the noise are computed from the data, and means and deflation are exact.",
    ),
    Sentence(
        "pls-published.composition",
        "Every component is four releases at (epsilon, delta) each, which the paper does not add up.",
    ),
)
#: What becomes of the rows of several holders.
_PROVIDER = Sentence(
    "pls-published.provider",
    "Every other holder's rows go as they are to the coordinator and to the first holder, which is the paper's trusted provider.",
)


#: Ten latent variables and delta .01 on the corn data (section 3), noise as printed, and a provider that all holders trust.
SETTINGS = {"delta": 0.01, "basis": NONE, "n_components": 10, "sd": SIGMA, "aggregation": "trusted"}
#: The paper fits the channels themselves, by one release of components. Its neighbours differ in one row, which (12) takes away.
LACKS = lacking("unit rows_per_household basis basis_size matrix reference method prior tolerate nodes")


def compile_plan(study: Study) -> Plan:
    """Return one release: the whole model of all holders' rows, by the first of them."""
    if study.unit != Unit.RECORD:
        raise UsageError("the paper's neighbours differ in one row: unit = 'record'")
    filled = with_settings(study, Parameters, SETTINGS, LACKS)
    design = design_of(filled)
    parameters = design.parameters
    several = len(study.parties) > 1
    if several and not study.trusts(AGGREGATION):
        raise UsageError(
            "several data holders of the published calibration give their rows, as they are, to a provider that all trust: set aggregation = 'trusted' ([trust] in a study file), or fit one holder"
        )
    if design.several:
        raise UsageError("the published calibration has one response: name one")
    if not isinstance(parameters.n_components, int):
        raise UsageError("the published calibration has no release that chooses components: set n_components to a number")
    if not study.delta and study.epsilon != math.inf:
        raise UsageError("the published calibration needs a positive delta")
    provider = study.parties[0]
    multiplier = 0.0 if study.epsilon == math.inf else 1 / budget_mu(study.epsilon, study.delta)
    layout = ComponentsLayout(sum(card.rows for card in study.parties), len(design.channels), parameters.n_components)
    release = Release(MODEL_RELEASE, provider.name, PUBLISHED, PublishedModel(layout, multiplier, parameters.sd))
    handed = (Release(ROWS, card.name, ROWS, HandedOver(card.rows * len(design.names))) for card in study.parties[1:])
    return Plan(
        study,
        Split.HORIZONTAL,
        (release, *handed),
        public=(PUBLIC,),
        assumptions=() if several else (ALONE,),
        voids=(*_VOIDS, _PROVIDER) if several else _VOIDS,
        trusted=(
            Sentence("pls-published.coordinator", "the coordinator"),
            Sentence("pls-published.holder", "the first holder"),
        )
        if several
        else (),
        notes=(settings_of(filled, {name: value for name, value in SETTINGS.items() if several or name != AGGREGATION}),),
        design=design,
    )


def _own(context: Context) -> Matrix:
    """Return this party's channels and, behind them, its response."""
    return np.column_stack([context.table[name] for name in context.design.names])


def entrust(context: Context, request: Nothing) -> EntrustedRows:  # noqa: ARG001 - the request is no more than its name
    """Give this party's rows to the provider, which its ledger counts as a release without noise."""
    if len(context.plan.study.parties) == 1 or not context.plan.study.trusts(AGGREGATION):
        raise ProtocolError("this study has no provider that may have a party's rows")
    return EntrustedRows(context.release(ROWS, Vector(_own(context).ravel())))


def release_model(context: Context, request: PublishedRequest) -> PublishedReply:
    """Return the model of this party's rows and those that it was given, with noise on every component."""
    _check(context.plan, request.rows)
    mechanism = context.planned(MODEL_RELEASE).mechanism
    assert isinstance(mechanism, PublishedModel)
    own = _own(context)
    rows = np.vstack([own, *(given.values.numpy().reshape(-1, own.shape[1]) for given in request.rows)])
    return PublishedReply(context.release(MODEL_RELEASE, Vector(components(rows[:, :-1], rows[:, -1], mechanism.layout))))


def _check(plan: Plan[PlsDesign], given: tuple[Released, ...]) -> None:
    """Refuse parts whose shapes are not those of the other holders' cards."""
    shapes = [(card.rows * len(plan.design.names),) for card in plan.study.parties[1:]]
    if [part.values.shape for part in given] != shapes:
        raise ProtocolError("the other holders' rows have other shapes than their cards say")


def coordinate(plan: Plan[PlsDesign]) -> Conversation:
    """Ask the other holders for their rows, and the provider for the model."""
    card, *others = plan.study.parties
    replies = yield from everybody([Ask(other.name, ROWS, Nothing()) for other in others])
    rows = tuple(reply.rows for reply in replies)
    _check(plan, rows)
    (reply,) = yield from everybody([Ask(card.name, PUBLISHED, PublishedRequest(rows))])
    mechanism = plan.release(card.name, MODEL_RELEASE).mechanism
    assert isinstance(mechanism, PublishedModel)
    weights, scores, loadings, y_loadings, mean, response = mechanism.layout.parts(reply.model.values.numpy())
    b = coefficients(weights, loadings, y_loadings)
    rotations = weights @ np.linalg.pinv(loadings.T @ weights)
    fitted = PlsFit(b, response - float(mean @ b), weights, loadings, rotations, y_loadings, mean)
    design = plan.design
    channels = tuple(column.name for column in design.channels)
    return PlsResult(channels, stored(fitted), tuple(one.name for one in plan.study.parties), scores=Array.of(scores))


#: The paper's own study.
TEMPLATE = Template(
    "edPLS as printed (Algorithm 1): one data holder, or a provider that several trust, publishes a whole model. It protects nobody (THEORY.md, section 4).",
    "rows of different people; of several holders all but the first give their rows away, under [trust] aggregation = 'trusted'",
    "record",
    """\
response = "y"                      # a declared column; every other one is a channel, in the order of the card
basis = "none"                      # the paper has no public basis
n_components = 10                   # a number: 10 latent variables on the corn data
sd = "sigma"                        # noise as printed; "sigma^2": as the authors' package draws it
# basis_size, matrix, reference, norm, method, prior, tolerate and nodes are not for this form""",
    delta=0.01,
    calibration="published",
    trust='aggregation = "trusted"             # of several holders, the first sees the others\' rows as they are',
    cards=("first.card.toml",),
)

MODEL = replace(
    pls.MODEL,
    name="pls-published",
    outlook=None,
    template=TEMPLATE,
    compile_plan=compile_plan,
    steps=(Step(ROWS, Nothing, EntrustedRows, entrust), Step(PUBLISHED, PublishedRequest, PublishedReply, release_model)),
    coordinate=coordinate,
    households=False,
    form=ModelForm(promises=False, defaults=SETTINGS, lacks=LACKS),
)
