"""The study files that ``unpooled new`` writes: what every model needs, and its choices in comments with their defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tomli_w

from unpooled.errors import UsageError, listed
from unpooled.models import LINK, load
from unpooled.study.files import read_study

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_COLUMNS, _ROWS = "columns of the same people", "rows of different people, with the same columns"

#: Of each model: what it is for, which split, the unit, and its parameters.
_MODELS: dict[str, tuple[str, str, str, str]] = {
    "describe": (
        "Counts, means and standard deviations, per party and pooled.",
        _ROWS,
        "record",
        """\
# columns = ["age", "smoker"]       # default: all that the first party declares
# confidence = 0.95                 # of the intervals""",
    ),
    "bayes": (
        "Linear regression with standard errors, from totals that a secure sum opens.",
        _ROWS,
        "record",
        """\
response = "y"                      # a declared column, with a range
# fit_intercept = true
# method = "auto"                   # decided before data; "refinement", "gradient", "mean", "moments"
# tolerate = 0                      # parties that may collude or drop out
# level = 0.95                      # of the intervals""",
    ),
    "glm": (
        "Logistic, multinomial, Poisson, gamma, negative binomial or survival regression with standard errors, by rounds through a secure sum.",
        _ROWS,
        "record",
        """\
response = "y"                      # a declared column: two categories (logistic), two or more (multinomial), or a range
family = "logistic"                 # or "multinomial", "poisson", "gamma", "negative-binomial", "survival"
# exposure = ""                     # a declared column that the mean is in proportion to
# offset = ""                       # a declared column that is added to the linear predictor
# dispersion = 1.0                  # of the negative binomial
# event = ""                        # survival: a declared column, 0 or 1, or two categories of which the second is the event (response: the
                                    # time, from 0 to the end of follow-up); then also cuts = [..], the times at which the hazard may change
# ridge = 0.0                       # L2 penalty of the mean loss
# fit_intercept = true
# method = "auto"                   # decided before data; "newton", "gradient", "mean"
# tolerate = 0                      # parties that may collude or drop out
# level = 0.95                      # of the intervals""",
    ),
    "diagnose": (
        "How well a released model fits: ROC, calibration or residuals, from one histogram over public cells.",
        _ROWS,
        "record",
        """\
response = "y"                      # a declared column: two categories, or a range
coefficients = {}                   # a number for every column (or category), as `unpooled result --csv` prints them
cuts = [0.0]                        # rising cuts of the linear predictor, fixed before anybody looks
# intercept = 0.0
residual_cuts = [-1.0, 0.0, 1.0]    # of a number: rising cuts of its residuals; of two categories: []
# link = "identity"                 # "log", or "logistic" for two categories""",
    ),
    "pls": (
        "Partial least squares on spectra, from one release in a public basis.",
        _ROWS,
        "record",
        """\
response = "y"                      # a declared column; every other one is a channel, in the order of the cards
# basis = "dct"                     # "bspline", "none", or "matrix" with matrix = [...]
# basis_size = 20
# norm = 1.0                        # bound on the length of a projected row; without it what the ranges allow, which is far too much
# n_components = "cv"               # or a number""",
    ),
    "stacking": (
        "Private logistic regression: a stack of the parties' models.",
        "columns of the same people, or rows of different people (split)",
        "record",
        """\
response = "y"                      # every party's own label column, under `labels` in its party file
classes = ["-1", "1"]               # the two labels, as they stand in the data
split = "features"                  # columns of the same people; "samples": rows of different people
# fit_intercept = true""",
    ),
    "lasso": (
        "Sparse linear regression over many columns.",
        _COLUMNS,
        "attribute",
        """\
response = "y"                      # every party's own label column, under `labels` in its party file
response_bound = 1.0                # bound on its absolute value: what is possible, not what you saw
radius = 1.0                        # bound on the sum of absolute coefficients, in units of the response
# rounds = 20
# refit = 0.25                      # part of the budget that fits the chosen columns at the end
# response_public = false""",
    ),
    "pride": (
        "Ridge, logistic or another generalised linear regression; each party keeps its own coefficients.",
        _COLUMNS,
        "attribute",
        """\
response = "y"                      # a label column of every party that estimates, under `labels` in its party file
# task = "regression"               # or "classification", with classes = ["-1", "1"]
# family = "squared"                # or huber, quantile, poisson, gamma, negative-binomial, cox (with event), logistic, multinomial, ordinal
# sketch_dim = "auto"               # what a party sends: columns of its sketch; 0 sends nothing
# alpha = "marginal-likelihood"     # the penalty; "local-cv", or a number
# fit_intercept = true""",
    ),
}
MODELS = tuple(_MODELS)

