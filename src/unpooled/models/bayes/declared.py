"""What a Bayes study declares, and its plan: standardised rounds, or one release of moments; and the rows of a study with a focus (THEORY.md, section 11)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from unpooled.errors import UsageError, listed
from unpooled.inference.coding import check_formula
from unpooled.inference.coordinates import typically_crowded
from unpooled.inference.printed_terms import TREATMENT, check_coding
from unpooled.inference.priors import assumed, check_models, directions, rows_of
from unpooled.inference.sites import SiteEffects, sites_of
from unpooled.kernels import rows as row_kernels
from unpooled.linear.declared import (
    CodingWord,
    CovarianceWord,
    EarlierModels,
    FormulaText,
    GoalWord,
    Intercept,
    MaxPasses,
    ReferenceLevels,
    Response,
    SiteEffectsWord,
    WeightColumn,
)
from unpooled.linear.design import gradients, left_over, lines, noise_of, opened_rows
from unpooled.linear.goals import Goal, Prospect, check_goal, goal_of, untabled
from unpooled.linear.layout import Geometry, MomentsLayout
from unpooled.linear.releases import release_notes
from unpooled.linear.residuals import MEAT_SHARE, Covariance, SignedCells, covariance_of, without_meat
from unpooled.linear.scales import CountedScales
from unpooled.linear.schedule import (
    ROUNDS,
    WORTH_ERRORS,
    WORTH_LINES,
    Method,
    Schedule,
    clip_of_focus,
    schedule_of,
    stretch_of,
)
from unpooled.linear.standard import Scales, StandardRows
from unpooled.privacy.bounds import Coding, Column
from unpooled.privacy.declared import COLUMNS as SPLIT
from unpooled.privacy.declared import (
    PROOF,
    CheckWord,
    Colluding,
    ExpectedMissing,
    ExpectedPeople,
    OverParties,
    SplitWord,
    TableConfidence,
    says,
)
from unpooled.privacy.mechanisms import Block, Reach
from unpooled.privacy.plan import Plan, Study, check_parameters
from unpooled.privacy.sensitivity import clipped_products, column_moments
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.protocol.registry import COLUMNS, ROWS, Template
from unpooled.schedules import table
from unpooled.totals.modes import aggregation_of
from unpooled.totals.rounds import passes_note, plan_of_totals, strength, totals_of
from unpooled.totals.total import Aggregation, Summed
from unpooled.totals.weights import Weighting
from unpooled.totals.whole_rows import filled_note, notes_of, refuse_filled, whole_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from unpooled.inference.priors import EarlierModel
    from unpooled.linear.standard import Standard
    from unpooled.linear.tilted import TiltedRows
    from unpooled.privacy.sentence import Sentence
    from unpooled.privacy.table import Table
    from unpooled.totals.total import Total

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


# --- Parameters ------------------------------------------------------------------------------------------------------------
# The parameters of a Bayes study, and what is refused of them by themselves.

AWARE, NAIVE = "noise-aware", "naive"
#: What is done with a Gram matrix that noise made indefinite: the supplement says nothing, the authors' program takes absolute eigenvalues.
AUTO, KEPT, ABSOLUTE = "auto", "kept", "absolute"
#: Of columns at several parties: one release, or rounds.
MOMENTS, SINES = "moments", "sines"
#: A precision that is estimated from the release itself.
ESTIMATE = "estimate"


class Parameters(OverParties, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[parameters]`` of a Bayes study."""

    response: Response
    weights: WeightColumn = ""
    geometry: Annotated[
        str,
        says(
            'Which bound sets the noise of one release of moments. "augmented" also releases the sums and y^2, for models that need them.',
            choices=Geometry,
        ),
    ] = Geometry.BALL
    norm: Annotated[
        float | None, says("An L2 bound on the centred row of features (``Bounds(norm=R)``).", 1.0, study=True)
    ] = None
    fit_intercept: Intercept = True
    prior_precision: Annotated[
        float | str,
        says(
            "Precision (one over variance) of the prior of every coefficient in the data's own units, or what the release says of it.",
            choices=(ESTIMATE,),
        ),
    ] = ESTIMATE
    noise_precision: Annotated[
        float | str, says("Precision of y around its mean, or what the release says of it.", choices=(ESTIMATE,))
    ] = ESTIMATE
    posterior: Annotated[
        str,
        says(
            'Whether the posterior accounts for the noise. "naive" takes noisy moments for exact ones, as published: its intervals are too short.',
            choices=(AWARE, NAIVE),
        ),
    ] = AWARE
    covariance: CovarianceWord = Covariance.AUTO
    method: Annotated[
        str,
        says(
            'How the budget is spent. "refinement": standardised rows, rounds of clipped gradients, second moments of what they leave. "gradient": '
            'without the last, for predictions alone. "direction": rounds for the direction of the slopes, then for their length, for predictions of '
            'small studies. "focus": of the columns of ``focus``. "moments": one release, with ``parties`` of joint moments. "mean": of y alone. '
            '"weights": of earlier models alone. "sines": with two ``parties``, rounds for predictions alone. "auto" chooses by rows, columns and '
            'privacy, before data; with any of the parameters of one release set it is "moments".',
            choices=(*Method, SINES),
        ),
    ] = Method.AUTO
    focus: Annotated[
        tuple[str, ...],
        says(
            'Columns to which the budget of a small study goes, as ["arm"]: the table has these alone. The other columns have coefficients for '
            "predictions, and no standard errors.",
            lean=True,
        ),
    ] = ()
    max_passes: MaxPasses = ROUNDS + 5
    projection: Annotated[
        float,
        says(
            "Share of the squared budget that first narrows the ranges to multiples of private standard deviations (Algorithm 2), as it may for "
            "predictions: coefficients are then of narrowed data, and have no intervals. 0: declared ranges. In the published form it is a share of epsilon."
        ),
    ] = 0.0
    multiple: Annotated[float | None, says("Those multiples. None picks the best on synthetic data of the model.", 2.0)] = (
        None
    )
    projection_delta: Annotated[
        float | None,
        says(
            "Of the published form: the share of delta that these deviations get; None is that of epsilon.", 0.3, lean=True
        ),
    ] = None
    indefinite: Annotated[
        str,
        says(
            "Of the published form: whether a Gram matrix that noise made indefinite stays as it is, or has the absolute values of its eigenvalues, as "
            'in the authors\' program ("auto").',
            choices=(AUTO, KEPT, ABSOLUTE),
            lean=True,
        ),
    ] = AUTO
    expected_missing: ExpectedMissing = 0.0
    confidence: TableConfidence = 0.95
    reference: ReferenceLevels = msgspec.field(default_factory=dict)
    coding: CodingWord = TREATMENT
    formula: FormulaText = ""
    goal: GoalWord = Goal.AUTO
    prior: EarlierModels = ()
    site_effects: SiteEffectsWord = SiteEffects.POOLED


class ColumnsParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[parameters]`` of a study of columns at different parties."""

    response: Response
    formula: FormulaText = ""
    method: Annotated[
        str,
        says(
            '"moments": one release of second moments, with standard errors. "sines": two parties, rounds for predictions. "auto" decides before data.',
            choices=(AUTO, MOMENTS, SINES),
        ),
    ] = AUTO
    goal: GoalWord = Goal.AUTO
    split: SplitWord = SPLIT
    tolerate: Colluding = 0
    check: CheckWord = PROOF
    expected_missing: ExpectedMissing = 0.0
    expected: ExpectedPeople = 0
    confidence: TableConfidence = 0.95
    reference: ReferenceLevels = msgspec.field(default_factory=dict)
    coding: CodingWord = TREATMENT
    prior: EarlierModels = ()


def check_values(parameters: Parameters) -> None:
    """Refuse values that mean nothing, by name."""
    for name in ("prior_precision", "noise_precision"):
        value = getattr(parameters, name)
        if value != ESTIMATE and (isinstance(value, str) or not 0 < value < math.inf):
            msg = f'{name} must be a positive finite number, or "{ESTIMATE}"'
            raise UsageError(msg)
    if parameters.posterior not in {AWARE, NAIVE}:
        msg = f"posterior is {AWARE!r} or {NAIVE!r}, not {parameters.posterior!r}"
        raise UsageError(msg)
    if not 0 < parameters.confidence < 1 or not 0 <= parameters.projection < 1:
        raise UsageError("confidence must lie between 0 and 1, and projection in [0, 1)")
    if parameters.multiple is not None and not 0 < parameters.multiple < math.inf:
        raise UsageError("multiple must be a positive number of deviations")
    if parameters.formula and (parameters.projection or parameters.norm is not None):
        raise UsageError(
            "a formula goes without projection and norm: they are of the declared columns, not of what it makes of them"
        )
    if parameters.weights and paper_parameters(parameters):
        msg = f"weights go without {', '.join(paper_parameters(parameters))}: those are of rows that count alike"
        raise UsageError(msg)
    if parameters.norm is not None and (parameters.projection or not 0 < parameters.norm < math.inf):
        raise UsageError("norm must be positive and finite, and goes without projection, which narrows single columns")
    if parameters.geometry not in set(Geometry):
        msg = f"geometry is one of {', '.join(Geometry)}, not {parameters.geometry!r}"
        raise UsageError(msg)
    _check_published(parameters)
    _check_method(parameters)
    _check_sites(parameters)
    _check_prior(parameters)


def _check_published(parameters: Parameters) -> None:
    """Refuse what the published form alone has, where it means nothing."""
    if parameters.projection_delta is not None and not 0 < parameters.projection_delta < 1:
        raise UsageError("projection_delta must lie between 0 and 1")
    if parameters.indefinite not in {AUTO, KEPT, ABSOLUTE}:
        msg = f"indefinite is {AUTO!r}, {KEPT!r} or {ABSOLUTE!r}, not {parameters.indefinite!r}"
        raise UsageError(msg)


def _check_sites(parameters: Parameters) -> None:
    """Refuse site effects where no table follows, or rows are bounded otherwise."""
    if parameters.site_effects != SiteEffects.POOLED and (
        paper_parameters(parameters)
        or parameters.method not in {Method.AUTO, Method.REFINEMENT, Method.MOMENTS}
        or parameters.focus
    ):
        msg = (
            f"site_effects {parameters.site_effects!r} goes with methods 'auto', 'refinement' and 'moments', and without focus, norm, geometry, "
            "projection, posterior and the precisions"
        )
        raise UsageError(msg)


def _check_prior(parameters: Parameters) -> None:
    """Refuse earlier models where another prior, or none, is asked for."""
    if not parameters.prior:
        if parameters.method == Method.WEIGHTS:
            raise UsageError("method 'weights' finds the weights of earlier models: name some with prior")
        return
    others = ["focus"] if parameters.focus else []
    others += paper_parameters(parameters)
    others += [] if parameters.fit_intercept else ["fit_intercept=False"]
    others += [] if parameters.site_effects == SiteEffects.POOLED else ["site_effects"]
    if others:
        msg = f"prior goes without {', '.join(others)}"
        raise UsageError(msg)
    if parameters.method == Method.MEAN:
        raise UsageError(
            "prior goes with every method but 'mean', which fits no slopes: 'weights' fits the weights of earlier models alone"
        )


def _check_method(parameters: Parameters) -> None:
    if parameters.method not in set(Method):
        msg = f"method is one of {', '.join(Method)}, not {parameters.method!r}"
        raise UsageError(msg)
    if parameters.max_passes < 1:
        raise UsageError("max_passes must be at least 1")
    if parameters.method not in {Method.AUTO, Method.MOMENTS} and paper_parameters(parameters):
        msg = f"{', '.join(paper_parameters(parameters))}: for method 'moments' alone, not for {parameters.method!r}"
        raise UsageError(msg)
    if bool(parameters.focus) != (parameters.method == Method.FOCUS) and parameters.method != Method.AUTO:
        raise UsageError(
            "focus goes with method 'auto' or 'focus', and method 'focus' with the columns that it is for: focus = [..]"
        )
    if parameters.focus and (paper_parameters(parameters) or not parameters.fit_intercept):
        raise UsageError("focus goes with an intercept, and without the parameters of method 'moments'")


def paper_parameters(parameters: Parameters) -> list[str]:
    """Return the parameters in use that mean something for one release of moments alone."""
    own = {
        "geometry": parameters.geometry != Geometry.BALL,
        "norm": parameters.norm is not None,
        "projection": parameters.projection > 0,
        "posterior": parameters.posterior != AWARE,
        "prior_precision": parameters.prior_precision != ESTIMATE,
        "noise_precision": parameters.noise_precision != ESTIMATE,
    }
    return [name for name, used in own.items() if used]


# --- Belief ----------------------------------------------------------------------------------------------------------------
# Coefficients of which noise is about as large as they may be: their posterior under a prior for the variance that they explain.

_TUNED = table("focus")
_STEPS = 60


def believed(
    square: float, noise: float, free: int, explains: int, *, most: float = 0.0, likely: bool = False
) -> tuple[float, float]:
    """Return (the factor by which released coefficients are multiplied, the mean square of what is then wrong with each).

    ``square`` is the sum of squares of ``free`` released coefficients with noise of variance ``noise`` each, and ``explains`` the number of
    coefficients that explain one variance of 1 together; ``likely``: the share that they explain, and not its root, is as likely
    anywhere. The factor is that of the posterior mean, plus ``most`` of what it lacks to 1.
    """
    prior = np.linspace(0.0, 1.0, _STEPS + 1) ** 2 * _TUNED.explained_most / max(explains, 1)
    noise = max(noise, 1e-12)
    log = -(free * np.log(prior + noise) + square / (prior + noise)) / 2
    weights = np.exp(log - log.max())
    if likely:
        weights *= np.sqrt(prior)  # the density of the share, over its root
    weights /= weights.sum()
    kept = prior / (prior + noise)
    mean = float(weights @ kept)
    factor = mean + most * (1 - mean)
    return factor, mean * noise + float(weights @ np.square(kept - factor)) * square / max(free, 1)


# --- Rows of a focus -------------------------------------------------------------------------------------------------------
# A study whose budget goes to some declared terms: the others are nuisance (THEORY.md, section 11).
#
# Rounds give coefficients b of all columns. One release of the products of the focused columns z_F with the others z_N says how they are related
# (G, drawn to 0 as far as its noise says), and the last round is over the rows (z_F - G z_N, w) and the residuals at b. Errors of b and of G enter the
# answer as their product alone, because each of them is orthogonal to the score of the other.

#: The products of focused columns with the others.
CROSS = "cross"
#: The part of a plan that models which rows are whole.
PARTS = "completeness"


@dataclass(frozen=True)
class FocusRows(StandardRows):
    """Sums over the rows of focused columns, from which the others are taken out; ``layout`` has the focused columns alone."""

    #: All columns, and the places of the focused ones and of the others among those that are coded.
    whole: MomentsLayout = field(kw_only=True)
    focused: tuple[int, ...] = field(kw_only=True)
    others: tuple[int, ...] = field(kw_only=True)

    @classmethod
    def of(cls, whole: MomentsLayout, names: tuple[str, ...], rows: int) -> FocusRows:
        """Return the rows of the features of these names; refuse a name that is none, and all of them."""
        known = [column.name for column in whole.features]
        for name in names:
            if name not in known:
                msg = f"focus names {name!r}, which is none of the columns {listed(known)}"
                raise UsageError(msg)
        if len(set(names)) >= len(known) or not whole.intercept:
            raise UsageError("focus names some of the columns of a model with an intercept; the others are nuisance")
        layout = replace(whole, features=tuple(column for column in whole.features if column.name in names))
        place = [whole.features[at].name in names for at in whole.coding.attribute]
        focused, others = (tuple(k for k, own in enumerate(place) if own is which) for which in (True, False))
        return cls(layout, rows, 1.0, whole=whole, focused=focused, others=others)

    @property
    def nuisance(self) -> tuple[str, ...]:
        """Return the names of the columns that are no focus."""
        return tuple(column.name for column in self.whole.features if column not in self.layout.features)

    @cached_property
    def full(self) -> StandardRows:
        """Return the rows of all columns, on the grid of these ones."""
        return StandardRows(self.whole, self.rows, self.longest, stretch=self.stretch)

    @cached_property
    def grid(self) -> int:
        """Return steps per unit: those of the rows of all columns."""
        return self.full.grid

    @property
    def cells_of_all(self) -> SignedCells:
        """Return the histogram of residuals, in deviations of the response."""
        return SignedCells()

    def residuals_of_all(self, blocks: Iterator[tuple[Floats, Floats]], start: Floats) -> Ints:
        """Return the exact counts of the residuals that all columns leave."""
        total = np.zeros(self.cells_of_all.count, dtype=np.int64)
        for _, residual, _ in self.full._left(blocks, start):  # noqa: SLF001 - the same rows
            total += self.cells_of_all.added_up(residual)
        return total

    @property
    def _most_product(self) -> int:
        """Return the bound on |z_F||z_N| in squared steps, rounded down."""
        return int(_TUNED.relation_longest * math.sqrt(len(self.focused) * len(self.others)) * self.grid**2)

    def cross(self, share: float, adjacency: Adjacency) -> Summed:
        """Return the products of focused columns with the others (Theorem B.5: a matrix is as long as the product of its two vectors)."""
        count, most = len(self.focused) * len(self.others), self._most_product
        reach = {who: Reach(clipped_products(1.0, how), count) for who, how in self.moves(adjacency).items()}
        return Summed(CROSS, (Block(count, float(most)),), reach, most, share)

    def blocks(self, table, standard):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as of all columns
        """(rows of all columns on the grid, standardised responses), block by block."""
        return self.full.blocks(table, standard)

    def products_of_columns(self, blocks: Iterator[tuple[Floats, Floats]]) -> Ints:
        """Return the exact products of focused columns with the others."""
        first, second, most = list(self.focused), list(self.others), self._most_product
        total = np.zeros((len(first), len(second)), dtype=np.int64)
        exact = max(1, (1 << 53) // most)
        for rows, _ in blocks:
            own, rest = np.array(rows[:, first], order="F"), np.asfortranarray(rows[:, second])
            row_kernels.shorten_products(own, rest, most)
            for at in range(0, own.shape[0], exact):  # sums of this many products are exact in any order
                part = slice(at, at + exact)
                total += (own[part].T @ rest[part]).astype(np.int64)
        return total.ravel()

    def _left(
        self, blocks: Iterator[tuple[Floats, Floats]], start: Floats, *, whole: bool = False, longer: bool = False
    ) -> Iterator[tuple[Floats, Floats, Floats]]:
        """(rows of focused columns without what the others say of them, residuals at all coefficients, squared lengths).

        ``start`` holds the coefficients of all columns, and after them those by which the others are taken out.
        """
        d, second = self.whole.size, list(self.others)
        taken = start[d:].reshape(len(self.focused), len(second))
        for rows, residual, _ in self.full._left(blocks, start[:d], whole=whole, longer=longer):  # noqa: SLF001 - the same rows
            own = np.empty((residual.size, self.layout.size), order="F")
            rest, unused = np.asfortranarray(rows[:, second]), np.empty(residual.size)
            for k, at in enumerate(self.focused):
                row_kernels.leave(rest, np.ascontiguousarray(rows[:, at]), taken[k], 1.0, own[:, k], unused)
            own[:, -1] = rows[:, -1]
            own = np.trunc(own)
            yield own, residual, np.square(own).sum(axis=1)

    def related(self, total: Total, standard: Standard) -> tuple[Floats, float, float]:
        """Return how the others are related to the focused columns, the mean square of each entry's error, and the squared length of a row's noise."""
        unit = float(self.grid) ** 2 * self.rows
        found, variance = total.values / unit, float(total.deviations.max() / unit) ** 2
        found, free = self._without_still(found.reshape(len(self.focused), len(self.others)), standard)
        square = float(np.square(found).sum())
        kept, left = believed(square, variance, free, len(self.others), most=_TUNED.relation_open)
        left += (_TUNED.relation_scale * kept) ** 2 * max(square - variance * free, 0.0) / max(free, 1)
        return found * kept, left, kept**2 * variance * len(self.others)

    def _without_still(self, found: Floats, standard: Standard) -> tuple[Floats, int]:
        """Return the same without its noise along the levels of a column, which add up to the constant; and how many entries are free."""
        own = self.levels(standard)
        return found - own @ (own.T @ found), (found.shape[0] - own.shape[1]) * found.shape[1]

    def levels(self, standard: Standard) -> Floats:
        """Return orthonormal directions of focused columns along which levels add up to the constant, in standardised columns."""
        scale = np.concatenate([np.asarray(standard.width)[list(self.focused)], [1.0]])
        still = scale[:, None] * self.layout.still
        return np.linalg.qr(still[:-1])[0] if still.size else np.empty((len(self.focused), 0))


# --- Plan ------------------------------------------------------------------------------------------------------------------
# Plan of a Bayes study: standardised rounds, or one release of moments (and before it the deviations of Algorithm 2).

_CROSS_TOLD = "sums of products of the focused columns with the others, by which the others are taken out"
MOMENTS, DEVIATIONS, SQUARE = "moments", "deviations", "square"
_SQUARE_SHARE = table("totals").square_share


@dataclass(frozen=True)
class BayesDesign:
    """A study, understood."""

    parameters: Parameters
    aggregation: Aggregation
    layout: MomentsLayout
    schedule: Schedule
    #: What is added up, by name and in this order.
    totals: dict[str, Summed]
    standard: StandardRows
    covariance: Covariance = Covariance.MODEL
    #: The rows of the focused columns; None without a focus.
    focus: FocusRows | None = None
    #: The best multiple of deviations for so many rows, once it was simulated: public, and a tenth of a second of work.
    multiples: dict[int, float] = field(default_factory=dict, compare=False, repr=False)
    #: Why a study that asks for no goal makes no table, and what would do; empty where it makes one, or says what it is for.
    untabled: str = ""
    #: The rows of a table whose rows are whole by a model; None without one.
    whole: TiltedRows | None = None

    def seen(self, table: Table) -> Table:
        """Return a party's rows that count, with the columns that the formula makes."""
        return self.layout.seen(whole_rows(table, self.layout.left_out))

    def at_site(self, table: Table, party: str) -> Table:
        """Return a party's table with the column of sites, where they have constants of their own."""
        return table if self.layout.sites is None else self.layout.sites.seen(table, party)

    @property
    def weighting(self) -> Weighting | None:
        """Return the declared weights of rows; None where every row counts alike."""
        return self.layout.weighting

    @property
    def models(self) -> tuple[EarlierModel, ...]:
        """Return the earlier models to which the fit is drawn."""
        return self.parameters.prior

    @property
    def method(self) -> Method:
        """Return the method, which says how the budget is spent."""
        return self.schedule.method

    @property
    def mean_only(self) -> bool:
        """Return True if "auto" buys the mean of the response alone."""
        return self.schedule.method is Method.MEAN and self.parameters.method == Method.AUTO

    @property
    def moments(self) -> Summed:
        """Return the one release of moments."""
        return self.totals[MOMENTS]

    @property
    def deviations(self) -> Summed | None:
        """Return the deviations by which Algorithm 2 narrows ranges; None where there are none."""
        return self.totals.get(DEVIATIONS)

    @property
    def last(self) -> StandardRows:
        """Return the rows of the last round: of all columns, or of those of a focus."""
        return self.standard if self.focus is None else self.focus

    @property
    def scales(self) -> Scales:
        """Return the sums by which columns are standardised."""
        return CountedScales(self.layout) if self.schedule.counted else Scales(self.layout)

    @property
    def projected(self) -> tuple[Column, ...]:
        """Return the columns whose ranges Algorithm 2 narrows: numeric features, then the response."""
        return (*(c for c in self.layout.features if c.categories is None), self.layout.response)

    @property
    def coding(self) -> Coding:
        """Return the code of those columns, whose sums and sums of squares are released."""
        return Coding(self.projected, self.layout.grid)

    def narrowed(self, settings: tuple[float, ...]) -> MomentsLayout:
        """Return the layout with the ranges (low, high, low, high ..) that came out of the deviations."""
        if not settings:
            return self.layout
        columns = self.projected
        if len(settings) != 2 * len(columns):
            msg = f"{len(settings)} projection bounds where {len(columns)} columns need two each"
            raise UsageError(msg)
        narrow = {
            column.name: msgspec.structs.replace(column, low=low, high=high)
            for column, low, high in zip(columns, settings[::2], settings[1::2], strict=True)
        }
        features = tuple(narrow.get(column.name, column) for column in self.layout.features)
        layout = self.layout
        return MomentsLayout(
            features, narrow[layout.response.name], layout.grid, layout.geometry, layout.norm, layout.intercept
        )


