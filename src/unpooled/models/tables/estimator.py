"""``unpooled.tabulate``: the study run in process on arrays, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from unpooled.errors import UsageError, listed
from unpooled.estimation.calls import asked_of
from unpooled.estimation.releasing import OfRows, asks, study_of_rows
from unpooled.estimation.running import PlannedResult, run
from unpooled.models.tables import MODEL
from unpooled.models.tables.declared import Parameters
from unpooled.models.tables.result import Cell, Contingency, Effect, Independence, LineShare, TableEstimate, TableQuantile
from unpooled.privacy.plan import Plan

if TYPE_CHECKING:
    from unpooled.models.tables.declared import TablesDesign
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


@asks(OfRows, Parameters, leading="data columns bounds")
def tabulate(asked: Any) -> Tabulation:  # noqa: ANN401 - its arguments
    """Return a private table: counts of all combinations of levels, a test of independence, odds ratios and risk differences, quantiles.

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
    names = [asked.columns] if isinstance(asked.columns, str) else [str(name) for name in asked.columns]
    parameters = asked_of(Parameters, vars(asked) | {"columns": names})
    study, tables = study_of_rows("tables", asked, names, parameters, (asked.cuts, asked.totals))
    design: TablesDesign = MODEL.compile(study).design
    if design.contradicted:
        msg = f"totals of {listed(list(design.contradicted))} contradict the number of rows: levels add up to it, or to less where some are not named"
        raise UsageError(msg).at(column=design.contradicted[0])
    plan, found = run(MODEL, study, tables, budget=asked.budget)
    return Tabulation(found.outcome.result, plan, found.ledger, found.outcome.communication)
