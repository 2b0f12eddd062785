"""Pure generator of the default form: standardise, choose, moments, axes, what they have in common, and a fit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from unpooled.errors import ProtocolError
from unpooled.inference.priors import rows_of
from unpooled.kernels.l1_ball import TwoClasses, logistic_in_ball, logistic_with_penalty
from unpooled.models.lasso.coordinator import LassoResult, fills, in_own_units
from unpooled.models.lasso.declared import LOGISTIC
from unpooled.models.lasso.drawn import Agreement, Mixture, drawn_by
from unpooled.models.lasso.messages import Term
from unpooled.models.lasso.plan import grids, shortened
from unpooled.models.lasso.standard_fit import OwnMoments, fitting, heard_rows, in_ball, penalised, standards_of
from unpooled.models.lasso.standard_messages import AxisRequest, ChooseRequest, CrossingRequest, ProductsRequest, Standards
from unpooled.models.lasso.standard_plan import AXIS, AXIS_CAP, CHOOSE, CLIP, CROSSING, PRODUCTS, SUMS, coded_of
from unpooled.protocol.conversation import everybody
from unpooled.protocol.messages import Array, Ask, Nothing

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from numpy.typing import NDArray

    from unpooled.inference.priors import DrawnTo
    from unpooled.models.lasso.standard_fit import Axis, Products, Solve
    from unpooled.models.lasso.standard_plan import StandardDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Conversation

    Vector = NDArray[np.float64]
    Known = dict[str, tuple[Vector, Vector]]


def coordinate_standard(plan: Plan[StandardDesign]) -> Conversation:
    """Ask for sums, picks, moments and axes; the fit of what was released."""
    design = plan.design
    bound = design.parameters.response_bound
    known, response = yield from _standards(plan)
    logistic = design.parameters.loss == LOGISTIC
    if design.mean_only:
        return LassoResult((), _log_odds(response[0], design.rows) if logistic else bound * response[0], (), (), ())
    chosen = yield from _chosen(plan, known, response)
    requests = {name: ProductsRequest(_numbers(known[name], response, columns), columns) for name, columns in chosen.items()}
    replies = yield from everybody([Ask(name, PRODUCTS, request) for name, request in requests.items()])
    owns = {name: _own(plan, name, reply) for name, reply in zip(requests, replies, strict=True)}
    places = [(name, j) for name, columns in chosen.items() for j in columns]
    widths, means = (np.array([known[name][part][j] for name, j in places]) for part in (1, 0))
    radius = design.parameters.bound
    solve, deviation = _solve(design, response, radius)
    scale = deviation / widths
    chance = 1 / math.sqrt(design.rows)
    steps = fitting(list(owns.values()), scale, solve, design.stages, None if radius is not None else chance)
    x, constant = yield from _measured(plan, requests, steps)
    if design.parameters.prior:
        return _drawn(plan, known, (x, scale, places), [*owns.values()], chance, _solve(design, response, 1.0)[0])
    return _result(plan, places, x, constant - float(means @ x), radius)


def _result(
    plan: Plan[StandardDesign],
    places: Sequence[tuple[str, int]],
    x: Vector,
    intercept: float,
    radius: float | None = None,
    drawn: DrawnTo | None = None,
) -> LassoResult:
    """Return the coefficients that are not zero, of coded columns and in the data's own units."""
    found = sorted((Term(*place, value) for place, value in zip(places, x.tolist(), strict=True) if value), key=_order)
    terms = tuple(found)
    return LassoResult(*in_own_units(plan, terms, intercept), terms, (), (), fills(np.abs(x).sum(), radius), drawn=drawn)


def _drawn(
    plan: Plan[StandardDesign],
    known: Known,
    fit: tuple[Vector, Vector, Sequence[tuple[str, int]]],
    owns: Sequence[OwnMoments],
    chance: float,
    solve: Solve,
) -> LassoResult:
    """Return the mixture of a fit (coded coefficients, their scale, their places) with earlier models, which also have columns that no party kept."""
    x, scale, kept = fit
    models = plan.design.parameters.prior
    names, widths, places = coded_of(plan.study)
    told = rows_of(models, names, intercept=False) * widths
    at = [places.index(place) for place in kept]
    heard = [Agreement.of_party(own, chance, len(kept), alone=len(owns) == 1) for own in owns]
    mixture = Mixture.of(x / scale, told[:, at] / scale, heard, solve)
    alone, mixed = np.zeros(len(places)), mixture.weights @ told
    alone[at], mixed[at] = x, mixture.mixed * scale
    means = np.concatenate([known[name][0] for name in plan.design.parties])
    before, after = (dict(zip(names, (own / widths).tolist(), strict=True)) for own in (alone, mixed))
    drawn = drawn_by(models, mixture, after, before)
    return _result(plan, places, mixed, mixture.constant - float(means @ mixed), drawn=drawn)