def design_of(study: Study, method: str | None = None, grid: int | None = None) -> BayesDesign:
    """Return the checked design that the study asks for; ``method`` for a form that has one only, ``grid`` for one whose noise needs a coarser one."""
    parameters = check_parameters(study, Parameters)
    first = study.one_card_for_all()
    check_values(parameters)
    if method is None and (parameters.indefinite != AUTO or parameters.projection_delta is not None):
        raise UsageError(
            "indefinite and projection_delta are of the published form: leave them out, or set calibration = 'published'"
        )
    aggregation = aggregation_of(study, parameters.tolerate, parameters.nodes)
    rows = sum(card.rows for card in study.parties)
    layout = MomentsLayout.of(
        first.columns,
        parameters.response,
        rows,
        geometry=Geometry(parameters.geometry),
        norm=parameters.norm,
        intercept=parameters.fit_intercept,
        formula=parameters.formula,
        weights=parameters.weights,
        sites=sites_of(study, parameters.site_effects, parameters.formula, intercept=parameters.fit_intercept),
    )
    layout = layout if grid is None else replace(layout, grid=grid)
    check_formula(parameters.formula, (parameters.response,))
    if layout.made is not None and layout.made.derived.offset_column is not None:
        raise UsageError("a linear model has no offset: subtract it from the response")
    check_coding(parameters.coding, parameters.reference, {factor.name: factor.levels for factor in layout.terms.factors})
    check_models(parameters.prior, layout.names, intercept=layout.intercept)
    wanted = Method.MOMENTS if paper_parameters(parameters) else Method.FOCUS if parameters.focus else parameters.method
    if layout.sites is not None and wanted == Method.AUTO:  # a table is what sites are for
        wanted = Method.MOMENTS if study.epsilon == math.inf else Method.REFINEMENT
    design = _spent(study, parameters, aggregation, layout, Method(method or wanted))
    if parameters.goal == Goal.TABLE and design.method is not Method.FOCUS:  # what is drawn by lot is related to no gap
        refuse_filled(layout.declared)

    def vectors(adjacency: Adjacency) -> Iterator[Summed]:
        if design.method is Method.MOMENTS:
            return _moments(design, adjacency, estimates=method is None)
        return _rounds(design, adjacency)

    return replace(design, totals=totals_of(study, vectors, layout.weighting, gaps=bool(layout.left_out)))


