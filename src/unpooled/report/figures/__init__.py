"""The pages' figures, as SVG text that lies inside them: of a ledger, a plan, an outlook, a result, a run."""

from unpooled.report.figures.budgets import budget
from unpooled.report.figures.holdings import holdings
from unpooled.report.figures.outlooks import outlook
from unpooled.report.figures.panels import panel
from unpooled.report.figures.plans import guarantee, traffic
from unpooled.report.figures.svg import SIMULATED, Drawn, marked

__all__ = ["SIMULATED", "Drawn", "budget", "guarantee", "holdings", "marked", "outlook", "panel", "traffic"]
