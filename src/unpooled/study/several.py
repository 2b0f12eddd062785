"""``unpooled.Study``: several fits on the same rows as one study: one plan, one budget, one statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from unpooled.errors import UnpooledError, UsageError, listed
from unpooled.estimation.running import Asked, ModelResult, Waiting, run
from unpooled.models import load
from unpooled.models.analyses import MODEL
from unpooled.privacy import study as asking
from unpooled.privacy.noise import seed_of
from unpooled.privacy.plan import Card, Plan, default_delta
from unpooled.privacy.study import ANALYSES, Analysis
from unpooled.privacy.table import BoundedTable, Table
from unpooled.protocol.identity import MemoryKeeper
from unpooled.protocol.local import LocalRun

if TYPE_CHECKING:
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.budget import Budget
    from unpooled.privacy.ledger import Entry
    from unpooled.privacy.origin import ReleasedInput
    from unpooled.privacy.statement import Statement
    from unpooled.protocol.identity import Keeper

#: The fields of a study that all of its analyses share, which the study itself asks for.
_SHARED = ("unit", "adjacency", "calibration", "public_seed")

#: The length of (name, analysis).
_PAIR = 2


class Study:
    """Several analyses of the same rows in one study: a plan, a budget and a statement for all of them.

    Parameters
    ----------
    analyses : mapping, or list of (name, analysis) or of analyses
        An analysis is an estimator that takes its columns out of a frame (with ``formula=``), or a function of the frame that makes one fit:
        ``lambda frame, **rows: PrivateGLM(...).fit(frame, "died", **rows)``, or ``unpooled.describe`` with its bounds. It makes its one fit in
        the thread that calls it: a fit in another thread would be a study of its own. Without a name an
        analysis is called as its class.
    epsilon, delta : float
        What all analyses together may cost. What they ask for themselves is not read.
    shares : mapping or list, optional
        The share of the budget of every analysis; they sum to 1. None: equal shares. They are fixed before the data are read.
    unit, adjacency, public_seed, random_state
        As of every estimator; those of the analyses must agree with them.
    budget : Budget, optional
        A total that several studies and fits share.

    Attributes
    ----------
    plan_ : Plan
        What was released by all analyses, with which noise.
    ledger_ : tuple of Entry
        What was debited.
    communication_ : dict
        Bytes sent to and received from each party.
    failed_ : dict
        The analyses without a result, and why.

    Examples
    --------
    >>> import numpy as np, pandas as pd, unpooled
    >>> rng = np.random.default_rng(0)
    >>> frame = pd.DataFrame({"age": rng.uniform(20, 90, 8000), "arm": rng.choice(["new", "old"], 8000)})
    >>> frame["stay"] = 4 + 0.1 * frame["age"] - 2 * (frame["arm"] == "new") + rng.normal(0, 2, 8000)
    >>> known = {"age": (20, 90), "arm": ["new", "old"]}
    >>> study = unpooled.Study(
    ...     {
    ...         "baseline": lambda frame: unpooled.describe(frame[["age", "arm"]], known),
    ...         "stay": unpooled.PrivateLinearRegression(bounds=known, y_bounds=(0, 20), formula="stay ~ arm + age"),
    ...     },
    ...     epsilon=1.0,
    ...     shares={"baseline": 0.3, "stay": 0.7},
    ...     random_state=0,
    ... ).fit(frame)
    >>> round(study["baseline"]["all", "age"].mean.value)
    55
    >>> bool(abs(study["stay"].contrast("arm: old - new").terms[0].estimate - 2) < 0.5)
    True
    >>> print(study.plan_.study.epsilon)
    1.0

    """

    def __init__(
        self,
        analyses: Mapping[str, Any] | Sequence[Any],
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        shares: Mapping[str, float] | Sequence[float] | None = None,
        unit: str = "record",
        adjacency: str = "replace",
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.analyses = analyses
        self.epsilon = epsilon
        self.delta = delta
        self.shares = shares
        self.unit = unit
        self.adjacency = adjacency
        self.public_seed = public_seed
        self.random_state = random_state
        self.budget = budget

    def fit(self, X: Any, **rows: Any) -> Self:  # noqa: ANN401 - a frame, and what every analysis takes beside it
        """Fit all analyses on this frame; ``sites`` and ``unit_id`` go to each of them."""
        fits = {name: partial(_call(one), X, **rows) for name, one in _named(self.analyses).items()}
        with ExitStack() as stack:
            self._fit({name: stack.enter_context(closing(Waiting(fit))) for name, fit in fits.items()})
        return self

    def _fit(self, waiting: Mapping[str, Waiting]) -> None:
        """Run the study of all analyses, and give each its part."""
        asked = {name: fit.asked for name, fit in waiting.items()}
        _check_apart(asked)
        study, tables, views = self._together(asked)
        self._check_parties(asked, MODEL.compile(study))
        self.plan_: Plan
        self.plan_, done = run(MODEL, study, tables, budget=self.budget, views=views, registry=load)
        self.ledger_: tuple[Entry, ...] = done.ledger
        self.communication_ = done.outcome.communication
        self._found = ModelResult(done.outcome.result, self.plan_)
        self._results: dict[str, Any] = {}
        self.failed_: dict[str, str] = {}
        refused: list[UnpooledError] = []
        for part in MODEL.reading.parts(self.plan_, done.outcome.result):
            if part.failed:
                self.failed_[part.name] = part.failed
                continue
            found = LocalRun(replace(done.outcome, result=part.result), done.ledger, _kept(done, part.plan))
            try:
                self._results[part.name] = waiting[part.name].answered(part.plan, found)
            except UnpooledError as error:  # the others are paid for, and can be read
                self.failed_[part.name] = str(error)
                refused.append(error)
        if refused:
            raise refused[0]

    def summary(self) -> ModelResult:
        """Return the results of all analyses as one: print it, or take it as a frame, JSON, Markdown or a figure."""
        if not hasattr(self, "_found"):
            raise UsageError("this study is not fitted yet: call fit with a frame")
        return self._found

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - the fitted estimator, or what its function returned
        """Return a fitted analysis."""
        if not hasattr(self, "_results"):
            raise UsageError("this study is not fitted yet: call fit with a frame")
        if name in self.failed_:
            msg = f"analysis {name!r} has no result: {self.failed_[name]}"
            raise UnpooledError(msg)
        if name not in self._results:
            msg = f"there is no analysis {name!r}: there are {listed(list(self._results))}"
            raise KeyError(msg)
        return self._results[name]

    @property
    def statement_(self) -> Statement:
        """Return the privacy statement of all analyses together."""
        return self.plan_.statement

    def __repr__(self) -> str:
        return f"Study({listed(list(_named(self.analyses)))}; epsilon={self.epsilon:g})"

    def _together(self, asked: Mapping[str, Asked]) -> tuple[asking.Study, dict[str, Table], dict[str, dict[str, Table]]]:
        """Return the study that contains these, the tables of its parties, and what each analysis sees of them."""
        parties: dict[str, _Holding] = {}
        origins: list[ReleasedInput] = []
        made = []
        shares = self._shares(list(asked))
        for name, one in asked.items():
            self._check(name, one.study)
            origins += [origin for origin in one.study.origins if origin not in origins]
            own: dict[str, str] = {}
            for card in one.study.parties:
                own |= parties.setdefault(card.name, _Holding()).add(name, card, one.tables[card.name])
            made.append(
                Analysis(
                    name,
                    one.study.model,
                    shares[name],
                    tuple(
                        dict.fromkeys(
                            c for card in one.study.parties for c in (*(k.name for k in card.columns), *card.labels)
                        )
                    ),
                    one.study.parameters,
                    one.study.trust,
                    tuple(card.name for card in one.study.helpers),
                    own,
                    tuple(origins.index(origin) for origin in one.study.origins),
                )
            )
        first = next(iter(asked.values())).study
        cards = tuple(holding.card() for holding in parties.values())
        study = asking.Study(
            ANALYSES,
            cards,
            self.epsilon,
            default_delta(min(card.people for card in cards)) if self.delta is None else self.delta,
            derived=tuple(dict.fromkeys(what for one in asked.values() for what in one.study.derived)),
            unit=self.unit,
            adjacency=self.adjacency,
            parameters={ANALYSES: [msgspec.to_builtins(one) for one in made]},
            public_seed=self.public_seed,
            simulation_seed=seed_of(self.random_state),
            origins=tuple(origins),
            ids=first.ids,
            helpers=tuple({card.name: card for one in asked.values() for card in one.study.helpers}.values()),
            scattered=len(cards) > 1 and len(made) > 1,
        )
        return (
            study,
            {name: holding.table() for name, holding in parties.items()},
            {name: holding.views for name, holding in parties.items()},
        )

    def _shares(self, names: list[str]) -> dict[str, float | None]:
        if self.shares is None:
            return dict.fromkeys(names)
        given = self.shares if isinstance(self.shares, Mapping) else dict(zip(names, self.shares, strict=False))
        numbers = all(isinstance(share, int | float | np.number) for share in given.values())
        if set(given) != set(names) or len(self.shares) != len(names) or not numbers:
            msg = f"shares gives every analysis its share of the budget: {listed(names)}"
            raise UsageError(msg)
        return {name: float(given[name]) for name in names}

    def _check(self, name: str, study: asking.Study) -> None:
        """Refuse an analysis that asks otherwise than the study for what all share."""
        for what in _SHARED:
            mine = getattr(self, what, "sound")
            if getattr(study, what) != mine:
                msg = f"analysis {name!r} has {what} = {getattr(study, what)!r}, and the study {mine!r}: set it alike"
                raise UsageError(msg)
        if study.simulation_seed not in {None, seed_of(self.random_state)}:
            msg = f"analysis {name!r} has a random_state of its own: give it to the Study alone"
            raise UsageError(msg)

    def _check_parties(self, asked: Mapping[str, Asked], plan: Plan) -> None:
        """Refuse analyses whose rows are split over other parties than those of the first one: they would count every person at both."""
        first, *others = ((name, [card.name for card in one.study.parties]) for name, one in asked.items())
        for name, parties in others if not plan.split.shares_people else ():
            if sorted(parties) != sorted(first[1]):
                msg = (
                    f"analysis {name!r} has the sites {listed(parties)}, and {first[0]!r} has {listed(first[1])}: a person's row is at one site, the "
                    "same in all analyses. Give `sites` to the fit of the Study, which hands it to each of them"
                )
                raise UsageError(msg)


class _Holding:
    """The columns of one party in all analyses, each once: of equal columns one, of others the later ones under the analysis' name."""

    def __init__(self) -> None:
        self.columns: dict[str, Column] = {}
        self.values: dict[str, Any] = {}
        self.labels: list[str] = []
        self.views: dict[str, Table] = {}
        self.first: Card | None = None

    def add(self, analysis: str, card: Card, table: Table) -> dict[str, str]:
        """Take in what an analysis holds here; return its own names of columns that are called otherwise in the study."""
        first = self.first or card
        if (first.rows, first.household) != (card.rows, card.household):
            msg = f"analysis {analysis!r} uses other rows of party {card.name!r} than the first one: all analyses are of the same rows"
            raise UsageError(msg)
        self.first = first
        self.views[analysis] = table
        if table.sparse_names:
            msg = f"analysis {analysis!r} takes a sparse matrix, which stands alone: fit it without a Study, with budget="
            raise UsageError(msg)
        own: dict[str, str] = {}
        held: tuple[Column | str, ...] = (*card.columns, *card.labels)
        for column in held:
            name = column if isinstance(column, str) else column.name
            values, whole = table[name], name
            if not self._holds(name, None if isinstance(column, str) else column, values):
                whole = f"{analysis}: {name}" if name in self.values else name
            if whole != name:
                own[name] = whole
            self.values[whole] = values
            if isinstance(column, str):
                self.labels += [] if whole in self.labels else [whole]
            else:
                self.columns[whole] = msgspec.structs.replace(column, name=whole)
        return own

    def _holds(self, name: str, column: Column | None, values: Any) -> bool:  # noqa: ANN401 - an array
        """Return True if this very column is here already."""
        known = self.columns.get(name) == column if column is not None else name in self.labels
        return known and bool(np.array_equal(self.values[name], values, equal_nan=values.dtype == np.float64))

    def card(self) -> Card:
        """Return the card of the party."""
        assert self.first is not None
        return msgspec.structs.replace(self.first, columns=tuple(self.columns.values()), labels=tuple(self.labels))

    def table(self) -> Table:
        """Return the table of everything that the party holds."""
        assert self.first is not None
        whole, view = Table(self.values), next(iter(self.views.values()))
        if self.first.household is None:
            return whole
        return BoundedTable(whole, [str(owner) for owner in view.owners], self.first.household.rows)


