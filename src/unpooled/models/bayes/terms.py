"""The result of a Bayesian regression as everybody reads it: its table, the lines under it, its figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.inference import profiles
from unpooled.inference.estimates import CONSTANT_TERM
from unpooled.inference.priors import words
from unpooled.inference.summary import CREDIBLE, is_credible, notes
from unpooled.linear.drawn import drawn_tables
from unpooled.linear.moments import NARROWED, Moments
from unpooled.protocol.registry import Panel, of_terms
from unpooled.protocol.terms import ResultTerm

if TYPE_CHECKING:
    from unpooled.linear.inference import LinearTables
    from unpooled.models.bayes.coordinator import BayesResult
    from unpooled.models.bayes.plan import BayesDesign
    from unpooled.privacy.plan import Plan


def tables(plan: Plan[BayesDesign], result: BayesResult) -> LinearTables | None:
    """Return the tables to publish: generalised least squares with standard errors and tests; None without moments."""
    stored = result.moments or result.focused
    if stored is None or stored.narrowed:
        return None
    given = plan.design.parameters
    return drawn_tables(Moments.of(stored), given.prior, given.reference, given.coding)


def terms(plan: Plan, result: BayesResult) -> tuple[ResultTerm, ...]:
    """Return the lines of the table, as ``summary()`` gives them; without moments the coefficients alone."""
    found = tables(plan, result)
    return predicting(plan, result) if found is None else tuple(t.line for t in found.summary(result.level).terms)


def predicting(plan: Plan[BayesDesign], result: BayesResult) -> tuple[ResultTerm, ...]:
    """Return the coefficients that predict: posterior means, one for every level of a column."""
    found = tuple(ResultTerm(c.name, c.value) for c in result.coefficients)
    return (*found, ResultTerm(CONSTANT_TERM, result.intercept)) if plan.design.layout.intercept else found


def foot(plan: Plan, result: BayesResult) -> tuple[str, ...]:
    """Return the lines under the table of the result."""
    found = tables(plan, result)
    if found is None and result.moments is not None:
        said = [NARROWED]
    elif found is None:
        others = "'moments' gives them" if plan.joint else "'refinement' and 'moments' give them"
        said = [f"method {result.method!r} gives predictions without standard errors; {others}"]
        said += [] if result.drawn is None else words(result.drawn)
    else:
        table = found.summary(result.level)
        credible = [CREDIBLE] if is_credible(table.terms) else []
        said = [f"intervals of {result.level:.0%}", *table.compared, *credible, *notes(table.not_determined)]
    return (*said, f"{'columns' if plan.joint else 'rows'} of {', '.join(result.participants)}")


def panels(plan: Plan, result: BayesResult) -> tuple[Panel, ...]:
    """Return the lines of the table with their intervals, and the curves of variables; without intervals the coefficients alone."""
    found = tables(plan, result)
    if found is None:
        return (
            Panel("coefficients", tuple(c.name for c in result.coefficients), tuple(c.value for c in result.coefficients)),
        )
    shown = of_terms((t.line for t in found.summary(result.level).terms if t.term != CONSTANT_TERM), result.level)
    return (*shown, *profiles.panels(found, result.level))
