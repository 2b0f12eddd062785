"""``unpooled.describe``: the study run in process on arrays, and its result."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from unpooled.errors import UsageError
from unpooled.estimation.columns import JOINING, helped, joint_cards
from unpooled.estimation.parameters import NUMBER, SHARED, counts_of, row_cards, site_tables
from unpooled.estimation.parameters import check as check_given
from unpooled.estimation.running import run
from unpooled.estimation.tables import counted_dates, dated_of, declared_in, row_values, table_of
from unpooled.models.describe import MODEL
from unpooled.models.describe.ranges import FARTHEST
from unpooled.models.describe.results import ArmsDescription, DescribedBounds, Description, JointDescription
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.noise import seed_of
from unpooled.privacy.origin import origins_of
from unpooled.privacy.plan import BOUNDS, Study, default_delta
from unpooled.privacy.study import COLUMNS, PROOF
from unpooled.privacy.table import Table
from unpooled.protocol.local import columns_of_parties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from unpooled.privacy.budget import Budget


def _joined(
    table: Table,
    parties: int | Mapping[str, Sequence[int | str]],
    study: Study,
    helpers: int,
    check_rows: str,
    budget: Budget | None,
) -> JointDescription:
    """Return the study of columns at several parties; ``study`` has one card with all of them."""
    groups = columns_of_parties(parties, table.names)
    cards = joint_cards(groups, study.parties[0].columns, None, table.n_rows, "", check_rows)
    asked = {"split": COLUMNS, "check": check_rows, **study.parameters}
    joined = helped(msgspec.structs.replace(study, parties=cards, parameters=asked), helpers)
    tables = {card.name: Table({c.name: table[c.name] for c in card.columns}) for card in cards}
    plan, found = run(MODEL, joined, tables, budget=budget)
    result = found.outcome.result
    return JointDescription(
        result.summaries, result.correlations, result.still, plan, found.ledger, found.outcome.communication
    )


def _ranges(
    data: Any,  # noqa: ANN401 - array, mapping of columns, or data frame
    sites: Sequence[object] | None,
    columns: Sequence[str] | None,
    epsilon: float,
    delta: float | None,
    unit: str,
    unit_id: Any,  # noqa: ANN401 - ids in an array, list or series
    rows_per_household: int,
    adjacency: str,
    random_state: int | None,
    budget: Budget | None,
) -> DescribedBounds:
    """Return the study of private ranges."""
    given = {"epsilon": epsilon, "delta": delta, "random_state": random_state, "budget": budget}
    check_given(SHARED, given | {"unit": unit, "adjacency": adjacency, "rows_per_household": rows_per_household})
    table = table_of(data, columns)
    sites, unit_id = row_values(data, "sites", sites), row_values(data, "unit_id", unit_id)
    tables = site_tables(table, sites, unit, unit_id, rows_per_household)
    wide = Bounds(-FARTHEST, FARTHEST, missing="absent").columns(table.names)
    cards = row_cards(counts_of(tables), wide)
    study = Study(
        model="describe",
        parties=cards,
        epsilon=epsilon,
        delta=default_delta(min(card.people for card in cards)) if delta is None else delta,
        unit=unit,
        adjacency=adjacency,
        parameters={"ranges": True},
        simulation_seed=seed_of(random_state),
        derived=(),
    )
    plan, found = run(MODEL, study, tables, budget=budget)
    return DescribedBounds(found.outcome.result, plan, found.ledger, found.outcome.communication)


def describe(
    data: Any,  # noqa: ANN401 - array, mapping of columns, or data frame
    bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | Literal[True] | None = None,
    *,
    sites: Sequence[object] | None = None,
    columns: Sequence[str] | None = None,
    by: str | None = None,
    parties: int | Mapping[str, Sequence[int | str]] | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    unit: str = "record",
    unit_id: Any = None,  # noqa: ANN401 - ids in an array, list or series
    rows_per_household: int = 1,
    adjacency: str = "replace",
    confidence: float = 0.95,
    helpers: int = 1,
    check: str = PROOF,
    random_state: int | None = None,
    budget: Budget | None = None,
) -> Description | DescribedBounds | JointDescription | ArmsDescription:
    """Return private counts, means and standard deviations of columns; of columns at several ``parties`` their correlations too.

    Parameters
    ----------
    data : array of shape (n, p), mapping from names to columns, or data frame
        The rows.
    bounds : Bounds, (low, high), mapping from column names to ranges or categories, or True, optional
        Declared ranges or categories. None reads them off the data, warns, and promises nothing. True releases private ranges of columns of
        numbers instead of means: the result's ``bounds_`` may be passed to any estimator, whose statement then holds this price too.
    sites : array of n labels, optional
        Which party each row belongs to. None is one party.
    columns : list of str, optional
        Names for an array's columns. None calls them x0, x1, ..
    by : str, optional
        A column with categories, an arm of a trial for one: describe the others apart for each of its levels, with standardised differences from
        the first level.
    parties : int or mapping from names to columns, optional
        Columns of the same people are split: who holds which (a number: even parts). Their joint second moments are released (``unit="record"``), and the result has
        the correlations of all columns.
    epsilon : float, default 1.0
        The privacy asked for: smaller protects more. ``inf`` adds no noise and promises nothing.
    delta : float, optional
        The probability with which the promise may fail. None is min(1e-5, 0.1 / n).
    unit : {"record", "attribute", "household"}, default "record"
        Whom the promise is for: a whole row, one value of one person, or all rows of one id.
    unit_id : array of n ids, optional
        With ``unit="household"``: which rows belong together.
    rows_per_household : int, default 1
        With ``unit="household"``, the most rows of one id that count, over all sites: the noise grows with it.
    adjacency : {"replace", "zero-out"}, default "replace"
        How two neighbouring data sets differ: one becomes any other admissible one, or contributes nothing.
    confidence : float, default 0.95
        Of the intervals, which contain the noise.
    helpers : {1, 0}, default 1
        With ``parties``, whether an outside organisation knows the masks; 0 with three parties or more: they help each other.
    check : {"proof", "none"}, default "proof"
        With ``parties``, whether every party proves that its masked rows are short; without it nothing holds against one that deviates.
    random_state : int, optional
        A seed makes the noise reproducible, and the result a simulation that protects nobody. None draws real noise.
    budget : Budget, optional
        A total that several calls and fits on the same people share.

    Examples
    --------
    >>> import numpy as np, unpooled
    >>> age = np.random.default_rng(0).normal(50, 10, 4000)
    >>> result = unpooled.describe({"age": age}, unpooled.Bounds(0, 100), epsilon=1.0, random_state=0)
    >>> abs(result["all", "age"].mean.value - 50) < 1
    True
    >>> found = unpooled.describe({"age": age}, bounds=True, epsilon=0.5, random_state=0)
    >>> [(c.low < 20, c.high > 80) for c in found.bounds_.columns(["age"])]
    [(True, True)]

    The correlation of columns at two parties, of which none shows the other its rows:

    >>> weight = 0.5 * age + np.random.default_rng(1).normal(50, 8, 4000)
    >>> parties = {"clinic": ["age"], "lab": ["weight"]}
    >>> data, ranges = {"age": age, "weight": weight}, {"age": (0, 100), "weight": (20, 140)}
    >>> joint = unpooled.describe(data, ranges, parties=parties, epsilon=2.0, random_state=0)
    >>> abs(joint.correlation("age", "weight").value.value - 0.53) < 0.1
    True

    """
    if bounds is True:
        if by is not None:
            raise UsageError("private ranges are of all rows together: leave by= out, or pass the ranges as bounds")
        return _ranges(
            data, sites, columns, epsilon, delta, unit, unit_id, rows_per_household, adjacency, random_state, budget
        )
    given = {"epsilon": epsilon, "delta": delta, "bounds": bounds, "random_state": random_state, "budget": budget}
    check_given(
        SHARED | JOINING | {"confidence": (NUMBER,)},
        given | {"unit": unit, "adjacency": adjacency, "confidence": confidence, "helpers": helpers, "check": check},
    )
    check_given(SHARED, {"rows_per_household": rows_per_household})
    if parties is None and (helpers != 1 or check != PROOF):
        raise UsageError("helpers and check go with columns that are split: pass parties=, or leave them out")
    if by is not None and (parties is not None or bounds is None):
        raise UsageError("by= goes with rows of declared bounds: pass bounds, and no parties")
    if parties is not None and (sites is not None or bounds is None):
        raise UsageError("with parties= the columns are split: pass bounds, and no sites")
    if math.isinf(epsilon) and bounds is None:
        msg = "declare bounds: even without noise they say how values are clipped"
        raise UsageError(msg)
    data = counted_dates(data, dated_of(bounds))
    table = table_of(data, declared_in(data, bounds, columns))
    chosen = Bounds.given(bounds, table).columns(table.names)
    sites, unit_id = row_values(data, "sites", sites), row_values(data, "unit_id", unit_id)
    tables = site_tables(table, sites, unit, unit_id, rows_per_household)
    cards = row_cards(counts_of(tables), chosen)
    study = Study(
        model="describe",
        parties=cards,
        epsilon=epsilon,
        delta=default_delta(min(card.people for card in cards)) if delta is None else delta,
        unit=unit,
        adjacency=adjacency,
        parameters={"confidence": float(confidence), **({"by": by} if by is not None else {})},
        simulation_seed=seed_of(random_state),
        origins=origins_of(bounds),
        derived=() if bounds is not None else (BOUNDS,),
    )
    if parties is not None:
        return _joined(table, parties, study, helpers, check, budget)
    plan, found = run(MODEL, study, tables, budget=budget)
    if by is not None:
        return ArmsDescription(found.outcome.result, plan, found.ledger, found.outcome.communication)
    return Description(found.outcome.result, plan, found.ledger, found.outcome.communication)