def _kept(done: LocalRun, plan: Plan) -> dict[str, Keeper]:
    """Return what the parties keep of one analysis."""
    return {
        name: MemoryKeeper({key: values for key, values in keeper.items() if key[0] == plan.hash})
        for name, keeper in done.kept.items()
        if isinstance(keeper, MemoryKeeper)
    }


def _call(one: Any) -> Callable[..., Any]:  # noqa: ANN401 - an estimator or a function
    # A copy, for one estimator may stand for two analyses, and each has a result of its own.
    owner = getattr(one, "__self__", None)
    if hasattr(owner, "fit"):
        one = getattr(copy(owner), one.__name__)
    fit: Callable[..., Any] = copy(one).fit if hasattr(one, "fit") else one
    if not callable(fit):
        msg = f"an analysis is an estimator, or a function of the frame that fits one: not a {type(one).__name__}"
        raise UsageError(msg)
    return fit


def _check_apart(asked: Mapping[str, Asked]) -> None:
    """Refuse two analyses that fit one estimator: both wait for their results, and it has one."""
    owners: dict[int, str] = {}
    for name, one in asked.items():
        first = name if one.whose is None else owners.setdefault(id(one.whose), name)
        if first != name:
            msg = f"analyses {first!r} and {name!r} fit one estimator: give each its own (sklearn.base.clone copies one)"
            raise UsageError(msg)


def _named(analyses: Any) -> dict[str, Any]:  # noqa: ANN401 - what a caller gives
    """Return the analyses by name."""
    if not isinstance(analyses, Mapping | Sequence) or not all(len(one) == _PAIR for one in analyses if type(one) is tuple):
        raise UsageError("analyses are a mapping from names to analyses, or a list of analyses or of (name, analysis)")
    pairs = list(analyses.items()) if isinstance(analyses, Mapping) else [_pair(one) for one in analyses]
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise UsageError("two analyses have one name: give each its own, as (name, analysis)")
    if not pairs:
        raise UsageError("a Study has at least one analysis")
    return dict(pairs)


def _pair(one: Any) -> tuple[str, Any]:  # noqa: ANN401 - as above
    if type(one) is tuple:
        name, analysis = one
        return str(name), analysis
    return getattr(one, "__name__", type(one).__name__), one