def _spent(
    study: Study, parameters: Parameters, aggregation: Aggregation, layout: MomentsLayout, wanted: Method
) -> BayesDesign:
    """Return the design without its totals: how the budget is spent, and on which rows."""
    rows = sum(card.rows for card in study.parties)
    covariance = covariance_of(parameters.covariance, study)
    meat = 0.0 if covariance is Covariance.MODEL else MEAT_SHARE
    coefficients = layout.unit_columns + 1 + (layout.sites is not None)
    strong = strength(study, aggregation, layout.weighting)
    lengths = layout.intercept and not parameters.prior
    goal = goal_of(parameters.goal)
    prospect = Prospect(study, aggregation, layout.weighting, coefficients, WORTH_LINES)
    schedule = schedule_of(
        wanted,
        strong / coefficients,
        coefficients,
        parameters.max_passes,
        meat,
        known=_known(parameters, layout),
        lengths=lengths,
        errors_from=WORTH_ERRORS if goal is Goal.PREDICTIONS else min(WORTH_ERRORS, WORTH_LINES),
    )
    if schedule.method in {Method.FOCUS, Method.MOMENTS}:  # these have rules of their own
        said = ""
    else:
        check_goal(goal, prospect, schedule.method, schedule.method is Method.REFINEMENT, (_FOCUS_REMEDY,))
        said = untabled(goal, prospect, (_FOCUS_REMEDY,)) if wanted is Method.AUTO else ""
    used = layout
    if schedule.method is Method.DIRECTION and schedule.passes > parameters.max_passes:
        msg = f"method 'direction' reads the data {schedule.passes} times: max_passes must be at least that"
        raise UsageError(msg)
    if schedule.method in {Method.MEAN, Method.DIRECTION}:
        if not layout.intercept and wanted is not Method.AUTO:
            msg = f"method {str(wanted)!r} begins with the mean of the response: it goes without fit_intercept=False"
            raise UsageError(msg)
        if not layout.intercept:
            schedule = schedule_of(Method.GRADIENT, strong / coefficients, coefficients, parameters.max_passes)
        elif schedule.method is Method.MEAN:
            used = replace(layout, features=())
    if not schedule.meat:
        covariance = without_meat(parameters.covariance, schedule.method, Method.REFINEMENT)
    clusters = study.household_rows if covariance is Covariance.CLUSTER else 0
    standard = StandardRows(used, rows, schedule.longest, square=schedule.square, clusters=clusters)
    design = BayesDesign(parameters, aggregation, layout, schedule, {}, standard, covariance, untabled=said)
    adjacency = Adjacency(study.adjacency)
    if schedule.cross:
        if study.epsilon == math.inf:
            raise UsageError("focus says where a budget goes, and epsilon = inf has none: leave it out")
        focus = replace(FocusRows.of(layout, parameters.focus, rows), longest=schedule.longest, clusters=clusters)
        noise = noise_of(focus, strong, schedule.products, adjacency)
        _check_focus(schedule, noise, rows)
        stretch = stretch_of(noise, rows)
        return replace(design, focus=replace(focus, stretch=stretch), standard=replace(standard, stretch=stretch))
    schedule, standard = opened_rows(schedule, standard, strong, adjacency)
    return replace(design, schedule=schedule, standard=standard)


