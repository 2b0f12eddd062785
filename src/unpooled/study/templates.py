"""The study files that ``unpooled new`` writes, and formulas of the command line, checked before a file is written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tomli_w

from unpooled.errors import UsageError, listed
from unpooled.formula import Formula
from unpooled.inference.coding import made_by
from unpooled.models import LINK, REGISTRY, load
from unpooled.privacy.study import ANALYSES, Card
from unpooled.privacy.unit import Calibration
from unpooled.protocol.registry import COMMENT, DEFAULT_CARDS, FORMULA
from unpooled.study.files import HELPERS, read_card, read_study

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from unpooled.formula import DerivedColumn
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.registry import Template


# --- Formulas --------------------------------------------------------------------------------------------------------------
# Checks formulas of the command line against public cards before a study file is written, and shows them with a plan.

#: The line of a template that names the response.
_RESPONSE = 'response = "y"'
#: How many derived columns a plan shows.
SHOWN = 20


def checked_formula(text: str, cards: Sequence[Path]) -> Formula:
    """Read a formula, and refuse one that cannot be computed from what any of these cards declares."""
    said = Formula.parse(text)
    if said.survival:
        raise UsageError(
            "--formula takes no Surv(time, event): leave the left side out, and name response, event and cuts in the study file"
        )
    for path in cards:
        card = read_card(path)
        if not isinstance(card, Card):
            continue
        missing = [name for name in said.response if name not in {*(c.name for c in card.columns), *card.labels}]
        if missing:
            msg = f"{path.name}: the card has no column {missing[0]!r}, which the formula has on its left side: correct one of them"
            raise UsageError(msg)
        try:
            said.derive([column for column in card.columns if column.name not in said.response])
        except UsageError as error:
            msg = f"{path.name}: {error}"
            raise UsageError(msg) from None
    return said


def with_formula(model: str, own: Template, said: Formula) -> Template:
    """Return the template with this formula, and with its left side as the response."""
    if not own.takes_formula:
        able = [
            name for name, row in ((name, load(name)) for name in REGISTRY) if row.template and row.template.takes_formula
        ]
        form = "" if own.calibration == "sound" else f" in the {own.calibration} form"
        msg = f"model {model!r} takes no formula{form}: leave --formula out, or choose one of {listed(able)}"
        raise UsageError(msg)
    if said.offsets and not own.offsets:
        able = [name for name in REGISTRY if (row := load(name)).template is not None and row.template.offsets]
        msg = f"model {model!r} has no offset: leave it out of the formula, or choose model {listed([repr(name) for name in able])}"
        raise UsageError(msg)
    others = dict(own.beside_formula)
    if said.response:
        others[_RESPONSE] = _toml("response", said.response[0])
    lines = []
    for line in own.parameters.splitlines():
        key = next((key for key in others if line.startswith(key)), None)
        if line.startswith(FORMULA):
            lines.append(f"{_toml('formula', right_side(said))}  # what the model is a function of (docs/formulas.md)")
        elif key is None:
            lines.append(line)
        else:
            lines.append(f"{others[key]:<{COMMENT - 1}} #{line.partition('#')[2]}")
    return replace(own, parameters="\n".join(lines))


def right_side(said: Formula) -> str:
    """Return the canonical text of the right side, as a study's parameter has it."""
    return str(replace(said, response=(), survival=False))


def _toml(key: str, value: str) -> str:
    return tomli_w.dumps({key: value}).strip()


def formula_of(plan: Plan) -> dict[str, Any] | None:
    """Return the formula of a plan and the columns that it derives, as data; None without a formula."""
    made = made_by(plan.design)
    if made is None:
        return None
    found: dict[str, Any] = {"text": made.text, "columns": [_column(column) for column in made.derived.columns]}
    if made.derived.offset_column is not None:
        found["offset"] = _column(made.derived.offset_column)
    return found


def formula_lines(plan: Plan) -> list[str]:
    """Return the same in words, the first columns alone."""
    found = formula_of(plan)
    if found is None:
        return []
    columns: list[dict[str, Any]] = found["columns"]
    offset: dict[str, Any] | None = found.get("offset")
    shown = [*columns[:SHOWN], *([offset] if offset else [])]
    width = max((len(column["name"]) for column in shown), default=0)
    lines = [f"formula: {found['text']}", f"  derived columns: {len(columns)}, with bounds that follow from the cards"]
    for column in shown:
        ends = f"{column['low']:g} to {column['high']:g}"
        known = ", without a coefficient" if column is offset else ""
        lines.append(f"  {column['name']:<{width}}  {ends:<20}of {listed(column['sources'])}{known}")
    left_out = len(columns) - SHOWN
    if left_out > 0:
        lines.append(f"  and {left_out} more: --json has all of them")
    return lines


