"""One privacy budget for several fits on the same people: ``unpooled.Budget``; and a warning for those who fit again without one.

Every fit of an estimator is a study of its own with a statement of its own. A search over parameters, a cross-validation, or the same
fit twice on the same rows multiply what a person loses, and no single statement can say so. A :class:`Budget` that is passed to all of
them is debited for each, composed by the accountant, and refuses what would exceed it.
"""

from __future__ import annotations

import math
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from unpooled.errors import BudgetRefusal, BudgetWarning, UsageError, warn_caller
from unpooled.privacy.exposure import Cost, alternatives
from unpooled.privacy.ledger import Charge, Ledger, ReleaseKey
from unpooled.privacy.origin import by_draw
from unpooled.privacy.unit import Scope, Target, Unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from unpooled.privacy.ledger import Entry
    from unpooled.privacy.origin import ReleasedInput
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.table import Table


class Budget:
    """A total that several fits share. Pass it as ``budget=`` to every estimator and to ``describe``.

    Each fit is debited for the dearest of its people, whatever its own statement's unit, and with it the release of its public inputs, such as
    ranges from ``describe(bounds=True)``, unless this budget debited it before: everything together must stay within (``epsilon``, ``delta``)
    for one ``unit``. What does not fit is refused before anything is released. Copies and clones are the same budget.

    Parameters
    ----------
    epsilon : float
        The most that all fits together may cost.
    delta : float
        The delta of that total. 0 admits pure epsilon only.
    unit : "record", "attribute" or "household"
        Whom the total is for: a whole row, one value of a person, or all rows of an id.
    path : path, optional
        A file that keeps the account, so that processes can share it and it outlives them. It is made where there is none. Without it
        the account ends with the process, and cannot be sent to another one.

    Examples
    --------
    >>> import numpy as np, unpooled
    >>> budget = unpooled.Budget(epsilon=1.0, delta=1e-6)
    >>> ages = {"age": np.random.default_rng(0).normal(50, 10, 4000)}
    >>> first = unpooled.describe(ages, (0, 100), epsilon=0.9, delta=1e-6, budget=budget)
    >>> print(budget)
    epsilon = 0.9 of 1 spent at delta = 1e-06 per record, by 1 fit
    >>> unpooled.describe(ages, (0, 100), epsilon=0.9, delta=1e-6, budget=budget)
    Traceback (most recent call last):
    unpooled.errors.BudgetRefusal: ...

    """

    def __init__(
        self, epsilon: float, delta: float, unit: str = "record", path: str | os.PathLike[str] | None = None
    ) -> None:
        self._target = Target(epsilon, delta, Unit.parse(unit))
        if self._target.epsilon == math.inf:
            raise UsageError("epsilon of a budget must be finite: leave out budget= to spend without a limit")
        self._path = None if path is None else Path(path).absolute()
        self._ledger: Ledger | None = None
        self._process = os.getpid()
        self._open()

    def _open(self) -> Ledger:
        """Return the account, in this process: a file is opened anew after a fork, an account in memory stays with its process."""
        if self._ledger is not None and self._process == os.getpid():
            return self._ledger
        if self._path is None and self._ledger is not None:
            raise UsageError(_ADVICE)
        if self._path is None:
            self._ledger = Ledger.in_memory()
        else:
            self._ledger = Ledger.open(self._path) if self._path.exists() else Ledger.create(self._path)
        self._process = os.getpid()
        return self._ledger

    @property
    def epsilon(self) -> float:
        """Return the most that all fits together may cost."""
        return self._target.epsilon

    @property
    def delta(self) -> float:
        """Return the delta of that total."""
        return self._target.delta

    @property
    def unit(self) -> str:
        """Whom the total is for."""
        return str(self._target.unit)

    @property
    def spent(self) -> float:
        """Return the epsilon of everything debited so far, composed, at the budget's delta."""
        return self._open().composition(self._target.unit, Scope.PERSON).epsilon(self._target.delta)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return the debits, oldest first: one entry for each fit, and one for each earlier release that it rests on and no budget call debited."""
        return self._open().entries()

    def claim(self, plan: Plan, draw: str) -> FitClaim:
        """Return what the draw of this name will debit, once; a fit that promises nothing is refused, for no number counts it."""
        promise = plan.statement
        if not promise.holds:
            msg = (
                f"a budget cannot count a fit that promises nothing: {promise.warnings[0] if promise.warnings else promise.headline} Mend that, "
                "or leave budget= out"
            )
            raise BudgetRefusal(msg)
        known = {entry.release for entry in self.entries} - {""}
        earlier = [(o, _costs(o)) for name, o in by_draw(plan.study.origins).items() if name not in known]
        charges = [_charge(plan.hash, draw, alternatives(plan))]
        charges += [_charge(origin.plan, origin.release, costs) for origin, costs in earlier if costs]
        return FitClaim(self._open(), self._target, tuple(charges))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __sklearn_clone__(self) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._path is None:
            raise UsageError(_ADVICE)
        return Budget, (self.epsilon, self.delta, self.unit, str(self._path))

    def __str__(self) -> str:
        count = len(self.entries)
        return (
            f"epsilon = {self.spent:.6g} of {self.epsilon:g} spent at delta = {self.delta:g} per {self.unit}, "
            f"by {count} fit{'s' if count != 1 else ''}"
        )

    def __repr__(self) -> str:
        where = "" if self._path is None else f", path={str(self._path)!r}"
        return f"Budget(epsilon={self.epsilon:g}, delta={self.delta:g}, unit={self.unit!r}{where})"


_ADVICE = "a budget in memory belongs to one process and cannot be sent to another (n_jobs, pickle): give it a file, Budget(..., path=...)"


def _costs(origin: ReleasedInput) -> tuple[Cost, ...]:
    """Return the cost of an earlier plan to these people as a ledger debits it; none where it was not asked for, or is other people's."""
    found = ((unit, origin.parts(unit)) for unit in Unit) if origin.events else ()
    return tuple(Cost(unit, part, event) for unit, parts in found for part, events in parts.items() for event in events)