#: A remedy that linear regression has.
_FOCUS_REMEDY = "focus on the columns that matter (a table of these alone)"


def _known(parameters: Parameters, layout: MomentsLayout) -> int:
    """Return the number of directions that the earlier models span."""
    return len(directions(rows_of(parameters.prior, layout.names, intercept=False))) if parameters.prior else 0


def _check_focus(schedule: Schedule, noise: float, rows: int) -> None:
    """Refuse a focus whose answer would be noise: an error of more than one deviation of the response, from noise alone."""
    error = clip_of_focus(noise) * noise
    if error > _TUNED.error_most:
        msg = (
            f"{schedule.method}: with {rows} rows and this epsilon the noise alone moves a coefficient by {error:.2g} standard deviations of the "
            "response per standard deviation of its column: ask for more rows or a larger epsilon"
        )
        raise UsageError(msg)


def _rounds(design: BayesDesign, adjacency: Adjacency) -> Iterator[Summed]:
    """Means and deviations, gradients, and what standard errors need."""
    schedule, rows = design.schedule, design.standard
    if schedule.method in {Method.DIRECTION, Method.WEIGHTS}:
        yield from lines(schedule, rows, adjacency)
        return
    if schedule.scales:
        yield design.scales.vector(schedule.scales, adjacency)
    yield from gradients(schedule, rows, adjacency)
    if design.focus is not None:
        focus = design.focus
        if schedule.spread:
            yield rows.spread(schedule.spread)
        yield focus.cells_of_all.vector(schedule.cells, focus.moves(adjacency))
        yield focus.cross(schedule.cross, adjacency)
        yield focus.residual(schedule.products, adjacency)
    elif schedule.products:
        yield from left_over(schedule, rows, adjacency)
    if schedule.meat:
        yield design.last.meat.vector(schedule.meat, rows.moves(adjacency))


