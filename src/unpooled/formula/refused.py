"""Functions that other formulas have and ours refuse: each with the reason and what to write instead."""

from __future__ import annotations

from typing import Final

_MOMENTS = "reads the mean or the spread off the data"
_CUTS = "reads its cut points off the data"
_ORDER = "depends on other rows, and every term must be a function of one row"
_SCALED = "Write public numbers, as in I((age - 50) / 10)"
_SPLINE = "Write ns(x, knots=[...]) or bs(x, knots=[...]) with public knots"
_BINS = "Write C(x, levels=[...]) for a column of few numbers, or cut the column in your data and declare its categories"
_BEFORE = "Compute it in your data and declare the range of the new column"

#: The reason and the remedy, by the name of the function.
REFUSED: Final[dict[str, tuple[str, str]]] = {
    "scale": (_MOMENTS, _SCALED),
    "standardize": (_MOMENTS, _SCALED),
    "standardise": (_MOMENTS, _SCALED),
    "zscore": (_MOMENTS, _SCALED),
    "center": (_MOMENTS, _SCALED),
    "centre": (_MOMENTS, _SCALED),
    "mean": (_MOMENTS, "Write the number itself if it is public"),
    "std": (_MOMENTS, "Write the number itself if it is public"),
    "sd": (_MOMENTS, "Write the number itself if it is public"),
    "min": (_ORDER, "Write the number itself if it is public"),
    "max": (_ORDER, "Write the number itself if it is public"),
    "poly": ("makes its polynomials orthogonal over the data", "Write x + I(x**2) + I(x**3)"),
    "cut": (_CUTS, _BINS),
    "qcut": (_CUTS, _BINS),
    "quantile": (_CUTS, _BINS),
    "ntile": (_CUTS, _BINS),
    "bin": (_CUTS, _BINS),
    "cr": ("takes its knots from the data unless all of them are given", _SPLINE),
    "cs": ("takes its knots from the data unless all of them are given", _SPLINE),
    "cc": ("takes its knots from the data unless all of them are given", _SPLINE),
    "te": ("takes its knots from the data unless all of them are given", _SPLINE),
    "s": ("chooses its knots and its smoothness by the data", _SPLINE),
    "rank": (_ORDER, _BEFORE),
    "lag": (_ORDER, _BEFORE),
    "diff": (_ORDER, _BEFORE),
    "cumsum": (_ORDER, _BEFORE),
    "hashed": ("gives no column a declared meaning", "Declare the categories and write C(x)"),
    "Q": ("is not needed", "Put the column's name in backticks: `blood pressure`"),
    "factor": ("is R's name", "Write C(x), or C(x, ref='b') with a reference level"),
    "relevel": ("is R's name", "Write C(x, ref='b')"),
    "Treatment": ("is not needed", "Write C(x, ref='b')"),
    "Sum": ("is no part of a formula", "All codings give the same fit: choose the coding where the table is printed"),
    "Poly": ("is no part of a formula", "All codings give the same fit: choose the coding where the table is printed"),
    "Diff": ("is no part of a formula", "All codings give the same fit: choose the coding where the table is printed"),
    "Helmert": ("is no part of a formula", "All codings give the same fit: choose the coding where the table is printed"),
    "Surv": ("belongs on the left side", "Write Surv(time, event) ~ age"),
    "np": ("is Python", "Write log(x), not np.log(x)"),
    "log10": ("is not among the functions", "Write I(log(x) / 2.302585092994046)"),
    "log2": ("is not among the functions", "Write I(log(x) / 0.6931471805599453)"),
    "pow": ("is not among the functions", "Write I(x**2)"),
    "abs": ("is not among the functions", _BEFORE),
}

#: Keywords of bs and ns that would read the data, or are settled by what is declared.
REFUSED_KEYWORDS: Final[dict[str, tuple[str, str]]] = {
    "df": ("places the knots at quantiles of the data", "Write knots=[...] with public numbers"),
    "lower_bound": ("is the lower end of the column's declared range", "Leave it out"),
    "upper_bound": ("is the upper end of the column's declared range", "Leave it out"),
    "include_intercept": (
        "is not needed: the constant is a term of its own",
        "Leave it out, or write 0 + to fit without a constant",
    ),
    "intercept": (
        "is not needed: the constant is a term of its own",
        "Leave it out, or write 0 + to fit without a constant",
    ),
}