def _column(column: DerivedColumn) -> dict[str, Any]:
    return {"name": column.name, "low": column.low, "high": column.high, "sources": sorted(column.sources)}


# --- Templates -------------------------------------------------------------------------------------------------------------
# The study files that ``unpooled new`` writes, from the templates of the rows of the registry.

#: The models that a new study can ask for, alone or in several analyses.
MODELS = tuple(name for name in REGISTRY if name != ANALYSES)

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

_HIDDEN_LINK = """\
# A hidden link: rows of two parties get places, and no party and no coordinator learns who is on another list. A helper without data matches pseudonyms.
# `unpooled plan` says in words who learns what, with whom. Every party's policy must say psi = "hidden", and its card a cap (cap = ... under [party]).

[study]
model = "link"
# purpose = "..."                   # what it is for: shown to those who approve it
# run = 1                           # another run costs again: policies count them (psi_runs)
# coordinator = "..."               # over a network: the coordinator's public key

[parameters]
reveal = "nothing"
population = "both"                 # later studies: of the people whom both parties hold; or "holder": of all people of the party that holder names
# holder = "..."
# hub = "..."                       # more than two parties: the registry whose people are matched with those of all the others
# several = "one"                   # with a hub: an id that several hospitals hold is one person

# One key, of one column or several.
[[parameters.keys]]
name = "id"
columns = []                        # none: the id column of every card; else columns or labels of all cards
normalise = ["strip"]               # in this order, of: "nfc", "casefold", "strip", "digits", "soundex"

# What it costs everybody on a list, once: the helper sees how many people are in common with this noise.
[privacy]
epsilon = {epsilon}
# delta = 1e-6                      # default: min(1e-5, 0.1 / the sum of all caps)

[trust]
helpers = {helpers}

# One table for every party, and for the helper: the public card that its `unpooled party init` wrote.
"""


def hidden_link(cards: Sequence[str], epsilon: float, helpers: Sequence[str]) -> str:
    """Return a commented study of a hidden link over these cards (paths relative to the study file), of which one is that of a helper."""
    if cards and len(helpers) != 1:
        msg = f"a hidden link has one helper, and {len(helpers)} of these cards are a helper's: add --card of the one that `unpooled party init --helper` wrote"
        raise UsageError(msg)
    text = _HIDDEN_LINK.replace("{epsilon}", repr(epsilon)).replace("{helpers}", json.dumps(list(helpers or ("helper",))))
    return f"{text}{_parties(cards or (*DEFAULT_CARDS, 'helper.card.toml'))}"


def template(
    model: str,
    cards: Sequence[str] = (),
    epsilon: float = 1.0,
    calibration: str = "sound",
    formula: Formula | None = None,
    helpers: Sequence[str] = (),
) -> str:
    """Return a commented study of this model in this form, over these cards (paths relative to the study file); ``helpers``: names of those without data."""
    if model == LINK:
        if calibration != "sound":
            raise UsageError("a study that links rows has no published form: leave --calibration out")
        if formula is not None:
            raise UsageError("a study that links rows fits no model: leave --formula out")
        return f"{_LINK}{_parties(cards or DEFAULT_CARDS)}"
    row = load(model if calibration == Calibration.SOUND else f"{model}-{calibration}")
    if not row.form.promises and calibration == Calibration.SOUND:
        msg = f"{model!r} is a form of a model: name the model, and the form with --calibration"
        raise UsageError(msg)
    if row.template is None:
        msg = f"model {row.name!r} has no template: write its study by hand (docs/studies.md)"
        raise UsageError(msg)
    if helpers:
        return _written(model, _helped(row.template, model, helpers, formula), cards, epsilon)
    own = row.template if formula is None else with_formula(model, row.template, formula)
    return _written(model, own, cards, epsilon)


