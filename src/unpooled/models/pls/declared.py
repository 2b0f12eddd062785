"""Plan of a PLS study: one release of moments of projected rows, or rounds of regression on them; and the sums that a party makes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from unpooled.errors import DataError, PlanMismatch, UsageError
from unpooled.inference.priors import EarlierModel, assumed, check_models, rows_of
from unpooled.kernels.pls import Centred
from unpooled.linear import design as linear_party
from unpooled.linear.declared import EarlierModels
from unpooled.linear.design import gradients, left_over, lines, opened_rows
from unpooled.linear.layout import Geometry, MomentsLayout
from unpooled.linear.lines import SeveralRows
from unpooled.linear.releases import release_notes
from unpooled.linear.residuals import Covariance
from unpooled.linear.scales import CountedScales
from unpooled.linear.schedule import LENGTH_ROUNDS, ROUNDS, WORTH_SLOPES, Method, schedule_of
from unpooled.linear.standard import StandardRows
from unpooled.models.pls.spectra import BASIS_BITS, Frame, basis_steps, seen_as
from unpooled.privacy.bounds import Column
from unpooled.privacy.declared import OverParties, says
from unpooled.privacy.mechanisms import ScaledGaussian, Vector
from unpooled.privacy.plan import Plan, Release, Study, check_parameters
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.table import BLOCK_ROWS
from unpooled.privacy.unit import Adjacency, Calibration, Split, Unit
from unpooled.protocol.messages import Nothing, Released
from unpooled.protocol.registry import ROWS, Step, Template
from unpooled.schedules import table
from unpooled.totals.modes import aggregation_of, steps_of
from unpooled.totals.rounds import passes_note, plan_of_totals, strength, totals_of
from unpooled.totals.secure_sum import KEYS
from unpooled.totals.total import COUNT, Aggregation, Summed, rows_counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from unpooled.linear.schedule import Schedule
    from unpooled.privacy.table import Table
    from unpooled.protocol.context import Context
    from unpooled.totals.weights import Weighting

    Matrix = NDArray[np.float64]


# --- Plan ------------------------------------------------------------------------------------------------------------------
# Plan of a PLS study: one release of moments of projected rows, or rounds of regression on them.

MOMENTS, EXACT = "moments", "exact"
#: Standard deviations of the noise of a form that has two: a paper's, and that of its package.
SIGMA, SQUARED = "sigma", "sigma^2"
#: ``n_components`` that the released moments choose.
CHOSEN = "cv"
#: Channel values that are projected at a time.
_BLOCK_VALUES = 1 << 21
#: Squares of lengths stay far inside float64, whatever the data.
_WIDEST = 1e150
#: float64 holds integers of so many bits.
_EXACT_BITS = 53
#: Passes in addition to rounds.
_BESIDE = 5 + LENGTH_ROUNDS
_TUNED = table("pls")
#: Ways to spend the budget.
_METHODS = (Method.AUTO, Method.MOMENTS, Method.REFINEMENT, Method.GRADIENT, Method.DIRECTION)


class Parameters(OverParties, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[parameters]`` of a PLS study."""

    response: Annotated[
        str | tuple[str, ...],
        says(
            "A declared column, or several that share spectra, basis and components (PLS2). Every other column is a channel, in the order of the cards.",
            "y",
            column=True,
            study=True,
        ),
    ]
    basis: Annotated[
        str,
        says(
            "Public vectors that spectra are projected onto: smooth ones for ordered channels, a ``matrix`` (loadings of public spectra), or none.",
            choices=("dct", "bspline", "none", "matrix"),
        ),
    ] = "dct"
    basis_size: Annotated[int, says('How many vectors "dct" and "bspline" have.')] = 20
    matrix: Annotated[
        tuple[tuple[float, ...], ...],
        says('The public vectors of basis "matrix", a row for each channel; they keep their lengths.', study=True),
    ] = ()
    reference: Annotated[
        tuple[float, ...], says("A public spectrum that is subtracted. Left out: the middles of the declared ranges.")
    ] = ()
    norm: Annotated[
        float | None,
        says(
            "R, a bound on the length of a projected row, in the scaling of the basis; without it what the ranges allow, which is far too much.",
            1.0,
            study=True,
        ),
    ] = None
    n_components: Annotated[
        int | str,
        says(
            '"cv" takes as few components as lead to the coefficients of the rounds; from one release it estimates the error of 1 to 12 components on '
            "new rows by the known law of their noise.",
            choices=(CHOSEN,),
        ),
    ] = CHOSEN
    method: Annotated[
        str,
        says(
            'How the budget is spent. "moments" is one release of second moments. The others are rounds of regression on the coordinates, with '
            'components of what they found; "refinement" is for one response. "auto" decides before data, by rows, epsilon, coordinates and responses.',
            choices=_METHODS,
            lean=True,
        ),
    ] = Method.AUTO
    prior: EarlierModels = ()
    sd: Annotated[
        str,
        says("Standard deviation of the published noise: the paper's, or that of its package.", choices=(SIGMA, SQUARED)),
    ] = SIGMA

    @property
    def responses(self) -> tuple[str, ...]:
        """Return the responses by name."""
        return (self.response,) if isinstance(self.response, str) else self.response


