"""A record of a study for the public registry of deployments of differential privacy (its schema is in ``registry/``).

The registry reads all text as Markdown, so names are spelled such that nothing in them is markup. Text that nobody stated carries the mark of
:mod:`unpooled.evidence.document`; a date, or one word of a fixed list, cannot: the person who registers the study has to give it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import unpooled
from unpooled.errors import UsageError, listed
from unpooled.evidence.document import Mark, counted, plain
from unpooled.privacy.mechanisms import Objective
from unpooled.privacy.statement import UNIT_WORDS
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from unpooled.evidence.document import Facts

#: The words of the registry for the kind of a data product, and for a sector; a test holds them against its schema.
PRODUCTS = (
    "Summary statistics",
    "Machine learning model",
    "Dataset",
    "Synthetic data",
    "Interactive API",
    "SQL queries",
)
SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
_ADJACENT = {
    "replace": "Two data sets are adjacent if they differ in {unit}, which is replaced by any other admissible one. The number of rows is public.",
    "zero-out": "Two data sets are adjacent if they differ in {unit}, which contributes nothing in one of them. The number of rows is public.",
}
#: Text that only those who register a study know.
_FILL = str(Mark.FILL)


@dataclass(frozen=True)
class Answers:
    """Answers of those who register a study: facts that its files do not hold."""

    published: str
    product: str
    sector: str = ""
    region: str = ""
    name: str = ""
    curators: tuple[str, ...] = ()
    authors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", self.published) or not _is_date(self.published):
            msg = f"say when the result was first published: --published YYYY-MM-DD, not {self.published!r}"
            raise UsageError(msg)
        if self.product not in PRODUCTS:
            msg = f"say what is published: --type with one of {', '.join(map(repr, PRODUCTS))}, not {self.product!r}"
            raise UsageError(msg)
        if self.sector and self.sector not in SECTORS:
            msg = f"--sector is one of {', '.join(SECTORS)}, or left out, not {self.sector!r}"
            raise UsageError(msg)
        if not all(words.isprintable() for words in (self.region, self.name, *self.curators, *self.authors)):
            raise UsageError("--region, --name, --curator and --author are each one line of printable characters")


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def record(facts: Facts, answers: Answers) -> dict[str, Any]:
    """Return the record of a study; refused where no guarantee holds, for then there is no deployment to register."""
    statement, study = facts.statement, facts.study
    if not statement.holds:
        msg = f"{statement.headline} The registry lists deployments of differential privacy, and this study is none: nothing is written"
        raise UsageError(msg)
    # Finite: a guarantee holds.
    return {
        "url_slug": f"unpooled-{facts.plan.hash[:12]}",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": _basic(facts, answers),
            "dp_variant": {
                "variant_name": "Approximate DP" if study.delta else "Pure DP",
                "data_domain": _domain(facts),
                "unprotected_quantities": _text(*statement.not_protected, *map(str, facts.plan.public)),
            },
            "privacy_loss": _loss(facts),
            "deployment_model": _model(facts),
            "accounting": {
                "post_processing": "Everything after the releases is computed from them and from the public study alone.",
                "composition": (
                    "All releases of the plan are composed adaptively before the study runs: Gaussian releases exactly (Gaussian differential "
                    "privacy), pure ones by addition, others through zero-concentrated differential privacy. Each party's ledger composes all "
                    "studies in the same way."
                ),
            },
            "implementation": _implementation(facts),
            "administrative": {
                "sources": _FILL,
                "notes": _notes(facts),
                "registry_authors": list(map(plain, answers.authors)) or [_FILL],
            },
        },
    }


def _basic(facts: Facts, answers: Answers) -> dict[str, Any]:
    said = {
        "name": plain(answers.name) or _FILL,
        "data_curators": list(map(plain, answers.curators)) or [_FILL],
        "description": f"{_sentence(counted(facts.analyses))} {len(facts.parties)} parties with "
        f"{'rows of different people' if facts.rows_split else 'columns about the same people'}."
        if len(facts.parties) > 1
        else _sentence(counted(facts.analyses)),
        "intended_use": plain(facts.purpose) or _FILL,
        "data_product_type": answers.product,
        "data_product_region": plain(answers.region) or _FILL,
        "publication_date": answers.published,
    }
    return said | ({"data_product_sector": answers.sector} if answers.sector else {})


def _loss(facts: Facts) -> dict[str, Any]:
    statement = facts.statement
    unit = UNIT_WORDS[Unit(statement.unit)]
    found = statement.epsilon_per_unit
    each = "; ".join(f"{UNIT_WORDS[Unit(name)]}: {_upward(value)}" for name, value in found.items())
    named = unit
    if statement.unit == Unit.ATTRIBUTE:
        # The weaker promise stands with the stronger one.
        named = f"{unit}, not a whole person (for a whole person, epsilon is {_upward(found[Unit.RECORD])})"
    return {
        "privacy_unit": named,
        "privacy_unit_details": _text(_ADJACENT[statement.adjacency].format(unit=unit), statement.assumptions[0]),
        "privacy_parameters": {"epsilon": float(_upward(found[statement.unit])), "delta": statement.delta},
        "privacy_parameters_details": _text(
            f"Epsilon at delta = {statement.delta:g}, by what changes: {each}.", statement.reading
        ),
    }


def _model(facts: Facts) -> dict[str, Any]:
    statement, one = facts.statement, len(facts.parties) == 1
    return {
        "model_name": "Central" if one else "Federated",
        "model_name_details": _text(
            "Each party holds its own data. Planned noise, of each party or of all together, makes private what is released."
            if not facts.plan.joint
            else "Parties compute on joint rows under masks, and a noisy total is opened.",
            f"Protected against: {statement.protects_against}.",
        ),
        "actors": _text(
            f"Parties: {counted(facts.parties)}.",
            f"Helpers without data: {counted([card.name for card in facts.study.helpers])}." if facts.study.helpers else "",
            "Coordinator and readers of the results.",
            *statement.assumptions[1:],
        ),
        "release_type": "One release",
        "release_type_details": f"One run of one plan. Each party's ledger counts all studies about its people. Later studies: {_FILL}",
        "data_source_type": "Static",
        "data_source_type_details": "Every party answers a plan over one state of its data.",
        "access_type": "Non-interactive",
        "access_type_details": "The plan fixes all releases before anybody reads data.",
    }


def _implementation(facts: Facts) -> dict[str, Any]:
    methods = sorted({release.mechanism.name for release in facts.plan.releases})
    return {
        "preprocessing_and_hyperparameter_tuning": (
            f"Ranges and categories are declared, and values are clipped to them. Anything done to the data before the study: {_FILL}"
        ),
        "mechanisms": _text(
            f"{counted(methods)}, by unpooled {unpooled.__version__}.",
            "Statistics are exact integers on a grid, and noise is drawn from exact integer laws, so floating-point numbers add no error."
            if all(release.mechanism.takes is not Objective for release in facts.plan.releases)
            else "Minimisers, and the noise in what they minimise, are computed in double precision: the proof does not cover their last bits.",
        ),
        "justification": f"Why this epsilon: {plain(facts.study.justification) or _FILL}",
    }


def _notes(facts: Facts) -> str:
    about = facts.run.about if facts.run else None
    ended = f"The run ended on {about.finished}, as those who ran it wrote down." if about else ""
    return _text(f"Plan {facts.plan.hash}. The statement of this plan holds all limits of the guarantee.", ended)


def _domain(facts: Facts) -> str:
    """Return the declared columns of every party."""
    columns = {card.name: listed([column.name for column in card.columns]) for card in facts.study.parties}
    return plain(
        "All tables with the public numbers of rows and the declared columns: "
        + "; ".join(f"{card.name} ({card.size} rows): {columns[card.name]}" for card in facts.study.parties)
        + "."
        + _read(facts)
    )


def _read(facts: Facts) -> str:
    """Return the columns that the study reads, where it leaves declared ones out."""
    read = facts.trial.read if facts.trial else {}
    if all(len(read.get(card.name, card.columns)) == len(card.columns) for card in facts.study.parties):
        return ""
    said = (f"{name}: {', '.join(own) or 'none'}" for name, own in read.items())
    return f" The study reads: {'; '.join(said)}."


def _upward(epsilon: float) -> str:
    """Return an epsilon with four digits, rounded upward, so that no record promises more than is proved.

    >>> _upward(0.9999999999993), _upward(0.976701), _upward(224.05)
    ('1', '0.9768', '224.1')
    """
    if math.isinf(epsilon):
        return "none"
    if not epsilon:
        return "0"
    step = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    return f"{math.ceil(epsilon / step * (1 - 1e-12)) * step:.4g}"


def _text(*sentences: str) -> str:
    return " ".join(plain(sentence) for sentence in sentences if sentence)


def _sentence(words: str) -> str:
    return f"{plain(words[0].upper() + words[1:])}."


def left(held: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Yield the keys of a record whose text somebody has to fill in."""
    for key, value in held.items():
        here = f"{at}.{key}" if at else key
        if isinstance(value, dict):
            yield from left(value, here)
        elif _FILL in (value if isinstance(value, list) else str(value)):
            yield here


def as_yaml(held: Mapping[str, Any], depth: int = 0) -> str:
    """Return a record as YAML: keys as they are, values as JSON, which is YAML.

    >>> print(as_yaml({"a": {"b": ["<c>", 1.5]}}), end="")
    a:
      b:
        - "<c>"
        - 1.5
    """
    lines, space = [], "  " * depth
    for key, value in held.items():
        if isinstance(value, dict):
            lines.append(f"{space}{key}:\n{as_yaml(value, depth + 1)}")
        elif isinstance(value, list):
            lines.append(f"{space}{key}:\n" + "".join(f"{space}  - {_scalar(one)}\n" for one in value))
        else:
            lines.append(f"{space}{key}: {_scalar(value)}\n")
    return "".join(lines)


def _scalar(value: str | float) -> str:
    if isinstance(value, float):
        # With a point, or YAML 1.1 takes 1e-05 for text.
        digits, _, power = repr(value).partition("e")
        return f"{digits if '.' in digits else f'{digits}.0'}{f'e{power}' if power else ''}"
    return json.dumps(value, ensure_ascii=False)