def _moments(design: BayesDesign, adjacency: Adjacency, *, estimates: bool) -> Iterator[Summed]:
    """One release of moments, before it the deviations of Algorithm 2, and the sum of y^2 where a precision is to be estimated."""
    parameters, layout = design.parameters, design.layout
    estimates = estimates and ESTIMATE in {parameters.prior_precision, parameters.noise_precision}
    square = _SQUARE_SHARE if estimates and layout.geometry is not Geometry.AUGMENTED else 0.0
    rest = (1 - parameters.projection) * (1 - square)
    if parameters.projection:
        count, unit = len(design.projected), float(layout.grid**2)
        distance = math.sqrt(count) * column_moments(0.0, 1.0, 1.0, adjacency, may_be_absent=False) * unit
        yield Summed(
            DEVIATIONS,
            (Block(count, 1 / layout.grid), Block(count, 1.0)),
            # One person moves all columns at once, one value moves one of them.
            {Unit.RECORD: Reach(distance, 2 * count), Unit.ATTRIBUTE: Reach(distance / math.sqrt(count), 2)},
            layout.grid**2,
            parameters.projection,
        )
    if square:  # y^2 lies between 0 and 1 in coded units, under both adjacencies
        reach = {unit: Reach(float(layout.grid**2), 1) for unit in ROWWISE}
        yield Summed(SQUARE, (Block(1, 1.0),), reach, layout.grid**2, (1 - parameters.projection) * square)
    yield layout.vector(MOMENTS, adjacency, rest)


