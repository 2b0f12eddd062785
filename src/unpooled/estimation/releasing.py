"""Functions that release once, such as ``unpooled.survival``: signature, docstring and checks from declared parameters, and the study they ask of rows."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from unpooled.errors import UsageError
from unpooled.estimation.calls import OfEveryCall, OverSites, arguments_of, bound_to, documented, signature_of
from unpooled.estimation.parameters import check, counts_of, row_cards, site_tables
from unpooled.estimation.tables import as_read, row_values, table_of
from unpooled.privacy.bounds import Bounds
from unpooled.privacy.declared import says
from unpooled.privacy.noise import seed_of
from unpooled.privacy.origin import origins_of
from unpooled.privacy.plan import AGGREGATION, BOUNDS, Study, default_delta

if TYPE_CHECKING:
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.origin import ReleasedInput
    from unpooled.privacy.table import Table

Found = TypeVar("Found")


class OfRows(OfEveryCall, OverSites):
    """What every function takes that releases something of rows."""

    data: Annotated[
        Any,
        says(
            "The rows: each is one person. Other columns than the named or declared ones are not read.",
            call="array of shape (n, p), mapping from names to columns, or data frame",
            written="Any",
        ),
    ]
    sites: Annotated[
        Any,
        says(
            "Which party each row belongs to, or the column that says it. None is one party.",
            call="array of n labels or str, optional",
            written="Sequence[object] | str | None",
        ),
    ] = None
    unit_id: Annotated[
        Any,
        says(
            'With ``unit="household"``: which rows belong together, or the column that says it.',
            call="array of n ids or str, optional",
            written="Any",
        ),
    ] = None


def asks(*groups: type, leading: str, left: Iterable[str] = ()) -> Callable[[Callable[[Any], Found]], Callable[..., Found]]:
    """Return a decorator that makes a public function of one that is given its arguments, by their names.

    It takes the parameters of these groups but those that are ``left`` out; the ``leading`` ones go with or without their names, in this order.
    """
    arguments = arguments_of(*groups, first=leading, left=left)
    kinds = {name: one.kinds for name, one in arguments.items()}

    def made(function: Callable[[Any], Found]) -> Callable[..., Found]:
        signature = signature_of(arguments.values(), leading=len(leading.split()))

        @wraps(function)
        def call(*args: Any, **given: Any) -> Found:  # noqa: ANN401 - whatever a user passes
            values = bound_to(signature, function.__name__, args, given)
            check(kinds, values)
            return function(SimpleNamespace(**values))

        found = inspect.signature(function).return_annotation
        call.__signature__ = signature.replace(return_annotation=found)  # type: ignore[attr-defined]
        call.__doc__ = documented(function.__doc__, arguments.values())
        call.arguments = arguments  # type: ignore[attr-defined]
        return call

    return made


def study_of(
    model: str,
    asked: Any,  # noqa: ANN401 - the arguments of a call
    table: Table,
    columns: tuple[Column, ...],
    parameters: Mapping[str, Any],
    *,
    origins: tuple[ReleasedInput, ...] = (),
    derived: tuple[str, ...] = (),
) -> tuple[Study, dict[str, Table]]:
    """Return the study that a call asks of the rows of a table, whose columns are declared so, and the tables of its parties."""
    sites, unit_id = (row_values(asked.data, word, getattr(asked, word)) for word in ("sites", "unit_id"))
    tables = site_tables(table, sites, asked.unit, unit_id, asked.rows_per_household)
    cards = row_cards(counts_of(tables), columns)
    study = Study(
        model=model,
        parties=cards,
        epsilon=asked.epsilon,
        delta=default_delta(min(card.people for card in cards)) if asked.delta is None else asked.delta,
        unit=asked.unit,
        adjacency=asked.adjacency,
        parameters=dict(parameters),
        trust={AGGREGATION: asked.aggregation} if hasattr(asked, "aggregation") else {},
        simulation_seed=seed_of(asked.random_state),
        origins=origins,
        derived=derived,
    )
    return study, tables


def study_of_rows(
    model: str,
    asked: Any,  # noqa: ANN401 - as above
    names: Sequence[str] | None,
    parameters: Mapping[str, Any],
    inputs: Iterable[object] = (),
) -> tuple[Study, dict[str, Table]]:
    """Return the same for named columns of the data (None: all of them), inside the call's bounds; ``inputs``: what else may come from a release."""
    bounds = asked.bounds
    if bounds is None and math.isinf(asked.epsilon):
        raise UsageError("declare bounds: even without noise they say how values are clipped")
    table = table_of(as_read(asked.data, bounds), names)
    if isinstance(bounds, Mapping) and names is not None:  # of a whole frame, perhaps
        bounds = {name: said for name, said in bounds.items() if name in names or not isinstance(name, str)}
    columns = Bounds.given(bounds, table).columns(table.names)
    derived = () if asked.bounds is not None else (BOUNDS,)
    return study_of(model, asked, table, columns, parameters, origins=origins_of(asked.bounds, *inputs), derived=derived)
