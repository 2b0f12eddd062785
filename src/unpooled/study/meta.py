"""``unpooled.meta_analysis``: a model that is fitted at every site by itself, and its terms pooled, as one study with one budget."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from sklearn.base import clone

from unpooled.errors import UsageError, listed
from unpooled.estimation.running import ModelResult, Waiting, run
from unpooled.models import load
from unpooled.models.analyses import MODEL
from unpooled.models.analyses.declared import pooled_of
from unpooled.privacy.plan import default_delta
from unpooled.privacy.study import ANALYSES, Analysis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from unpooled.inference.sites import PooledTerm
    from unpooled.privacy.ledger import Entry
    from unpooled.privacy.plan import Study
    from unpooled.protocol.registry import Panel
    from unpooled.protocol.terms import PrintedTable, ResultTerm

#: The name of the analysis in its study.
_NAME = "fit"


@dataclass(frozen=True, repr=False)
class MetaAnalysis(ModelResult):
    """Terms of a model that was fitted at every site by itself, each with the estimates of the sites and the pooled ones."""

    ledger_: tuple[Entry, ...]
    communication_: dict[str, dict[str, int]]

    @cached_property
    def pooled_(self) -> Mapping[str, PooledTerm]:
        """Return what was pooled, by the names of the lines."""
        return {term.term: term for term in pooled_of(self.plan_, self.result_)[_NAME]}

    @cached_property
    def tables_(self) -> Mapping[str, Any]:
        """Return the tables of every site's fit; None of one that has no standard errors."""
        return {
            inner.study.parties[0].name: None if part.failed else load(inner.study.row).tables(inner, part.result)
            for part in MODEL.reading.parts(self.plan_, self.result_)
            for inner in (part.plan,)
        }

    def __getitem__(self, term: str) -> PooledTerm:
        """Return one term, by the name of its line."""
        if term in self.pooled_:
            return self.pooled_[term]
        msg = f"there is no term {term!r}: there are {listed(list(self.pooled_))}"
        raise KeyError(msg)

    @property
    def terms(self) -> tuple[ResultTerm, ...]:
        """Return the lines of all terms."""
        return tuple(line for term in self.pooled_.values() for line in term.lines)

    def figure(self, term: str | None = None) -> Any:  # noqa: ANN401 - a matplotlib figure
        """Return the forest plot of a term as a matplotlib figure; None: of the first one."""
        return self[next(iter(self.pooled_)) if term is None else term].figure()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"terms": [term.to_dict() for term in self.pooled_.values()], "statement": self.statement_.to_dict()}

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.pooled_.values()), self.statement_.headline])

    def _what(self) -> str:
        return listed(list(self.pooled_))

    def _printed(self) -> tuple[PrintedTable, ...]:
        return tuple(replace(table, foot=tuple(term.notes)) for term in self.pooled_.values() for table in term._printed())  # noqa: SLF001 - its own parts

    def _foot(self) -> list[str]:
        return [self.statement_.headline]

    def _panels(self) -> tuple[Panel, ...]:
        return tuple(term.panel for term in self.pooled_.values())

    def _saved_fields(self) -> dict[str, Any]:
        return super()._saved_fields() | {"ledger_": self.ledger_, "communication_": self.communication_}


def meta_analysis(
    model: Any,  # noqa: ANN401 - an estimator of regression or of generalised linear models
    X: Any,  # noqa: ANN401 - whatever its fit takes
    y: Any = None,  # noqa: ANN401 - as above
    *,
    sites: Sequence[object],
    terms: str | Sequence[str],
    **rows: Any,  # noqa: ANN401 - as above
) -> MetaAnalysis:
    """Fit a model at every site by itself, and pool terms over the sites, in one study.

    Every site spends the whole budget on a fit of its own rows: a row is at one site, so it bears one fit. The variances of the sites' estimates hold
    their noise; so Q, I^2 and tau^2 are of what differs between sites.

    Parameters
    ----------
    model : PrivateLinearRegression or PrivateGLM
        The model, with its bounds and its budget. It is not changed.
    X, y
        As its ``fit`` takes them: arrays, or a frame with the name of the response or a formula.
    sites : array of n labels
        The site of every row: at least two.
    terms : str or list of str
        The terms to pool, as ``contrast`` of the model reads them: "age", "arm: new - old", or a column of categories for all its lines.
    **rows
        What else ``fit`` takes: ``exposure``, ``offset``, ``unit_id``, ``event``, ``weights``, ``formula``.

    Examples
    --------
    >>> import numpy as np, unpooled
    >>> rng = np.random.default_rng(0)
    >>> site = rng.choice(["lyon", "oslo", "porto", "riga"], 20_000)
    >>> X = rng.uniform(-1, 1, (20_000, 2))
    >>> y = X @ [1.0, -0.5] + (site == "riga") + 0.3 * rng.normal(size=20_000)
    >>> model = unpooled.PrivateLinearRegression(epsilon=2.0, bounds=(-1, 1), y_bounds=(-3, 3), random_state=0)
    >>> found = unpooled.meta_analysis(model, X, y, sites=site, terms="x0")
    >>> sorted(found["x0"].sites)
    ['lyon', 'oslo', 'porto', 'riga']
    >>> bool(abs(found["x0"].pooled.mean - 1) < 0.1)
    True

    """
    if sites is None:
        raise UsageError("a meta-analysis is of several sites: pass sites, a label for each row")
    names = [terms] if isinstance(terms, str) else [str(term) for term in terms]
    if not names:
        raise UsageError("terms names what to pool: at least one term of the model")
    own = clone(model).set_params(budget=None)
    with closing(Waiting(lambda: own.fit(X, y, sites=sites, **rows))) as waiting:
        asked = waiting.asked
    delta = default_delta(min(card.people for card in asked.study.parties)) if model.delta is None else model.delta
    study = _apart(msgspec.structs.replace(asked.study, delta=delta), names)
    plan, found = run(MODEL, study, asked.tables, budget=model.budget, registry=load)
    return MetaAnalysis(found.outcome.result, plan, found.ledger, found.outcome.communication)


def _apart(study: Study, terms: Sequence[str]) -> Study:
    """Return the study that fits this one at every site by itself."""
    origins = tuple(range(len(study.origins)))
    one = Analysis(
        _NAME,
        study.model,
        1.0,
        parameters=study.parameters,
        trust=study.trust,
        origins=origins,
        apart=True,
        pool=tuple(terms),
    )
    return msgspec.structs.replace(study, model=ANALYSES, parameters={ANALYSES: [msgspec.to_builtins(one)]}, trust={})