@dataclass(frozen=True)
class PlsDesign:
    """A study, understood."""

    parameters: Parameters
    aggregation: Aggregation
    frame: Frame
    channels: tuple[Column, ...]
    layout: MomentsLayout
    #: The rounds, and the rows that they sum over.
    schedule: Schedule
    standard: StandardRows
    #: What is added up, by name.
    totals: dict[str, Summed]
    #: Rows of which components alone follow have no standard errors that could be robust.
    covariance: Covariance = Covariance.MODEL
    weighting: Weighting | None = None
    #: Earlier models, as functions of the coordinates.
    models: tuple[EarlierModel, ...] = ()

    @property
    def vector(self) -> Summed:
        """Return the moments of the one release."""
        return self.totals[MOMENTS]

    @property
    def one_release(self) -> bool:
        """Return True if moments of projected rows are all that is released."""
        return self.schedule.method is Method.MOMENTS

    @cached_property
    def scales(self) -> CountedScales:
        """Return the sums by which coordinates are standardised."""
        return CountedScales(self.layout, steep=True)

    def seen(self, table: Table) -> Table:
        """Return a party's table as rounds see it: coordinates and the response, made block by block."""
        if self.one_release or self.layout.features[0].name in table.names:
            return table
        return seen_as(table, self, self.layout.names_read, self.blocks)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns a party reads: channels, then the responses."""
        return (*(column.name for column in self.channels), *self.parameters.responses)

    @property
    def several(self) -> bool:
        """Return True if there is more than one response."""
        return len(self.parameters.responses) > 1

    @property
    def radius(self) -> float:
        """R."""
        assert self.layout.norm is not None
        return self.layout.norm

    def blocks(self, table: Table, most: int = BLOCK_ROWS) -> Iterator[tuple[NDArray[np.float64], ...]]:
        """Coordinates of at most length R and the responses, some rows at a time; exact products, so that blocks do not matter.

        Channels are clipped to their ranges and rounded toward zero to integers, the basis is made of integers: all their sums of
        products are exact in float64. What follows is done value by value.
        """
        from unpooled.kernels.moments import quantise

        frame, count = self.frame, len(self.channels)
        low, high = _ranges(self.channels)
        span = _span(self.channels, frame.reference)
        grid, units, integers = math.ldexp(1.0, _EXACT_BITS - 1), np.ones(frame.size), None
        if frame.basis is not None:
            grid = math.ldexp(grid, -BASIS_BITS - math.ceil(math.log2(count)))
            units = basis_steps(frame.basis)
            integers = np.rint(frame.basis / units)
        units *= span / grid
        for block in table.blocks(self.names, max(1, min(most, _BLOCK_VALUES // count))):
            size = block[0].size
            coded = np.empty((size, count), order="F")
            for j, values in enumerate(block[:count]):
                if quantise(values, low[j], high[j], frame.reference[j], span, grid, coded[:, j]):
                    msg = f"column {self.channels[j].name!r} holds a missing value: clean it, a spectrum is whole"
                    raise DataError(msg).at(column=self.channels[j].name)
            rows = (coded if integers is None else coded @ integers).T * units[:, None]
            squares = np.zeros(size)
            for coordinate in rows:  # one after the other, so that a row's length does not depend on its place in a block
                squares += coordinate * coordinate
            rows *= np.minimum(1.0, self.radius / np.sqrt(np.maximum(squares, np.finfo(float).tiny)))
            yield (*rows, *block[count:])

    def exact(self, table: Table) -> tuple[Matrix, Matrix]:
        """Clipped coordinates and responses in float64, for the noise-free algorithm."""
        low, high = _ranges(self.channels)
        *raw, response = (table[name] for name in self.names)
        rows = self.frame.coordinates(np.clip(np.column_stack(raw), low, high))
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows *= np.minimum(1.0, self.radius / np.maximum(lengths, np.finfo(float).tiny))
        return rows, np.clip(response, *self.layout.response.range)


def _ranges(columns: Sequence[Column]) -> tuple[Matrix, Matrix]:
    low, high = np.array([column.range for column in columns]).T
    return low, high


def _span(columns: Sequence[Column], reference: Matrix) -> float:
    """Return the largest distance of a clipped channel from the reference."""
    low, high = _ranges(columns)
    return float(np.maximum(high - reference, reference - low).max())


def _channels(study: Study, responses: tuple[str, ...]) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Return the channels and the responses, which all parties declare alike."""
    first = study.one_card_for_all()
    channels = tuple(column for column in first.columns if column.name not in responses)
    for column in first.columns:
        if column.categories is not None or column.may_be_absent:
            msg = f'column {column.name!r}: a spectrum is whole numbers of channels with low and high, missing = "refuse"'
            raise UsageError(msg).at(column=column.name)
    return channels, tuple(first.column(response) for response in responses)


