"""The default form's releases: standardised columns, moments of each party's own, and what ties the parties' blocks together (THEORY.md, 1c)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import UsageError
from unpooled.inference.priors import assumed, rows_of
from unpooled.linear.standard import WIDEST
from unpooled.models.lasso.declared import Parameters, check, check_bound, check_prior
from unpooled.models.lasso.plan import RESPONSE_KNOWN, grids, widths_of
from unpooled.privacy.accounting import SAFETY, budget_mu, budget_rho
from unpooled.privacy.bounds import Coding, integer_grid
from unpooled.privacy.mechanisms import Block, GaussianRelease, NoisyChoice, Reach
from unpooled.privacy.plan import Plan, Release, Study, check_parameters
from unpooled.privacy.sensitivity import moments_ball, standardising_sums
from unpooled.privacy.unit import ROWWISE, Adjacency, Split, Unit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.inference.priors import EarlierModel
    from unpooled.privacy.plan import Card

    Vector = NDArray[np.float64]

SUMS, CHOOSE, PRODUCTS, AXIS, CROSSING = "sums", "choose", "products", "axis", "crossing"
#: Shares of the squared budget: sums, picks (where there are any), moments, axes, and what the axes have in common.
SHARES = {SUMS: 0.1, CHOOSE: 0.2, PRODUCTS: 0.4, AXIS: 0.35, CROSSING: 0.15}
#: Weight of a sum beside its sum of squares.
FIRST = 0.5
#: Standardised values are clipped to this; products of a value with the response, and the response beside a row, to these.
CAP, PAIR, CLIP = 4.0, 4.0, 3.0
#: Scores along an axis are clipped to this many of their deviations.
AXIS_CAP = 1.5
#: Axes are released twice where one release would leave less noise than this in the product of two (experiments/lasso/stages.py).
QUIET = 0.15
#: Not at all where it would leave more than this in the mean of all products: so much is known of it before.
DEAF = 1.0
#: What is left of a product with rows that were shortened, about.
_HEARD = 0.85
#: A party keeps at most one column for so many n mu of its own, and never fewer than so many.
PER_COLUMN, FEWEST = 40.0, 4
#: Below so many n mu for each root of the columns that are kept, only the mean is worth its budget (experiments/lasso/record.py).
WORTH = 90.0
#: The same with earlier models, of each of which one number is learnt: over declared shapes at 60 a good one saves .2 of the variance of y and a
#: useless one costs .03 at most; at 45 it costs up to .3.
WORTH_DRAWN = 60.0


@dataclass(frozen=True)
class StandardDesign:
    """A study of this form, understood."""

    parameters: Parameters
    widths: Mapping[str, int]
    kept: Mapping[str, int]
    rows: int
    #: Of the response's mean alone.
    mean_only: bool
    #: How often axes are released.
    stages: int
    #: Columns that a party keeps because earlier models say that they matter; the others that it keeps are picked.
    known: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def centres(self) -> bool:
        """Return True if there is a constant in addition to the columns."""
        return self.parameters.fit_intercept

    @property
    def parties(self) -> tuple[str, ...]:
        """Return the names of the parties in the order of the study."""
        return tuple(self.widths)

    @property
    def crosses(self) -> bool:
        """Return True if several parties have columns that may have something in common, which axes measure."""
        return self.stages > 0

    def picks(self, party: str) -> bool:
        """Return True if a party chooses among its columns."""
        return self.kept[party] < self.widths[party]

    def picked(self, party: str) -> int:
        """Return the number of columns that a party picks."""
        return self.kept[party] - len(self.known.get(party, ())) if self.picks(party) else 0

    def radius(self, party: str) -> float:
        """Return the length to which standardised rows are shortened: that of a typical one."""
        return math.sqrt(self.kept[party])

    def grid(self, party: str) -> int:
        """Return steps per unit of a standardised value: sums of products stay inside 64 bits."""
        exact = 1 << ((53 - math.ceil(math.log2(WIDEST**2 * self.kept[party]))) // 2)  # squared lengths below 2^53
        return min(integer_grid(self.rows * math.ceil(4 * max(self.radius(party), CAP) ** 2), 2), exact)

    def longest(self, party: str) -> tuple[int, int]:
        """Return (longest row, largest response that goes with it), in grid steps."""
        grid = self.grid(party)
        return int(self.radius(party) * grid), int(CLIP * grid)


def strength(study: Study) -> float:
    """N mu: rows times the root of the budget, in which everything about noise is said."""
    return study.parties[0].rows * budget_mu(study.epsilon, study.delta)


def kept_columns(study: Study) -> dict[str, int]:
    """Return the number of columns that each party keeps in the end: fixed before data, by the noise that their moments will have."""
    share = strength(study) / (len(study.parties) if study.unit == Unit.RECORD else 1)
    most = max(FEWEST, int(share / PER_COLUMN)) if math.isfinite(share) else None
    return {name: width if most is None else min(width, most) for name, width in widths_of(study).items()}


def known_columns(study: Study, models: Sequence[EarlierModel]) -> dict[str, tuple[int, ...]]:
    """Return the columns of each party that keeps fewer than it has which earlier models say matter most, in order: half of those it keeps, or less.

    A column matters as far as its term may move predictions, as a part of what all terms of that model may; of several models the largest part counts.
    """
    names, widths, places = coded_of(study)
    terms = np.abs(rows_of(models, names, intercept=False)) * widths
    matters = (terms / np.maximum(terms.sum(axis=1, keepdims=True), 1e-300)).max(axis=0, initial=0.0)
    found = {}
    for name, kept in kept_columns(study).items():
        own = matters[[k for k, (party, _) in enumerate(places) if party == name]]
        best = np.argsort(-own, kind="stable")[: kept // 2] if kept < own.size else ()
        found[name] = tuple(sorted(int(j) for j in best if own[j] > 0))
    return found


def coded_of(study: Study) -> tuple[tuple[str, ...], Vector, tuple[tuple[str, int], ...]]:
    """Return (names, half widths, places) of the coded columns of all parties, in the order of the study."""
    codings = {card.name: Coding(card.columns, 1) for card in study.parties}
    names = tuple(name for coding in codings.values() for name in coding.coded_names)
    widths = np.concatenate([np.asarray(coding.units[0], dtype=np.float64) for coding in codings.values()])
    return names, widths, tuple((party, j) for party, coding in codings.items() for j in range(len(coding.coded_names)))


def only_the_mean(study: Study, worth: float) -> bool:
    """Return True if the noise leaves nothing but the mean: a threshold that simulations of declared shapes fixed, never data."""
    count = sum(kept_columns(study).values()) if study.unit == Unit.RECORD else max(kept_columns(study).values())
    return strength(study) < worth * math.sqrt(count)


def design_of(study: Study) -> StandardDesign:
    """Return the checked design that the study asks for."""
    p = check_parameters(study, Parameters)
    check_bound(p)
    check(study, p, drawn=True)
    check_prior(p, coded_of(study)[0])
    mean_only, several = only_the_mean(study, WORTH_DRAWN if p.prior else WORTH), len(study.parties) > 1
    if p.prior and mean_only:
        msg = (
            f"with {study.parties[0].rows} rows and this epsilon the noise hides how far the rows agree with earlier models: ask for more rows or a larger "
            "epsilon, or use the earlier model as it is"
        )
        raise UsageError(msg)
    design = StandardDesign(
        p, widths_of(study), kept_columns(study), study.parties[0].rows, mean_only, int(several and not mean_only)
    )
    if p.prior:
        design = replace(design, known=known_columns(study, p.prior))
    return replace(design, stages=_stages(study, design)) if design.crosses else design


def _stages(study: Study, design: StandardDesign) -> int:
    """Return two where what axes have in common is known well although the budget is halved, none where all pairs tell nothing, else one."""
    mus = budgets(study, design)[0]
    noise = noise_of_axes(design, mus[AXIS] * equal_part(study), mus[CROSSING] * equal_part(study))
    if noise / math.sqrt(math.comb(len(design.parties), 2)) > DEAF:
        return 0
    return 2 if noise < QUIET else 1


def noise_of_axes(design: StandardDesign, axis: float, crossing: float) -> float:
    """About the deviation of the noise in the product of two axes of variance 1, for these mu of one party."""
    heard = 2 * AXIS_CAP / axis
    both = (
        2 * AXIS_CAP / crossing * longest_row(len(design.parties) - 1, heard) / design.rows
    ) ** 2 + heard**2 / design.rows
    return math.sqrt(both / 2) / _HEARD


def longest_row(others: int, noise: float) -> float:
    """To what length rows of noisy scores are shortened, that are of variance 1 without the noise: nothing where there is none."""
    return AXIS_CAP * math.sqrt(others) * (1 + noise)


def sums_release(design: StandardDesign, card: Card, mu: float) -> GaussianRelease:
    """Return sums and sums of squares of all coded columns; at the first party of the response too (Theorem B.7 with L.7)."""
    g, first, p = float(grids(design.rows)[0]), FIRST, 0 if design.mean_only else design.widths[card.name]
    weight = math.sqrt(max(p, 1)) if card.name == design.parties[0] else 0.0
    blocks = [Block(p, g / first), Block(p, g * g)] if p else []
    if weight:
        blocks += [Block(1, g / first / weight), Block(1, g * g / weight)]
    kinds = [c.categories is not None or c.missing == "indicator" for c in card.columns] if p else []
    distance = standardising_sums(kinds, first, weight, Adjacency.REPLACE)
    reach = Reach(distance, 2 * (p + bool(weight)))
    return GaussianRelease.calibrated(blocks, dict.fromkeys(ROWWISE, reach), Unit.RECORD, mu)


def products_release(design: StandardDesign, party: str, mu: float) -> GaussianRelease:
    """Return second moments of shortened rows and their products with the response, in units of its clip over R (Theorem F.9.3)."""
    count = design.kept[party]
    off = count * (count - 1) // 2
    unit = float(design.longest(party)[0] ** 2)
    middle = (Block(off, unit * math.sqrt(0.5)),) if off else ()
    blocks = (Block(count, unit), *middle, Block(count, unit))
    reach = Reach(moments_ball(1.0, 1.0, Adjacency.REPLACE), count + off + count)
    return GaussianRelease.calibrated(blocks, dict.fromkeys(ROWWISE, reach), Unit.RECORD, mu)


def axis_release(design: StandardDesign, mu: float) -> GaussianRelease:
    """Return one number of at most AXIS_CAP for every row (Theorem L.8)."""
    reach = Reach(2.0 * grids(design.rows)[0], 1)
    return GaussianRelease.calibrated((Block(design.rows, 1.0),), dict.fromkeys(ROWWISE, reach), Unit.RECORD, mu)


def crossing_release(design: StandardDesign, mu: float) -> GaussianRelease:
    """Return the products of an exact axis with the others' released ones (Theorem L.9)."""
    first, second = grids(design.rows)
    others = len(design.parties) - 1
    reach = Reach(2.0 * first * second, others)
    return GaussianRelease.calibrated((Block(others, 1.0),), dict.fromkeys(ROWWISE, reach), Unit.RECORD, mu)


