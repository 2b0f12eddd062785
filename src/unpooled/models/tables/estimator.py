"""``unpooled.tabulate``: the study run in process on arrays, and its result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from unpooled.errors import UsageError, listed
from unpooled.estimation.parameters import (
    LIST,
    MAPPING,
    NONE,
    NUMBER,
    SHARED,
    WORD,
    counts_of,
    plain,
    row_cards,
    site_tables,
    taking,
)
from unpooled.estimation.parameters import check as check_given
from unpooled.estimation.running import PlannedResult, run
from unpooled.estimation.tables import counted_dates, dated_of, row_values, table_of
from unpooled.models.tables import MODEL
from unpooled.models.tables.result import Cell, Contingency, Effect, Independence, LineShare, TableEstimate, TableQuantile
from unpooled.privacy.bounds import Bounds, text_of
from unpooled.privacy.noise import seed_of
from unpooled.privacy.origin import origins_of
from unpooled.privacy.plan import BOUNDS, Plan, Study, default_delta

if TYPE_CHECKING:
    from unpooled.models.tables.declared import TablesDesign
    from unpooled.privacy.budget import Budget
    from unpooled.privacy.ledger import Entry


@dataclass(frozen=True, repr=False)
class Tabulation(PlannedResult):
    """Private counts of a table's cells, and what follows from them; printing it gives a table.

    Attributes
    ----------
    table_ : Contingency
        The ``cells`` (one for each source, ``"pooled"`` first, and each combination of levels), ``shares``, test of ``independence``,
        ``effects`` of two levels, and ``quantiles``.
    statement_ : Statement
        What is promised, and what is not.
    plan_ : Plan
        What was released, with which noise.
    ledger_ : tuple of Entry
        What was debited.
    communication_ : dict
        Bytes sent to and received from each party.

    """

    _model: ClassVar = MODEL
    _saved_types: ClassVar = (Cell, Contingency, Effect, TableEstimate, Independence, TableQuantile, LineShare)
    table_: Contingency
    plan_: Plan
    ledger_: tuple[Entry, ...]
    communication_: dict[str, dict[str, int]]

    def __getitem__(self, key: str | tuple[str, ...]) -> TableEstimate:
        """Return the count of a cell, by the levels of the columns in their order; a first name more is a source."""
        names = (key,) if isinstance(key, str) else tuple(key)
        known = {cell.levels: cell.count for cell in reversed(self.table_.cells)}  # of equal levels the first source stays
        known |= {(cell.source, *cell.levels): cell.count for cell in self.table_.cells}
        if names in known:
            return known[names]
        msg = f"there is no cell {names}: columns are {listed(list(self.table_.columns))}, and a source may stand before their levels"
        raise KeyError(msg)

    def effect(self, name: str, line: str | None = None) -> Effect:
        """Return an effect by its name, such as "risk difference"; of several lines that of this one."""
        for effect in self.table_.effects:
            if effect.name == name and line in {None, effect.line}:
                return effect
        names = list(dict.fromkeys(effect.name for effect in self.table_.effects))
        msg = f"there is no effect {name!r}{f' of {line!r}' if line else ''}: there are {listed(names) if names else 'none'}"
        raise KeyError(msg)

    def quantile(self, part: float, line: str = "") -> TableQuantile:
        """Return a quantile that the table shows; of two columns that of a level of the first."""
        for quantile in self.table_.quantiles:
            if quantile.part == part and quantile.line == line:
                return quantile
        parts = list(dict.fromkeys(f"{quantile.part:g}" for quantile in self.table_.quantiles))
        msg = f"there is no quantile {part:g} of {line!r}: there are {listed(parts) if parts else 'none'}"
        raise KeyError(msg)

    def _what(self) -> str:
        return " x ".join(self.table_.columns)


def _asked(
    columns: Sequence[str],
    cuts: Mapping[str, Any] | None,
    totals: Mapping[str, Mapping[str, int]] | None,
    confidence: float,
) -> dict[str, Any]:
    """Return the parameters of the study, NumPy's numbers as Python's own."""
    asked: dict[str, Any] = {"columns": list(columns), "confidence": float(confidence)}
    if cuts:
        asked["cuts"] = {
            str(name): [float(cut) for cut in said] if LIST.holds(said) else plain(said) for name, said in cuts.items()
        }
    if totals:
        asked["totals"] = {
            str(name): {text_of(level): _count(total) for level, total in said.items()} for name, said in totals.items()
        }
    return asked


def _count(total: Any) -> Any:  # noqa: ANN401 - a whole number of any kind; anything else is refused with the study
    """Return a number that carries its origins, which is a float, as a whole number."""
    return int(total) if isinstance(total, float) and total.is_integer() else plain(total)


def tabulate(
    data: Any,  # noqa: ANN401 - array, mapping of columns, or data frame
    columns: str | Sequence[str],
    bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None,
    *,
    sites: Sequence[object] | None = None,
    cuts: Mapping[str, Sequence[float] | int] | None = None,
    totals: Mapping[str, Mapping[str, int]] | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    unit: str = "record",
    unit_id: Any = None,  # noqa: ANN401 - ids in an array, list or series
    rows_per_household: int = 1,
    adjacency: str = "replace",
    confidence: float = 0.95,
    random_state: int | None = None,
    budget: Budget | None = None,
) -> Tabulation:
    """Return a private table: counts of all combinations of levels, a test of independence, odds ratios and risk differences, quantiles.

    Parameters
    ----------
    data : array of shape (n, p), mapping from names to columns, or data frame
        The rows: each is one person.
    columns : str or list of str
        The columns of the table. The levels of the first are compared by those of the last; columns in between are strata, and so are sites. Of an
        array, names for all of its columns.
    bounds : Bounds, (low, high) or mapping from column names to ranges or categories, optional
        Declared ranges or categories; the first category is the one that others are compared with. None reads them off the data, warns, and promises nothing.
    sites : array of n labels, optional
        Which party each row belongs to. None is one party.
    cuts : mapping from column names to rising cut points, or to a number of equally wide bins, optional
        For every column that is a number. A value equal to a cut point belongs to the bin above it.
    totals : mapping from column names to numbers of rows by level, optional
        Numbers that are public already, over all sites, such as the sizes of a trial's arms: the counts are made consistent with them.
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
    random_state : int, optional
        A seed makes the noise reproducible, and the result a simulation that protects nobody. None draws real noise.
    budget : Budget, optional
        A total that several calls and fits on the same people share.

    Examples
    --------
    >>> import numpy as np, unpooled
    >>> rng = np.random.default_rng(0)
    >>> arm = rng.choice(np.array(["control", "treated"]), 4000)
    >>> event = np.where(rng.random(4000) < np.where(arm == "treated", 0.2, 0.1), "yes", "no")
    >>> levels = {"arm": ["control", "treated"], "event": ["no", "yes"]}
    >>> found = unpooled.tabulate({"arm": arm, "event": event}, ["arm", "event"], levels, random_state=0)
    >>> bool(found.table_.independence.p_value < 0.01)
    True
    >>> abs(found.effect("risk difference").value - 0.1) < 0.05
    True
    >>> age = rng.normal(50, 10, 4000)
    >>> abs(unpooled.tabulate({"age": age}, "age", (0, 100), cuts={"age": 50}, random_state=0).quantile(0.5).value - 50) < 3
    True

    """
    given = {"epsilon": epsilon, "delta": delta, "bounds": bounds, "random_state": random_state, "budget": budget}
    check_given(
        SHARED | {"confidence": (NUMBER,)} | taking("cuts totals", MAPPING, NONE) | {"columns": (LIST, WORD)},
        given
        | {"unit": unit, "adjacency": adjacency, "confidence": confidence, "rows_per_household": rows_per_household}
        | {"cuts": cuts, "totals": totals, "columns": columns},
    )
    if math.isinf(epsilon) and bounds is None:
        raise UsageError("declare bounds: even without noise they say how values are clipped")
    names = [columns] if isinstance(columns, str) else [str(name) for name in columns]
    data = counted_dates(data, dated_of(bounds))
    table = table_of(data, names)
    declared = bounds
    if isinstance(bounds, Mapping):  # of a whole frame, perhaps
        declared = {name: said for name, said in bounds.items() if name in names or not isinstance(name, str)}
    sites, unit_id = row_values(data, "sites", sites), row_values(data, "unit_id", unit_id)
    tables = site_tables(table, sites, unit, unit_id, rows_per_household)
    cards = row_cards(counts_of(tables), Bounds.given(declared, table).columns(table.names))
    study = Study(
        model="tables",
        parties=cards,
        epsilon=epsilon,
        delta=default_delta(min(card.people for card in cards)) if delta is None else delta,
        unit=unit,
        adjacency=adjacency,
        parameters=_asked(names, cuts, totals, confidence),
        simulation_seed=seed_of(random_state),
        origins=origins_of(bounds, cuts, totals),
        derived=() if bounds is not None else (BOUNDS,),
    )
    design: TablesDesign = MODEL.compile(study).design
    if design.contradicted:
        msg = f"totals of {listed(list(design.contradicted))} contradict the number of rows: levels add up to it, or to less where some are not named"
        raise UsageError(msg).at(column=design.contradicted[0])
    plan, found = run(MODEL, study, tables, budget=budget)
    return Tabulation(found.outcome.result, plan, found.ledger, found.outcome.communication)