def _solve(design: StandardDesign, response: tuple[float, float], radius: float | None) -> tuple[Solve, float]:
    """Return the fit of the study's loss in a ball, or with a penalty, and one deviation of the response in the units of coefficients."""
    if design.parameters.loss == LOGISTIC:
        return _classes(design, response, radius), 1.0
    bound = design.parameters.response_bound
    return _squares(bound * response[0], radius), response[1] * bound


def _squares(constant: float, radius: float | None) -> Solve:
    """Return the smallest squared error in the ball, or with a penalty."""
    if radius is None:
        return lambda gram, cross, penalty, scale: (penalised(gram, cross, penalty, scale), constant)
    return lambda gram, cross, _, scale: (in_ball(gram, cross, scale, radius), constant)


def _classes(design: StandardDesign, response: tuple[float, float], radius: float | None) -> Solve:
    """Return the smallest logistic loss of two normal classes in the ball, or with a penalty."""
    share, slope = _share(response[0], design.rows), _slope(response)

    def solve(gram: Vector, cross: Vector, penalty: Vector, scale: Vector) -> tuple[Vector, float]:
        classes = TwoClasses.of(gram, cross / slope, share)
        if radius is not None:
            return logistic_in_ball(classes, scale, radius)
        # Where nothing is fitted yet, the loss falls by half of what the squared one falls by.
        w, constant = logistic_with_penalty(classes, penalty / (2 * slope))
        return w * scale, constant

    return solve


def _share(mean: float, rows: int) -> float:
    """Return the share of the second class, which neither noise nor luck makes nothing or all."""
    return min(max((1 + mean) / 2, 1 / rows), 1 - 1 / rows)


def _log_odds(mean: float, rows: int) -> float:
    share = _share(mean, rows)
    return math.log(share / (1 - share))


def _slope(response: tuple[float, float]) -> float:
    """Return the slope of a party's clipped, standardised class: with two values, clipping keeps it a straight line of the class."""
    low, high = (min(max((value - response[0]) / response[1], -CLIP), CLIP) for value in (-1.0, 1.0))
    return max((high - low) / 2, 1e-3)


def _order(term: Term) -> tuple[str, int]:
    return term.party, term.column


def _numbers(known: tuple[Vector, Vector], response: tuple[float, float], columns: tuple[int, ...]) -> Standards:
    middle, width = (part[list(columns)] for part in known)
    return Standards(tuple(middle.tolist()), tuple(width.tolist()), response)


def _standards(plan: Plan[StandardDesign]) -> Generator[Any, Any, tuple[Known, tuple[float, float]]]:
    """Means and deviations of every party's columns, and those of the response."""
    design = plan.design
    names = design.parties[:1] if design.mean_only else design.parties
    replies = yield from everybody([Ask(name, SUMS, Nothing()) for name in names])
    g, known, response = float(grids(design.rows)[0]), {}, (0.0, 1.0)
    for name, reply in zip(names, replies, strict=True):
        mechanism: Any = plan.release(name, SUMS).mechanism
        width = 0 if design.mean_only else design.widths[name]
        values, noise = mechanism.decode(reply.sums.values.numpy()) / design.rows, mechanism.deviations / design.rows
        columns = (slice(width), slice(width, 2 * width))
        first, second = (values[part] / g ** (i + 1) for i, part in enumerate(columns))
        noises = tuple(noise[part] / g ** (i + 1) for i, part in enumerate(columns))
        known[name] = standards_of(first, second, (noises[0], noises[1]), centred=design.centres)
        if name == names[0]:
            own, own_noise = values[2 * width :] / [g, g * g], noise[2 * width :] / [g, g * g]
            middle, deviation = standards_of(own[:1], own[1:], (own_noise[:1], own_noise[1:]), centred=design.centres)
            response = float(middle[0]), float(deviation[0])
    return known, response