def budgets(study: Study, design: StandardDesign) -> tuple[dict[str, float], float]:
    """Return (mu of all parties together for every kind of release, epsilon of one pick; 0: none)."""
    if study.epsilon == math.inf:
        return dict.fromkeys(SHARES, math.inf), math.inf
    if design.mean_only:
        return {**dict.fromkeys(SHARES, 0.0), SUMS: budget_mu(study.epsilon, study.delta)}, 0.0
    picking = [name for name in design.parties if design.picks(name)]
    used = dict(SHARES)
    if not picking:
        del used[CHOOSE]
    if not design.crosses:
        del used[AXIS], used[CROSSING]
    whole = math.fsum(used.values())
    # Picks are no Gaussians: a plan with any is accounted by zCDP (F.13).
    squared = (
        2 * budget_rho(study.epsilon, study.delta) * (1 - SAFETY) if picking else budget_mu(study.epsilon, study.delta) ** 2
    )
    mus = {name: math.sqrt(squared * share / whole) for name, share in used.items()}
    if not picking:
        return mus, 0.0
    counts = [design.picked(name) for name in picking]
    touched = sum(counts) if study.unit == Unit.RECORD else max(counts)
    return mus, math.sqrt(8 * mus[CHOOSE] ** 2 / 2 / touched)