def _check(parameters: Parameters) -> None:
    wanted, named = parameters.n_components, parameters.responses
    if not named or len(set(named)) != len(named):
        raise UsageError("response names a column, or several, each once")
    if wanted != CHOSEN and (not isinstance(wanted, int) or wanted < 1):
        msg = f"n_components is a whole number of at least 1, or {CHOSEN!r}"
        raise UsageError(msg)
    if parameters.norm is not None and not 0 < parameters.norm < math.inf:
        raise UsageError("norm must be positive and finite: a public bound on the length of a projected row")
    if parameters.method not in _METHODS:
        msg = f"method is one of {', '.join(_METHODS)}, not {parameters.method!r}"
        raise UsageError(msg)
    if len(named) > 1 and parameters.method == Method.REFINEMENT:
        msg = f'method = "{parameters.method}" goes with one response: leave method out, take "gradient", "direction" or "moments", or name one response'
        raise UsageError(msg)
    if len(named) > 1 and parameters.prior:
        raise UsageError("prior goes with one response")
    if parameters.method == Method.DIRECTION and parameters.prior:
        raise UsageError('method = "direction" goes without prior: leave method out, and rounds begin at the earlier models')
    if parameters.sd not in {SIGMA, SQUARED}:
        msg = f"sd is {SIGMA!r} (the paper) or {SQUARED!r} (its package), not {parameters.sd!r}"
        raise UsageError(msg)


def design_of(study: Study) -> PlsDesign:
    """Return the checked design that the study asks for (Theorem C.5)."""
    parameters = check_parameters(study, Parameters)
    _check(parameters)
    channels, (response, *others) = _channels(study, parameters.responses)
    if not channels:
        raise UsageError("a PLS study needs at least one channel beside the response")
    low, high = _ranges(channels)
    reference = np.array(parameters.reference) if parameters.reference else (low + high) / 2
    frame = Frame.of(parameters.basis, len(channels), parameters.basis_size, reference, parameters.matrix)
    if not _span(channels, reference) * len(channels) < _WIDEST:
        raise UsageError(
            "the ranges of the channels are too wide, or the reference is too far from them: declare possible values"
        )
    if isinstance(parameters.n_components, int) and parameters.n_components > frame.size:
        msg = f"n_components = {parameters.n_components} with {frame.size} coordinates: ask for fewer, or enlarge the basis"
        raise UsageError(msg)
    norm = parameters.norm or frame.longest(low, high)
    rows = sum(card.rows for card in study.parties)
    # Names that no response can have: its own is a part of each.
    columns = (
        *(Column(f"coordinate {k} for {' '.join(parameters.responses)}", -norm, norm) for k in range(frame.size)),
        response,
    )
    augmented = Geometry.AUGMENTED
    layout = MomentsLayout.of(columns, response.name, rows, geometry=augmented, norm=norm, others=tuple(others))
    aggregation = aggregation_of(study, parameters.tolerate, parameters.nodes)
    schedule, standard = _rounds(study, parameters, aggregation, layout)
    models = (
        in_coordinates_of(parameters.prior, tuple(c.name for c in channels), frame, layout.names) if parameters.prior else ()
    )
    design = PlsDesign(parameters, aggregation, frame, channels, layout, schedule, standard, {}, models=models)
    return replace(design, totals=totals_of(study, lambda adjacency: _vectors(design, adjacency)))