def template_of_several(models: Sequence[str], cards: Sequence[str] = (), epsilon: float = 1.0) -> str:
    """Return a commented study of several analyses, one of each model in this order, with equal shares of the budget."""
    found = []
    for number, model in enumerate(models):
        own = load(model).template if model in REGISTRY else None
        if own is None:
            msg = f"model {model!r} is no analysis of a study with several: choose of {', '.join(m for m in MODELS if load(m).template)}"
            raise UsageError(msg)
        name = model if models.count(model) == 1 else f"{model} {models[: number + 1].count(model)}"
        trust = f"\n[analysis.trust]\n{own.trust}\n" if own.trust else ""
        found.append(
            f"""
[[analysis]]
name = "{name}"{" " * max(1, 27 - len(name))}# begins the names of its releases, steps and lines
model = "{model}"
# share = 0.5                       # of the budget: for each analysis or for none, they sum to 1; default: equal ones
# columns = ["age", "arm"]          # the declared columns that it uses; default: all of them

[analysis.parameters]
{own.parameters.replace("[[parameters", "[[analysis.parameters").replace("[parameters", "[analysis.parameters")}
{trust}"""
        )
    first = load(models[0]).template
    assert first is not None
    whole = replace(first, purpose="Several analyses of the same people: one plan, one approval, one budget.", trust="")
    text = _written(ANALYSES, whole, cards, epsilon)
    before, _, after = text.partition("[parameters]\n")
    head, _, tail = after.partition("[privacy]\n")
    privacy, mark, parties = tail.partition("# One table for every party")
    del head
    before = before.replace(f'model = "{ANALYSES}"\n', "")
    return f"{before}[privacy]\n{privacy}{''.join(found)}\n{mark}{parties}"


def _helped(own: Template, model: str, helpers: Sequence[str], formula: Formula | None) -> Template:
    """Return the template of a study with helpers; refused where the model has no use for them."""
    if own.with_helpers is None or formula is not None:
        what = "a formula" if own.with_helpers is not None else f"model {model!r}"
        msg = f"{what} goes without helpers: leave the card of {helpers[0]!r} out"
        raise UsageError(msg)
    trust = f"{HELPERS} = {json.dumps(list(helpers))}"
    return replace(own.with_helpers, trust=f"{trust}        # they know masks and have no data")


def _parties(cards: Sequence[str]) -> str:
    return "".join(f"\n[[party]]\n{tomli_w.dumps({'card': card})}" for card in cards)


def _written(model: str, own: Template, cards: Sequence[str], epsilon: float) -> str:
    """Return the study file of this template."""
    delta = "# delta = 1e-6                      # default: min(1e-5, 0.1 / smallest number of rows)"
    if own.delta is not None:
        delta = f"delta = {own.delta!r}{' ' * max(1, 28 - len(repr(own.delta)))}# the paper's"
    form = (
        ""
        if own.calibration == "sound"
        else f'calibration = "{own.calibration}"           # the form of the paper: it promises nothing\n'
    )
    trust = f"\n[trust]\n{own.trust}\n" if own.trust else ""
    return f"""\
# {own.purpose}
# The parties hold {own.split}. See `unpooled plan` on this file before anybody looks at data.

[study]
model = "{model}"
# purpose = "..."                   # what the result is for: shown to those who approve it and in the report
# run = 1                           # raise it to ask again with fresh noise, which costs again
# coordinator = "..."               # over a network: the coordinator's public key
# ids = "aligned"                   # columns split: demand that row ids agree ("unchecked" leaves it out)

[parameters]
{own.parameters}

[privacy]
epsilon = {epsilon!r}                       # smaller protects more: 1 moves a belief of 50 % to at most 73 %
{delta}
unit = "{own.unit}"{" " * (27 - len(own.unit))}# whom it is for: "record", a whole row; "attribute", one value
# adjacency = "replace"
{form}{trust}
# One table for every party: the public card that its `unpooled party init` wrote.
{_parties(cards or own.cards)}"""


def predicted() -> list[str]:
    """Return the models whose parties predict new rows with the coefficients that they keep."""
    return [name for name in REGISTRY if load(name).predictions is not None]


def prediction(study: Path, cards: Sequence[str], epsilon: float | None) -> str:
    """Return the study that predicts new rows with the coefficients that the parties keep of a study: its parameters as the model says, and its budget."""
    asked = read_study(study)
    row = load(asked.row)
    if row.predictions is None:
        msg = f"{study.name}: a study of {asked.model!r} releases its model, which `unpooled predict` uses free of charge"
        raise UsageError(msg)
    parameters = row.predictions(asked, row.compile(asked))
    study_ = {"model": asked.model, "public_seed": asked.public_seed, "coordinator": asked.coordinator}
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
    costs = (
        "It releases a sketch of the new rows, which costs what this plan says."
        if asked.calibration == Calibration.SOUND
        else "It releases a sketch of the new rows, in the form of the paper: nobody knows what that costs, and nothing is promised."
    )
    return (
        "# New rows, predicted at the parties with the coefficients that they keep of an earlier study.\n"
        f"# {costs} The predictions stay at the parties:\n"
        "# unpooled party export THIS.toml --config party.toml --out predictions.csv\n"
        f"# parameters.predicting = [...] names the parties that predict; default: all that kept coefficients.\n\n{tomli_w.dumps(told)}"
    )