_LINK = """\
# Which people all parties have, told to all of them and to nobody else; then their rows can be used in the same order.
# It has no epsilon: `unpooled plan` says in words who learns what. Every party's policy must say psi = "intersection".

[study]
model = "link"
# purpose = "..."                   # what it is for: shown to those who approve it
# run = 1                           # another run tells more: policies count them (psi_runs)
# coordinator = "..."               # over a network: the coordinator's public key

# One table for every key, tried in this order: rows that one of them matched leave the later ones.
[[parameters.keys]]
name = "id"
columns = []                        # none: the id column of every card; else columns or labels of all cards
normalise = ["strip"]               # in this order, of: "nfc", "casefold", "strip", "digits", "soundex"

# One table for every party: the public card that its `unpooled party init` wrote.
"""


def template(model: str, cards: Sequence[str] = (), epsilon: float = 1.0) -> str:
    """A commented study of this model, over these cards (paths relative to the study file)."""
    if model not in {*_MODELS, LINK}:
        msg = f"there is no model {model!r}: choose one of {listed([*MODELS, LINK])}"
        raise UsageError(msg)
    parties = "".join(
        f"\n[[party]]\n{tomli_w.dumps({'card': card})}" for card in cards or ("first.card.toml", "second.card.toml")
    )
    if model == LINK:
        return f"{_LINK}{parties}"
    what, split, unit, parameters = _MODELS[model]
    return f"""\
# {what}
# The parties hold {split}. See `unpooled plan` on this file before anybody looks at data.

[study]
model = "{model}"
# purpose = "..."                   # what the result is for: shown to those who approve it and in the report
# run = 1                           # raise it to ask again with fresh noise, which costs again
# coordinator = "..."               # over a network: the coordinator's public key
# ids = "aligned"                   # columns split: demand that row ids agree ("unchecked" leaves it out)

[parameters]
{parameters}

[privacy]
epsilon = {epsilon!r}                       # smaller protects more: 1 moves a belief of 50 % to at most 73 %
# delta = 1e-6                      # default: min(1e-5, 0.1 / smallest number of rows)
unit = "{unit}"{" " * (27 - len(unit))}# whom it is for: "record", a whole row; "attribute", one value
# adjacency = "replace"

# One table for every party: the public card that its `unpooled party init` wrote.
{parties}"""


def prediction(study: Path, cards: Sequence[str], epsilon: float | None) -> str:
    """The study that predicts new rows with what the parties keep of a PRIDE study: its parameters, its plan, its sketches' sizes."""
    from unpooled.models.pride.plan import sizes_of

    asked = read_study(study)
    if asked.model != "pride":
        msg = f"{study.name}: a study of {asked.model!r} releases its model, which `unpooled predict` uses free of charge"
        raise UsageError(msg)
    plan = load(asked.row).compile(asked)
    parameters = {key: value for key, value in asked.parameters.items() if key not in {"publish", "folds", "response_bound"}}
    if parameters.get("alpha") == "global-cv":
        del parameters["alpha"]  # new rows choose no penalty
    parameters |= {"fitted": plan.hash, "sketch_dim": sizes_of(plan.design)}
    estimated = [card.name for card in asked.parties if card.labels]
    if len(estimated) < len(asked.parties):  # the others only sent, and keep no coefficients
        parameters["predicting"] = estimated
    study_ = {"model": "pride", "public_seed": asked.public_seed, "coordinator": asked.coordinator}
    privacy = {
        "epsilon": asked.epsilon if epsilon is None else epsilon,
        "delta": asked.delta,
        "unit": asked.unit,
        "adjacency": asked.adjacency,
        "calibration": asked.calibration,
    }
    told = {
        "study": {key: value for key, value in study_.items() if value},
        "parameters": parameters,
        "privacy": privacy,
        "party": [{"card": card} for card in cards],
    }
    return (
        "# New rows, predicted at the parties with the coefficients that they keep of an earlier study.\n"
        "# It releases a sketch of the new rows, which costs what this plan says. The predictions stay at the parties:\n"
        "# unpooled party export THIS.toml --config party.toml --out predictions.csv\n"
        f"# parameters.predicting = [...] names the parties that predict; default: all that kept coefficients.\n\n{tomli_w.dumps(told)}"
    )