def _charge(plan: str, draw: str, costs: tuple[Cost, ...]) -> Charge:
    """Return the debit of a whole plan. Every fit draws noise of its own, whatever its plan: so each is a debit of its own."""
    return Charge(ReleaseKey(plan, "fit", secrets.randbits(62), "(whole plan)"), bytes(32), costs, shared=True, release=draw)


@dataclass(frozen=True)
class FitClaim:
    """The debits of one fit to a shared budget: checked when its parties agree to the plan, paid with the first release."""

    ledger: Ledger
    target: Target
    charges: tuple[Charge, ...]

    def check(self) -> None:
        """Refuse a fit that the budget has no room for; write nothing."""
        self.ledger.check(self.charges, self.target)

    def pay(self) -> None:
        """Debit it. Paying again costs nothing."""
        self.ledger.reserve(self.charges, self.target)


# --- fits without a budget -----------------------------------------------------------------------------------------------

#: Digests that are remembered at most, and the least part of rows that must be known before anybody is warned.
_REMEMBERED, _SHARE = 1_000_000, 0.01


class _Memory:
    """Keyed 64-bit digests of rows that were fitted in this process. The key is never stored, the digests never leave memory."""

    def __init__(self) -> None:
        self._key = np.frombuffer(os.urandom(16), dtype=np.uint64)
        self._seen = np.empty(0, dtype=np.uint64)
        self._warned = False

    def notice(self, rows: Iterable[list[NDArray[Any]]]) -> None:
        """Remember these rows, given as columns; warn once if some of them were fitted before."""
        digests = np.concatenate([self._digests(columns) for columns in rows if columns])
        distinct = np.unique(digests)
        # Rows that many people share (two categories, say) tell nobody from anybody.
        telling = 2 * distinct.size >= digests.size
        known = int(np.isin(distinct, self._seen, assume_unique=True).sum())
        if telling and known > _SHARE * distinct.size and not self._warned:
            self._warned = True
            message = (
                "rows that were fitted before in this process are fitted again, and what their people lose adds up over all fits; the "
                "statement is about this fit alone. Share a budget: budget=unpooled.Budget(epsilon, delta) (docs: with scikit-learn)"
            )
            warn_caller(message, BudgetWarning)
        if telling:
            self._seen = np.union1d(self._seen, distinct)[:_REMEMBERED]

    def _digests(self, columns: list[NDArray[Any]]) -> NDArray[np.uint64]:
        total = np.full(columns[0].size, self._key[0])
        odd = self._key[1] | np.uint64(1)
        for values in columns:
            if values.dtype == object:
                words = np.array([hash(value) for value in values], dtype=np.int64).view(np.uint64)
            else:
                words = np.ascontiguousarray(values + 0.0, dtype=np.float64).view(np.uint64)  # -0.0 is 0.0
            total = (total ^ words) * odd
            total ^= total >> np.uint64(29)
        return total


_memory = _Memory()


def notice(plan: Plan, tables: Mapping[str, Table]) -> None:
    """Warn once where rows of a fit that promises something were fitted before in this process without a budget."""
    study = plan.study
    if study.simulation_seed is not None or not plan.statement.holds:
        return
    features = [
        [tables[card.name][column.name] for column in card.columns if not column.name.startswith("(")]
        for card in study.parties
        if not tables[card.name].sparse_names
    ]
    # The same people at every party: one row; other people at every party: rows of their own.
    rows = [[values for columns in features for values in columns]] if plan.split.shares_people else features
    if any(rows):
        _memory.notice(rows)