def compile_standard(study: Study) -> Plan:
    """Return the releases of a LASSO study in the default form."""
    design = design_of(study)
    mus, epsilon = budgets(study, design)
    choice = NoisyChoice(tuple((unit, epsilon) for unit in ROWWISE), Unit(study.unit))
    releases: list[Release] = []
    for card, part in zip(study.parties, parts_of(study, design), strict=True):
        name = card.name
        if name == design.parties[0] or not design.mean_only:
            # Squares of shares add up to one: a row is at every party.
            # The first party also has the response, whose mean all the others rely on.
            both = (part**2 + (name == design.parties[0])) / 2 if study.unit == Unit.RECORD else 1.0
            alone = 1.0 if design.mean_only else math.sqrt(both)
            releases.append(Release(SUMS, name, SUMS, sums_release(design, card, mus[SUMS] * alone)))
        if design.mean_only:
            continue
        if design.picks(name):
            releases.append(Release(CHOOSE, name, CHOOSE, choice, design.picked(name)))
        releases.append(Release(PRODUCTS, name, PRODUCTS, products_release(design, name, mus[PRODUCTS] * part)))
        if design.crosses:
            stage = equal_part(study) / math.sqrt(design.stages)
            releases.append(Release(AXIS, name, AXIS, axis_release(design, mus[AXIS] * stage), design.stages))
            releases.append(
                Release(CROSSING, name, CROSSING, crossing_release(design, mus[CROSSING] * stage), design.stages)
            )
    return Plan(
        study,
        Split.VERTICAL,
        tuple(releases),
        not_protected=(RESPONSE_KNOWN,),
        assumptions=assumed(study, design.parameters.prior),
        design=design,
    )


def parts_of(study: Study, design: StandardDesign) -> list[float]:
    """Return each party's part of mu where a row is at all of them: by its columns, so that noise is about the same everywhere (L.7)."""
    if study.unit != Unit.RECORD:
        return [1.0] * len(study.parties)
    total = sum(design.kept.values())
    return [math.sqrt(design.kept[card.name] / total) for card in study.parties]


def equal_part(study: Study) -> float:
    """Return the same part for each."""
    return 1 / math.sqrt(len(study.parties)) if study.unit == Unit.RECORD else 1.0