def _rounds(
    study: Study, parameters: Parameters, aggregation: Aggregation, layout: MomentsLayout
) -> tuple[Schedule, StandardRows]:
    """Return how the budget is spent: by the rule of regression, and by one release where that has no rounds (THEORY.md, section 3b)."""
    rows, wanted, strong = sum(card.rows for card in study.parties), Method(parameters.method), math.inf
    if study.epsilon == math.inf or study.calibration != Calibration.SOUND:
        wanted = Method.MOMENTS
    if wanted is not Method.MOMENTS or parameters.prior:
        strong = strength(study, aggregation)
    if parameters.prior and strong < _TUNED.worth_prior:
        msg = (
            f"with {rows} rows and this epsilon the noise hides how far spectra agree with earlier models: ask for more rows or a larger epsilon, or use "
            "the earlier model as it is"
        )
        raise UsageError(msg)
    k, most, lengths = strong / layout.size, ROUNDS + _BESIDE, not parameters.prior
    if layout.others:
        schedule = _of_several(wanted, k, layout, most)
        return schedule, SeveralRows(layout, rows, schedule.longest)
    schedule = schedule_of(wanted, k, layout.size, most, lengths=lengths)
    if wanted is Method.AUTO and schedule.method is Method.DIRECTION and k >= WORTH_SLOPES:
        # Deviations of coordinates may be anything, and rounds of gradients learn them.
        schedule = schedule_of(Method.GRADIENT, k, layout.size, most, lengths=lengths)
    if parameters.prior and schedule.method in {Method.MEAN, Method.DIRECTION}:
        # Rounds that are drawn to earlier models tell more than one release that is.
        schedule = schedule_of(Method.GRADIENT, k, layout.size, most)
    elif schedule.method is Method.MEAN:
        schedule = schedule_of(Method.MOMENTS, k, layout.size, most)
    standard = StandardRows(layout, rows, schedule.longest, square=schedule.square)
    return opened_rows(schedule, standard, strong, Adjacency(study.adjacency))


def _of_several(wanted: Method, k: float, layout: MomentsLayout, most: int) -> Schedule:
    """Return the rounds of several responses: those of one at the k that is left for each, with residuals that are together as long (THEORY.md, section 3b)."""
    longer = math.sqrt(layout.responses)
    k /= longer
    if wanted is Method.AUTO:
        wanted = Method.GRADIENT if k < _TUNED.one_release else Method.MOMENTS
        if k < WORTH_SLOPES:
            directs = schedule_of(Method.AUTO, k, layout.size, most).method is Method.DIRECTION
            wanted = Method.DIRECTION if directs else Method.MOMENTS
    schedule = schedule_of(wanted, k, layout.size, most)
    return replace(schedule, longest=longer * schedule.longest, line=longer * schedule.line)


def _vectors(design: PlsDesign, adjacency: Adjacency) -> Iterator[Summed]:
    """Return what is added up: one total of moments, or those of the rounds."""
    schedule, standard, layout = design.schedule, design.standard, design.layout
    if design.one_release:
        yield layout.vector(MOMENTS, adjacency, 1.0)
        return
    if schedule.method is Method.DIRECTION:
        yield from lines(schedule, standard, adjacency)
        return
    # One channel is a part of every coordinate: one value moves them all, to another row and not to none (Theorem C.6).
    scales = {how: design.scales.vector(schedule.scales, how) for how in (adjacency, Adjacency.REPLACE)}
    reach = {Unit.RECORD: scales[adjacency].reach[Unit.RECORD], Unit.ATTRIBUTE: scales[Adjacency.REPLACE].reach[Unit.RECORD]}
    yield replace(scales[adjacency], reach=reach)
    yield from gradients(schedule, standard, adjacency)
    if schedule.products:
        yield from left_over(schedule, standard, adjacency)