def compile_plan(study: Study) -> Plan:
    """Return the releases of a Bayes study."""
    return plan_of(study, design_of(study))


def plan_of(study: Study, design: BayesDesign, voids: tuple[Sentence, ...] = ()) -> Plan:
    """Return the plan that adds up what this setup says."""
    passes = max(design.schedule.passes, len(design.totals))
    notes = (
        *filter(None, (design.untabled,)),
        *passes_note(design.method, passes),
        *notes_of(design.layout.left_out, study),
        *filled_note(design.parameters.goal, design.layout.declared),
        *typically_crowded(design.layout.features),
        *release_notes(design.totals, design.covariance, {CROSS: _CROSS_TOLD}),
    )
    if design.focus is not None:
        notes = (*notes, _focus_note(design))
    return plan_of_totals(study, design, assumptions=assumed(study, design.models), voids=voids, notes=notes)


def _focus_note(design: BayesDesign) -> str:
    """Return the plan's note on what a focus costs the other terms."""
    focus = design.focus
    assert focus is not None
    others, part = len(focus.nuisance), design.schedule.products + design.schedule.cross
    return (
        f"focus on {listed(list(design.parameters.focus))}: {part:.0%} of the squared budget is for these terms. The other {others} columns and the "
        "intercept have coefficients for predictions, and no standard errors"
    )


# --- The new study file ----------------------------------------------------------------------------------------------------
# The new study file of linear regression.


_COLUMNS = Template.of(
    ColumnsParameters,
    "Linear regression over columns of several parties, from joint sums: with standard errors, or small errors of predictions.",
    COLUMNS,
)

TEMPLATE = Template.of(
    Parameters,
    "Linear regression with standard errors, from totals that a secure sum opens.",
    ROWS,
    foreign=("projection_delta", "indefinite"),
    with_helpers=_COLUMNS,
)
