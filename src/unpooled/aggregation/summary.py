"""A table of estimates with standard errors, tests and intervals, as statisticians are used to read them: for every model that has them."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from typing import Any, cast

from unpooled.aggregation.saving import Savable
from unpooled.errors import UsageError


@dataclass(frozen=True)
class SummaryTerm:
    """A line of a summary. ``privacy`` is the part of the standard error that privacy adds: the root of its share of the variance."""

    term: str
    estimate: float
    std_error: float
    privacy: float
    statistic: float
    p_value: float
    conf_low: float
    conf_high: float
    identified: bool


class SummaryTable(Savable):
    """What a summary prints; its classes are dataclasses with these fields, and say what stands below the table."""

    terms: tuple[SummaryTerm, ...]
    level: float
    #: Epsilon and what else the release promises, in words.
    statement: str
    adjust: str | None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return asdict(cast("Any", self))

    def to_pandas(self) -> Any:  # noqa: ANN401 - a frame of a package that need not be there
        """The terms as a pandas data frame, indexed by term."""
        try:
            import pandas as pd  # type: ignore[import-untyped]
        except ModuleNotFoundError:
            raise UsageError("to_pandas needs pandas: pip install pandas, or use to_dict()") from None
        return pd.DataFrame([asdict(term) for term in self.terms]).set_index("term")

    def _lines(self) -> list[tuple[str, ...]]:
        p = "p" if self.adjust is None else f"p ({self.adjust})"
        head = (
            "",
            "estimate",
            "std error",
            "privacy",
            "z",
            p,
            f"[{(1 - self.level) / 2:.3g}",
            f"{(1 + self.level) / 2:.3g}]",
        )
        lines: list[tuple[str, ...]] = [head]
        for t in self.terms:
            if not t.identified:
                lines.append((t.term, f"{t.estimate:.5g}", "not identified", "", "", "", "", ""))
                continue
            numbers = (f"{v:.5g}" for v in (t.estimate, t.std_error, t.privacy))
            lines.append(
                (t.term, *numbers, f"{t.statistic:.2f}", f"{t.p_value:.3g}", f"{t.conf_low:.5g}", f"{t.conf_high:.5g}")
            )
        return lines

    def _foot(self) -> list[str]:
        foot = []
        if not all(t.identified for t in self.terms):
            foot.append(
                "not identified: the release tells less of it than its own noise; declare tighter bounds or spend more epsilon"
            )
        foot.append("std error holds sampling and privacy noise; privacy is the part that privacy adds")
        return [*foot, *self.statement.splitlines()[:1]]

    def __str__(self) -> str:
        lines = self._lines()
        widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
        table = [
            "  ".join(
                f"{v:<{w}}" if k == 0 else f"{v:>{w}}" for k, (v, w) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*table, *self._foot()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks; names are text, whatever they are."""
        head, *lines = self._lines()
        cells = "".join(
            "<tr>"
            + "".join(f"<t{'h' if k == 0 else 'd'}>{html.escape(v)}</t{'h' if k == 0 else 'd'}>" for k, v in enumerate(line))
            + "</tr>"
            for line in lines
        )
        titles = "".join(f"<th>{html.escape(v)}</th>" for v in head)
        foot = "".join(f"<p>{html.escape(line)}</p>" for line in self._foot())
        return f"<table><thead><tr>{titles}</tr></thead><tbody>{cells}</tbody></table>{foot}"