def in_coordinates_of(
    models: Sequence[EarlierModel], channels: Sequence[str], frame: Frame, coordinates: Sequence[str]
) -> tuple[EarlierModel, ...]:
    """Return models of spectra as models of the coordinates, for spectra in the span of the basis; what is outside of it nobody releases."""
    check_models(models, channels, intercept=True)
    own = rows_of(models, channels, intercept=True)
    slopes = own[:, :-1] @ frame.spectra(np.eye(frame.size))
    constants = own[:, -1] + own[:, :-1] @ frame.reference
    return tuple(
        EarlierModel(model.name, dict(zip(coordinates, values.tolist(), strict=True)), float(constant))
        for model, values, constant in zip(models, slopes, constants, strict=True)
    )


PUBLIC = Sentence(
    "pls.public", "The basis, the reference spectrum and the bound on projected rows, which the study declares."
)
ALONE = Sentence(
    "pls.alone",
    "Each spectrum was preprocessed by itself, with public constants only. Preprocessing that learns from all spectra (their mean, say) makes "
    "every row depend on every other.",
)


def compile_plan(study: Study) -> Plan:
    """Return the releases of a PLS study."""
    design = design_of(study)
    if study.epsilon < math.inf or design.several:
        notes: tuple[str, ...] = ()
        if not design.one_release:
            passes = max(design.schedule.passes, len(design.totals))
            notes = (*passes_note(design.schedule.method, passes), *release_notes(design.totals, design.covariance))
        return plan_of_totals(
            study, design, public=(PUBLIC,), assumptions=(ALONE, *assumed(study, design.parameters.prior)), notes=notes
        )
    if study.unit == Unit.HOUSEHOLD:
        raise UsageError(
            'epsilon = inf protects no household: ask for a finite epsilon, or for unit = "record" with other cards'
        )
    size = exact_size(design.frame.size)
    releases = tuple(Release(MOMENTS, card.name, EXACT, ScaledGaussian.silent(size)) for card in study.parties)
    return Plan(
        study,
        Split.HORIZONTAL,
        releases,
        public=(PUBLIC,),
        assumptions=(ALONE, *assumed(study, design.parameters.prior)),
        design=design,
    )


def exact_size(coordinates: int) -> int:
    """Return numbers of exact moments: mean, cross vector and Gram of the coordinates, mean and square of the response."""
    return coordinates * (coordinates + 2) + 2


# --- Messages --------------------------------------------------------------------------------------------------------------
# Messages that may leave a party besides its part of a total (``unpooled.totals.total``).


class ExactReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Moments without noise, where epsilon is infinite."""

    moments: Released


# --- The party's steps -----------------------------------------------------------------------------------------------------
# The only part of this model that touches raw data: sums over projected rows, exact moments where no noise is asked for.


def _moments(context: Context[PlsDesign], settings: tuple[float, ...]) -> NDArray[np.int64]:
    if settings:
        raise PlanMismatch("moments are those of the declared basis and bounds: their request has no settings")
    design = context.design
    return design.layout.added_up(design.blocks(context.table))


def _exact(context: Context[PlsDesign], request: Nothing) -> ExactReply:  # noqa: ARG001 - the request is no more than its name
    context.planned(MOMENTS)  # before anything is computed
    found = Centred.of(*context.design.exact(context.table))
    parts = (found.mean, [found.response], found.gram.ravel(), found.cross, [found.square])
    return ExactReply(context.release(MOMENTS, Vector(np.concatenate(parts))))


#: What a party adds up, by the name of the total.
STATISTICS = {COUNT: rows_counted, MOMENTS: _moments, **linear_party.STATISTICS}

STEPS = (
    KEYS,
    *(step for name, statistic in STATISTICS.items() for step in steps_of(name, statistic)),
    Step(EXACT, Nothing, ExactReply, _exact),
)


# --- The new study file ----------------------------------------------------------------------------------------------------
# The new study file of partial least squares.

TEMPLATE = Template.of(Parameters, "Partial least squares on spectra, in a public basis.", ROWS, foreign=("sd",))
