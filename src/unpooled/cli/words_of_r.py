"""The words of errors, warnings and docstrings as a user of R reads them: a table of the few forms in which they name Python."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

#: The function of R for each public class and function.
FUNCTIONS = {
    "PrivateLinearRegression": "unpooled_lm",
    "PrivateBayesianRegression": "unpooled_lm",
    "PrivateGLM": "unpooled_glm",
    "PrideGLM": "unpooled_pride",
    "PrideRegressor": "unpooled_pride",
    "PrideClassifier": "unpooled_pride",
    "PrivateStackingClassifier": "unpooled_stacking",
    "PrivateLogisticRegression": "unpooled_stacking",
    "PrivateLassoClassifier": "unpooled_lasso",
    "PrivateLasso": "unpooled_lasso",
    "PrivatePLSRegression": "unpooled_pls",
    "TreatmentEffect": "unpooled_effect",
    "Description": "unpooled_describe",
    "Tabulation": "unpooled_tabulate",
    "Budget": "unpooled_budget",
}
_CLASS = "|".join(FUNCTIONS)
#: What stands between quotes or backticks is a name, a value or a command of the shell, and stays as it is.
_QUOTED = re.compile(r'(?<!\w)\'[^\'\x00]*\'(?!\w)|"[^"\x00]*"|`[^`\x00]*`')
_PLACE = re.compile("\x00(\\d+)\x00")
_VALUE = r"(?:-?[\w.]+|\x00\d+\x00)"
#: What is left of these forms in a text that R users read was not translated.
LEFT = re.compile(
    r"\bNone\b|\bTrue\b|\bFalse\b|\bNoneType\b|(?<![-\w])[a-z]\w*=(?!=)|\bBounds\b|\b(?:Private|Pride)[A-Z]\w+|\bunpooled\.[a-z]\w*\(?"
    r"|\b[a-z]\w*[a-z]_(?!\w)|(?<!c)\((?:low, high|first, second)|\{[\x00\w'\"]+: |\bpickled\b|\bto_sklearn\b|\bpandas\b|\bmapping\b"
)


def _dictionary(found: re.Match[str]) -> str:
    return "list(" + re.sub(r"([\x00\w]+): ", r"\1 = ", found[1]) + ")"


def _rule(found: re.Match[str]) -> str:
    return f"In R: missing = {found[3] or f'c({found[1]} = {found[2]})'}"


Forms: TypeAlias = "list[tuple[str, str | Callable[[re.Match[str]], str]]]"
#: The forms, tried in this order: a pattern, and what it becomes. Quoted words are places in them (\x00 3 \x00).
FORMS: Forms = [
    # --- whole phrases that mean something else in R, or nothing
    (r"bounds=Bounds\(low=\.\.\., high=\.\.\.\)", "bounds = list(age = c(0, 110), ...)"),
    (r"In Python: bounds=Bounds\(\.\.\., missing=(?:\{(.+?): (\x00\d+\x00)\}|(\x00\d+\x00))\)", _rule),
    (r"bounds=Bounds\(norm=\.\.\.\)", "norm = R"),
    (r"as in Bounds\((\{.*\})\)", r"as in bounds = \1"),
    (r"Bounds, a pair \(low, high\) or a mapping from column names", "a range c(low, high) or a list by column names"),
    (r"Bounds\(norm=(\w+)\)", r"norm = \1"),
    (r"\(in Python: fit\(\.\.\., (\w+)=\.\.\.\)\)", r"(in R: \1)"),
    (r"\(in Python: (\w+)=(\w+)\)", r"(in R: \1 = \2)"),
    (r" \(\x00\d+\x00 in Python\)", ""),
    (r"unpooled\.(Budget)\b", r"\1"),
    (r" ?\(docs: with scikit-learn\)", ""),
    (r"\(unpooled\.meta_analysis\)", "(meta_analysis in Python)"),
    (r"unpooled\.load\b", "readRDS"),
    (r"use coef_ and intercept_", "use coef()"),
    (r"\bsummary\(\) and contrast\(\)", "summary() and unpooled_contrast()"),
    (r"was pickled or copied", "was handed to R"),
    (r"use predict_at at an estimating party", "let an estimating party predict in a study of its own"),
    (r"fit it here to predict at one party", "run a study to predict at one party"),
    (r"to_sklearn (?:is|needs)", "the way to scikit-learn, from Python, is"),
    (
        r"\{\} needs \{\}: pip install \{\}, or use to_json\(\)|\S+ needs \w+: pip install \w+, or use to_json\(\)",
        "use tidy()",
    ),
    (r"a frame is one of pandas or polars, or a mapping from names to columns", "a frame is a data frame"),
    (r"a structured y has two fields, the event and then the time, and goes without event=", "write Surv(time, event)"),
    (r"event= with one truth value for each time, or a structured y", "write Surv(time, event) on the left side"),
    (r"\bmoments_\.statement \(or domains_\) holds", "its moments hold"),
    (r"dates are those of Python, NumPy, pandas or polars, or text", "dates are Date, POSIXct, or text"),
    # --- classes and functions
    (
        rf"\b({_CLASS})\((\x00\d+\x00)\)",
        lambda m: f"{FUNCTIONS[m[1]]}(family = {m[2]})" if m[1].endswith("GLM") else f"{FUNCTIONS[m[1]]}({m[2]})",
    ),
    (rf"\b({_CLASS})\b", lambda m: FUNCTIONS[m[1]]),
    # --- kinds of values
    (r", not NoneType$", ", not NULL"),
    (r", not (?:str|str_)$", ", not text"),
    (r", not (?:float|int|float64|int64)$", ", not a number"),
    (r", not (?:bool|bool_)$", ", not a truth value"),
    (r", not (?:list|tuple|ndarray)$", ", not a vector"),
    (r", not dict$", ", not a list by name"),
    (r"\ba float from 0 to 1", "a share from 0 to 1"),
    (r"\ba list of pairs \(low, high\)", "a list of ranges c(low, high)"),
    (r"\b(?:a pair of numbers|two numbers|two of them) \(low, high\)", "two numbers c(low, high)"),
    (r"\bmappings\b", "named lists"),
    (r"\bmapping\b", "named list"),
    # --- literals
    (r"\{([^{}]*: [^{}]*)\}", _dictionary),
    (rf"(?:(?<==)|(?<=\x00: )|(?<=\x00 = ))\(({_VALUE}(?:, (?:{_VALUE}|\.\.))+)\)", r"c(\1)"),
    (r"(?<![\w)])\((low, high|first, second[^()]*)\)", r"c(\1)"),
    (rf"(?:(?<==)|(?<=\x00 = ))\[({_VALUE}(?:, {_VALUE})*|\.\.\.)?\]", lambda m: f"c({m[1] or ''})"),
    (r"(?<![=\w])(?<!= )\[(\x00\d+\x00(?:, \x00\d+\x00)*)\]", r"c(\1)"),
    (r"(?<=such as )\[([\d, ]+)\]", r"c(\1)"),
    (r"(?<![\w=])\[\] for (?=none|a constant)", "c() for "),
    (r"\bNone\b", "NULL"),
    (r"\bTrue\b", "TRUE"),
    (r"\bFalse\b", "FALSE"),
    (r"(?<!= )\binf\b(?! has)", "Inf"),
    # --- arguments by name, and attributes
    (r"(?<![-\w])([a-z]\w*)=(?=[\s,;:)]|\.(?!\.)|$)", r"\1"),
    (r"(?<![-\w])([a-z]\w*)=(?!=)", r"\1 = "),
    (r"\b([a-z]\w*[a-z])_(?!\w)", r"\1"),
]
#: Keys of a dictionary are names of a list: words without quotes.
_NAME = re.compile(r"(?<=[(\s])(['\"])([A-Za-z][\w.]*)\1(?= = )")


def in_r(text: str, forms: Forms = FORMS) -> str:
    """Return a message with what it names of Python as R writes it; what stands in quotes stays as it is.

    >>> in_r("a plan needs y_bounds: pass y_bounds=(low, high)")
    'a plan needs y_bounds: pass y_bounds = c(low, high)'
    >>> in_r("parties must be a whole number or a mapping from names to columns, not NoneType")
    'parties must be a whole number or a named list from names to columns, not NULL'
    >>> in_r("column 'None' has no value: pass reference={'ward': 'b'}, or None")
    "column 'None' has no value: pass reference = list(ward = 'b'), or NULL"
    """
    held: list[str] = []

    def keep(found: re.Match[str]) -> str:
        held.append(found[0])
        return f"\x00{len(held) - 1}\x00"

    said = _QUOTED.sub(keep, text)
    for pattern, becomes in forms:
        said = re.sub(pattern, becomes, said)
    return _NAME.sub(r"\2", _PLACE.sub(lambda found: held[int(found[1])], said))