def _chosen(
    plan: Plan[StandardDesign], known: Known, response: tuple[float, float]
) -> Generator[Any, Any, dict[str, tuple[int, ...]]]:
    """The columns that every party keeps: all of them, or its picks."""
    design = plan.design
    found: dict[str, list[int]] = {name: list(design.known.get(name, ())) for name in design.parties}
    everything = {name: tuple(range(width)) for name, width in design.widths.items()}
    picking = [name for name in design.parties if design.picks(name)]
    for t in range(max((design.picked(name) for name in picking), default=0)):
        turn = [name for name in picking if t < design.picked(name)]
        asks = [
            Ask(name, CHOOSE, ChooseRequest(_numbers(known[name], response, everything[name]), tuple(found[name])), t)
            for name in turn
        ]
        for name, reply in zip(turn, (yield from everybody(asks)), strict=True):
            left = [j for j in everything[name] if j not in found[name]]
            picked = int(reply.choice.values.numpy()[0])
            if not 0 <= picked < 2 * len(left):
                msg = f"party {name!r} picked a column that it does not have"
                raise ProtocolError(msg)
            found[name].append(left[picked % len(left)])
    return {name: tuple(sorted(found[name])) if design.picks(name) else everything[name] for name in design.parties}


def _own(plan: Plan[StandardDesign], name: str, reply: Any) -> OwnMoments:  # noqa: ANN401 - a ProductsReply
    """Return a party's moments as correlations."""
    design = plan.design
    mechanism: Any = plan.release(name, PRODUCTS).mechanism
    count, unit = design.kept[name], float(design.grid(name)) ** 2 * design.rows
    values, noise = mechanism.decode(reply.products.values.numpy()) / unit, mechanism.deviations / unit
    off = count * (count - 1) // 2
    gram = np.diag(values[:count])
    gram[np.triu_indices(count, 1)] = values[count : count + off]
    gram += np.triu(gram, 1).T
    # The response was counted in units of its clip over R.
    back = CLIP / design.radius(name)
    return OwnMoments(gram, values[count + off :] * back, float(noise[0]), float(noise[-1]) * back)


def _measured(
    plan: Plan, requests: dict[str, ProductsRequest], steps: Generator[list[Axis], Products, tuple[Vector, float]]
) -> Generator[Any, Any, tuple[Vector, float]]:
    """Return the fit made of the products of the axes that it asks for, stage by stage."""
    products: Any = None
    for stage in range(plan.design.stages + 1):
        try:
            axes = steps.send(products)
        except StopIteration as ended:
            return cast("tuple[Vector, float]", ended.value)
        products = yield from _products(plan, requests, axes, stage)
    raise AssertionError("a fit of more stages than were planned")  # pragma: no cover - both count the same stages


def _products(
    plan: Plan[StandardDesign], requests: dict[str, ProductsRequest], axes: list[Axis], stage: int
) -> Generator[Any, Any, Products]:
    """Return the products of the parties' axes, from their released scores, and the variances of their noise."""
    design = plan.design
    first, second = grids(design.rows)
    asked = {
        name: AxisRequest(request.standards, request.columns, tuple(axis.direction.tolist()))
        for (name, request), axis in zip(requests.items(), axes, strict=True)
    }
    replies = yield from everybody([Ask(name, AXIS, request, stage) for name, request in asked.items()])
    scores, noises = {}, {}
    for name, reply in zip(asked, replies, strict=True):
        mechanism: Any = plan.release(name, AXIS).mechanism
        scores[name] = mechanism.decode(reply.scores.values.numpy()) * (AXIS_CAP / first)
        noises[name] = float(mechanism.deviations[0]) * AXIS_CAP / first
    names, heard = list(asked), max(noises.values())
    products, variance = np.zeros((len(names), len(names))), np.zeros((len(names), len(names)))
    others, kept = {}, {}
    for name in asked:
        others[name], kept[name] = heard_rows(np.column_stack([scores[n] for n in asked if n != name]), heard)
    asks = [Ask(name, CROSSING, CrossingRequest(request, Array.of(others[name])), stage) for name, request in asked.items()]
    replies = yield from everybody(asks)
    for k, (name, reply) in enumerate(zip(names, replies, strict=True)):
        mechanism = plan.release(name, CROSSING).mechanism
        unit = AXIS_CAP / first / second * shortened(others[name])[1] / design.rows
        place = [j for j in range(len(names)) if j != k]
        products[k, place] = mechanism.decode(reply.products.values.numpy()) * (unit / kept[name])
        # The release's noise, and that of the others' scores, which meets scores of variance at most 1.
        noise = (float(mechanism.deviations[0]) * unit) ** 2 + np.square(others[name]).mean(axis=0) / design.rows
        variance[k, place] = noise / kept[name] ** 2
    return products, variance
