"""The row of the registry that names everything of a model: its steps at a party, its study file's template, and how distributions declare rows."""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from unpooled.errors import UsageError, listed
from unpooled.privacy.bounds import LEAVING_OUT, MODELLED
from unpooled.privacy.declared import COLUMNS as SPLIT_COLUMNS
from unpooled.privacy.declared import Parameter, parameters_of
from unpooled.privacy.study import HIDDEN
from unpooled.privacy.unit import Calibration, Unit
from unpooled.protocol.messages import Ask, check_reply_type
from unpooled.protocol.terms import PrintedTable, ResultTerm, table_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    import numpy as np
    from numpy.typing import NDArray

    from unpooled.privacy.plan import Card, Plan, Study
    from unpooled.privacy.table import Table
    from unpooled.protocol.context import Context


# --- Entries ---------------------------------------------------------------------------------------------------------------
# Entry points of the group ``unpooled.models``: the rows that distributions declare, and the distribution behind a row.
#
# Entry points are read where a row that is not one of our own is asked for, or where all rows are listed, never by an import.

#: The group of entry points.
GROUP = "unpooled.models"
#: The distribution of this package.
OURS = "unpooled"
#: The names of our own rows, in the order in which they are listed. Each is a folder of ``unpooled/models``.
OWN = (
    "describe",
    "tables",
    "pride",
    "bayes",
    "glm",
    "stacking",
    "lasso",
    "pls",
    "diagnose",
    "survival",
    "effects",
    "analyses",
)
#: A study may name this in place of a model: it links rows, releases nothing and predicts nothing.
LINK = "link"


def own_rows() -> list[Model]:
    """Return our own rows, in the order in which they are listed: for words about all of them, for it imports every model."""
    return [importlib.import_module(f"{GROUP}.{name}").MODEL for name in OWN]


def names() -> tuple[str, ...]:
    """Return the names of all rows that distributions declare, in alphabetical order."""
    return tuple(_declared(tuple(sys.path)))


def entry_of(name: str) -> EntryPoint | None:
    """Return the entry point of the row of this name; None if there is none. A name that several distributions declare is refused."""
    found = _declared(tuple(sys.path)).get(name, ())
    if len(found) > 1:
        msg = f"model {name!r} is declared by {listed([distribution(entry) for entry in found])}, and nobody can tell which one is meant: uninstall all but one"
        raise UsageError(msg)
    return found[0] if found else None


def distribution(entry: EntryPoint) -> str:
    """Return the name of the distribution that declares an entry point."""
    return entry.dist.name if entry.dist is not None else "unknown"


def maker(name: str) -> str:
    """Return the distribution of a row and its version, such as ``"private-correlation 0.1.0"``; empty for our own rows and for rows that nobody declares."""
    return "" if name in OWN or name == LINK else _maker(name, tuple(sys.path))


@lru_cache(maxsize=64)
def _maker(name: str, path: tuple[str, ...]) -> str:  # noqa: ARG001 - the answer is good for one search path
    entry = entry_of(name)
    if entry is None or distribution(entry) == OURS:
        return ""
    return f"{distribution(entry)} {entry.dist.version if entry.dist is not None else 'unknown'}"


@lru_cache(maxsize=1)
def _declared(path: tuple[str, ...]) -> dict[str, tuple[EntryPoint, ...]]:  # noqa: ARG001 - as above
    """Return the entry points of the group by name, one of each distribution and value."""
    from importlib.metadata import entry_points

    found: dict[str, dict[tuple[str, str], EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        found.setdefault(entry.name, {})[distribution(entry), entry.value] = entry
    return {name: tuple(entries.values()) for name, entries in found.items()}


# --- Template --------------------------------------------------------------------------------------------------------------
# Template of a new study file, in a row of the registry: its purpose, its split, its unit and its parameters.

#: What the parties of a study hold.
COLUMNS, ROWS = "columns of the same people", "rows of different people, with the same columns"
DEFAULT_CARDS = ("first.card.toml", "second.card.toml")

#: The column in which the comments of a template begin, and the letters between which a longer one ends at a colon or semicolon.
COMMENT, _SHORT, _LONG = 36, 40, 120
#: How the line begins that says, in a comment, what the default of a formula is.
FORMULA = '# formula = ""'


@dataclass(frozen=True, slots=True)
class Template:
    """The text that ``unpooled new`` writes for one row of the registry."""

    #: One sentence about what the model is for, and what its parties hold.
    purpose: str
    split: str
    unit: str
    #: The lines of ``[parameters]``: required keys as they stand, the other ones in comments with their defaults.
    parameters: str
    #: The paper's delta; None writes the default in a comment.
    delta: float | None = None
    calibration: str = "sound"
    #: Lines of ``[trust]``; empty: the model trusts nobody.
    trust: str = ""
    #: The cards that a study names where the caller gives none.
    cards: tuple[str, ...] = DEFAULT_CARDS
    #: Lines of the parameters that are others where there is a formula, each with what stands in its place.
    beside_formula: tuple[tuple[str, str], ...] = ()
    #: Whether a formula may have an offset.
    offsets: bool = False
    #: The template of studies with the cards of helpers; None: the model has no use for a helper.
    with_helpers: Template | None = None
    #: The struct of its declared parameters, which schemas and pages follow; None: nobody knows them but the model.
    fields: type[msgspec.Struct] | None = None

    @classmethod
    def of(
        cls,
        fields: type[msgspec.Struct],
        purpose: str,
        split: str,
        *,
        unit: str = "record",
        foreign: tuple[str, ...] = (),
        **more: Any,  # noqa: ANN401 - other fields of a template
    ) -> Template:
        """Return the template of a study with these declared parameters, of which ``foreign`` ones are not for this form."""
        lines = [_line(one) for name, one in parameters_of(fields).items() if name not in foreign]
        if foreign:
            lines.append(f"# {listed_as_words(foreign)} {'is' if len(foreign) == 1 else 'are'} not for this form")
        return cls(purpose, split, unit, "\n".join(lines), fields=fields, **more)

    @property
    def takes_formula(self) -> bool:
        """Return whether a study of this kind may say what its model is a function of."""
        return f"\n{FORMULA}" in self.parameters


def _line(one: Parameter) -> str:
    """Return the line of a parameter in a new study file: an example, or its default in a comment, and what it means in a few words."""
    shown = one.required or one.flag("shown")
    value = one.example if one.example is not None else one.default
    words, *others = one.words.replace("``", "").split(". ")
    for other in others:  # further sentences, where they leave the line readable
        if len(words) + len(other) > _LONG:
            break
        words = f"{words}. {other}"
    words = words.rstrip(".")
    if len(words) > _LONG and (ends := [at.start() for at in re.finditer("[:;] ", words) if _SHORT < at.start() < _LONG]):
        words = words[: ends[-1]]
    if words[1:2].islower() or words.startswith("A "):
        words = words[0].lower() + words[1:]
    choices = [f'"{word}"' for word in one.flag("choices") or () if word != one.default and f'"{word}"' not in words]
    text = f"{'' if shown else '# '}{one.name} = {as_toml(value)}"
    listing = f" ({', '.join(choices)})" if choices else ""
    example = "" if shown or one.example is None or one.example == one.default else "; here an example"
    return f"{text:<{COMMENT - 1}} # {words}{listing}{example}"


def as_toml(value: Any) -> str:  # noqa: ANN401 - a value of a study
    """Return a value as a study file has it."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key} = {as_toml(one)}" for key, one in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    return json.dumps(list(value) if isinstance(value, tuple) else value, separators=(",", ":"), default=str)


def listed_as_words(names: Sequence[str]) -> str:
    """Return names as a sentence lists them."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# --- Step ------------------------------------------------------------------------------------------------------------------
# Contributions of a model to the protocol: its steps at a party, and the row of the registry that names everything of it.

Replies: TypeAlias = list[Any]
#: What becomes of the coefficients of a model: its plan releases all that predict, or they stay at the parties as raw functions of their rows.
RELEASED, KEPT = "released", "kept"
#: A coordinator yields batches of requests and is sent the replies in the same order; it returns its result.
Conversation: TypeAlias = Generator[list[Ask], Replies, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a party can be asked to do: a function from (context, request) to a reply of declared type."""

    name: str
    request: type[msgspec.Struct]
    reply: type[msgspec.Struct]
    answer: Callable[[Context, Any], msgspec.Struct]
    #: The release that it belongs to without making it (adding up what others released): it is asked for as often as that one is made.
    of: str = ""
    #: Whether its messages hold long ciphertext, of which ledgers and transcripts keep digests: the reply is made again, bit by bit, when it is asked for.
    bulky: bool = False
    #: How often it may be asked for, of a plan without releases; else as often as its releases are planned.
    times: Callable[[Plan], int] | None = None

    def __post_init__(self) -> None:
        check_reply_type(self.reply)


@dataclass(frozen=True, slots=True)
class Panel:
    """Numbers of a result that belong into one figure, with intervals where the model has them."""

    title: str
    names: tuple[str, ...]
    values: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    #: The part of the way from a value to its ends that there would be without privacy: drawn darker.
    without_privacy: tuple[float, ...] = ()
    #: The names follow each other (channels of a spectrum): a line, not bars.
    ordered: bool = False
    #: Ordered names are times, and a value holds from its own to the next one: steps.
    steps: bool = False
    #: Where ordered values stand along the horizontal axis: a curve over numbers, with gaps where a value is nan.
    places: tuple[float, ...] = ()
    #: The words at the horizontal and at the vertical axis.
    axes: tuple[str, str] = ("", "")
    #: Draw a dotted line from (0, 0) to (1, 1), with which the curve is compared, instead of one at 0.
    diagonal: bool = False
    #: Values are ratios: a logarithmic axis, and a line at 1 instead of 0.
    ratio: bool = False
    #: The weights of lines that are pooled, which have squares of these sizes; 0 of a pooled line.
    weights: tuple[float, ...] = ()


def of_terms(terms: Iterable[ResultTerm], confidence: float = 0.95) -> tuple[Panel, ...]:
    """Return the figure of the terms that have an interval; a term without one has no place in it."""
    shown = [term for term in terms if term.conf_low is not None and term.conf_high is not None]
    if not shown:
        return ()
    names, values, low, high = zip(*((t.term, t.estimate, t.conf_low, t.conf_high) for t in shown), strict=True)
    parts = tuple(_without_privacy(t) for t in shown)
    return (
        Panel(
            f"estimates with {confidence:.0%} intervals",
            names,
            values,
            low,
            high,
            parts if any(p < 1 for p in parts) else (),
        ),
    )


def _without_privacy(term: ResultTerm) -> float:
    """Return the part of a standard error that there would be without privacy."""
    if not term.std_error or term.privacy is None:
        return 1.0
    return math.sqrt(max(1.0 - (term.privacy / term.std_error) ** 2, 0.0))


def nothing(*_: object) -> tuple[()]:
    """Return nothing: a row has nothing to say here."""
    return ()


@dataclass(frozen=True, slots=True)
class Analysed:
    """One of several analyses of a study that has ended: its model, its plan, its result; or why it has none, in words."""

    name: str
    model: Model
    plan: Plan
    result: Any
    failed: str = ""

    @property
    def table(self) -> str:
        """Return its result as every command prints it, under its name."""
        text = f"no result: {self.failed}" if self.failed else self.model.table(self.plan, self.result)
        return f"{self.title}\n\n{text}"

    @property
    def title(self) -> str:
        """Return its name, with that of its model where they differ."""
        model = self.plan.study.model
        return self.name if self.name == model else f"{self.name} ({model})"

    @property
    def printed(self) -> tuple[PrintedTable, ...]:
        """Return its tables, each under the name of the analysis."""
        if self.failed:
            return (PrintedTable(title=self.title, foot=(f"no result: {self.failed}",)),)
        found = self.model.printed(self.plan, self.result)
        named = (msgspec.structs.replace(t, title=": ".join(filter(None, (self.title, t.title)))) for t in found)
        *before, last = named
        foot = self.model.reading.foot(self.plan, self.result)
        return (*before, msgspec.structs.replace(last, foot=(*last.foot, *foot)))


@dataclass(frozen=True, slots=True)
class ResultReading:
    """How the result of a model is read: as text, lines, figures and tables, and again from the record of a run."""

    #: The types of the coordinator's result, of which the first that fits reads it again from the record of a run; none: only a transcript gives it.
    types: tuple[Any, ...] = ()
    #: Reads it from the record, where no type can say how.
    read_again: Callable[[Plan, bytes], Any] | None = None
    #: The result line by line, in the data's own units; and what a party keeps of a plan.
    terms: Callable[[Plan, Any], tuple[ResultTerm, ...]] = nothing
    kept_terms: Callable[[Plan, str, Mapping[str, NDArray[Any]]], tuple[ResultTerm, ...]] = nothing
    #: The lines under the table of the :attr:`terms`.
    foot: Callable[[Plan, Any], tuple[str, ...]] = nothing
    #: The tables of the result as they are printed, where they are others than that of its :attr:`terms`.
    printed: Callable[[Plan, Any], tuple[PrintedTable, ...]] = nothing
    #: The result as text for a terminal, where that is not its tables one below the other; and as figures.
    render: Callable[[Any], str] | None = None
    panels: Callable[[Plan, Any], tuple[Panel, ...]] = nothing
    #: What contrasts and tests are made of (:class:`unpooled.inference.tables.Tables`); None: it has no standard errors.
    tables: Callable[[Plan, Any], Any] | None = None
    #: The coefficients that predict, where they are others than the lines of the table.
    predicting: Callable[[Plan, Any], tuple[ResultTerm, ...]] = nothing
    #: The analyses of a study that contains several, as far as they have ended.
    parts: Callable[[Plan, Any], tuple[Analysed, ...]] = nothing

    def again(self, model: str, plan: Plan, raw: bytes) -> Any:  # noqa: ANN401 - the coordinator's own
        """Return the result from the record of a run: as the first of its types that fits."""
        if self.read_again is not None:
            return self.read_again(plan, raw)
        for kind in self.types:
            try:
                return msgspec.msgpack.decode(raw, type=kind, strict=True)
            except msgspec.ValidationError:
                continue
        msg = f"model {model!r} cannot read its result from a record: it needs the transcript"
        raise UsageError(msg)


@dataclass(frozen=True, slots=True)
class ModelForm:
    """What a form of a model has otherwise than the model's sound form."""

    #: Whether a plan of it can promise anything; False for a form that is kept for comparison.
    promises: bool = True
    #: The values that it takes for parameters that nobody sets, by name, where they differ; and the parameters that it has not: setting one is refused.
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)
    lacks: frozenset[str] = frozenset()
    #: The parameters of an estimator that a study of this form calls otherwise, and the study's names of them.
    renamed: Mapping[str, str] = field(default_factory=dict, hash=False)


def unchanged(parameters: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG001 - of any parameters
    """Return no former words: all keys of a study are called as they were."""
    return {}


@dataclass(frozen=True, slots=True)
class Citing:
    """How a study of a model takes earlier results that its file cites."""

    #: What takes them, given the parameters and the cards of the study (:class:`unpooled.estimation.earlier.TakesEarlier`).
    taken: Callable[[Mapping[str, Any], tuple[Card, ...]], Any]
    #: Whether a study cites earlier models under ``prior``, one or several; else it cites one run, and :attr:`taken` returns the numbers of that.
    several: bool = True
    #: The former names of parameters that a study has, with the words for what they are now: it is warned of them.
    former: Callable[[Mapping[str, Any]], Mapping[str, str]] = unchanged


@dataclass(frozen=True, slots=True)
class Model:
    """One system: everything the protocol needs to run it. Each is a row of the registry (``unpooled.models.row_names``)."""

    #: What a study's :attr:`~unpooled.privacy.plan.Study.row` is called that asks for it.
    name: str
    compile_plan: Callable[[Study], Plan]
    steps: tuple[Step, ...]
    coordinate: Callable[[Plan], Conversation]
    reading: ResultReading = ResultReading()
    #: Steps that few plans have (of one plan, where it is given), which are imported when one is looked for that is not among :attr:`steps`.
    more_steps: Callable[[Plan | None], tuple[Step, ...]] = nothing
    form: ModelForm = ModelForm()
    #: The roles that a study of it may give somebody under ``[trust]``; any other one is refused.
    roles: tuple[str, ...] = ()
    #: What a study may achieve, from its plan alone (:class:`unpooled.estimation.outlook.Outlook`; ``quick=True``: at the epsilon that it asks
    #: for, by few runs); None where nobody can say.
    outlook: Callable[..., Any] | None = None
    #: Made-up label columns, by name, of a number of rows: where a study takes others than -1 and 1.
    made_up_labels: Callable[[Study, int, np.random.Generator], Mapping[str, NDArray[Any]]] | None = None
    #: The units whose guarantee covers the parties' label columns too.
    covers_labels: frozenset[Unit] = frozenset()
    #: Whether a study of it may protect all rows of an id together.
    households: bool = False
    #: Whether a study of it takes cards whose rows are a cap, and tells nobody the number of rows.
    caps: bool = False
    #: Whether a study of it may be of hidden people, whose rows lie at the places of a hidden link.
    places: bool = False
    #: Whether a study may leave out rows without a value that it needs: ``missing = "complete"``.
    gaps: bool = False
    #: Whether a study of it whose columns lie at different parties may.
    gaps_of_columns: bool = False
    #: Whether some study of it may model by the response which rows are whole: ``missing = "model"``.
    completeness: bool = False
    #: What becomes of its coefficients, :data:`RELEASED` or :data:`KEPT`: guards ask this, and no class or name. Empty: it says nothing of them.
    coefficients: str = ""
    #: Refuses, at a party and before anything is sent, data that a plan cannot use.
    check: Callable[[Plan, str, Table], object] = nothing
    #: What ``unpooled new`` writes for this row; None: nothing.
    template: Template | None = None
    #: Sentences, without their full stops, that those who plan or approve a study of it read under its plan.
    notes: Callable[[Plan], tuple[str, ...]] = nothing
    #: The content of its releases in words, by their names (without the number at the end of one of several), for those who approve a plan.
    releases: Mapping[str, str] = field(default_factory=dict, hash=False)
    #: The places of classes that ``unpooled.load`` reads, each as ``module:CLASS``.
    saved: tuple[str, ...] = ()
    #: What it computes, for people who know no model: a part of a sentence.
    says: str = ""
    #: How a study of it takes earlier results that its file cites; None: such a study cites none.
    earlier: Citing | None = None
    #: The parameters of a study of new rows, which the parties predict with the coefficients that they keep of a study and its plan; None: there is none.
    predictions: Callable[[Study, Plan], dict[str, Any]] | None = None
    #: Where a party lets no masked rows travel: the study of this model that asks the same of the same persons (None: there is none for this
    #: study), and the words that recommend it.
    without_joint_rows: Callable[[Study], tuple[Study, str] | None] | None = None

    def table(self, plan: Plan, result: Any) -> str:  # noqa: ANN401 - the coordinator's own
        """Return the result as every command prints it: the model's own text, or else its tables with the lines under them."""
        reading = self.reading
        if parts := reading.parts(plan, result):
            return "\n\n\n".join((*(part.table for part in parts), *reading.foot(plan, result)))
        if reading.render is not None and (text := reading.render(result)):
            return text
        return "\n".join((*map(str, self.printed(plan, result)), *reading.foot(plan, result)))

    def printed(self, plan: Plan, result: Any) -> tuple[PrintedTable, ...]:  # noqa: ANN401 - as above
        """Return the result as tables, as it is printed: those of all parts under their names, the model's own, or else that of its terms."""
        reading = self.reading
        if parts := reading.parts(plan, result):
            return tuple(table for part in parts for table in part.printed)
        return reading.printed(plan, result) or (table_of(reading.terms(plan, result)),)

    def tables(self, plan: Plan, result: Any) -> Any:  # noqa: ANN401 - as above
        """Return what contrasts and tests are made of; None for a result without standard errors."""
        return None if self.reading.tables is None else self.reading.tables(plan, result)

    def compile(self, study: Study) -> Plan:
        """Return the plan of a study of this model, in this form. A model of another distribution is named in it, with its version."""
        if study.row != self.name:
            msg = f"model {self.name!r} is asked for {study.model!r} with calibration {study.calibration!r}, which is another form or none at all"
            raise UsageError(msg)
        if not self.form.promises and study.calibration == Calibration.SOUND:
            msg = f"model {self.name!r} is a form that promises nothing: name the model, and the form as its calibration"
            raise UsageError(msg)
        if study.unit == Unit.HOUSEHOLD and not self.households:
            msg = f'model {study.row!r} has no proof for unit "household"; in their sound form these have one: {", ".join(row.name for row in own_rows() if row.households)}'
            raise UsageError(msg)
        capped = [card.name for card in study.parties if card.capped or study.ids.startswith(HIDDEN)]
        if capped and not (self.caps or (self.places and study.hidden and all(card.capped for card in study.parties))):
            msg = (
                f"the card of {capped[0]!r} is one of a hidden link, with a cap in the place of its number of rows, and model {study.row!r} needs that number: use a card "
                "without a cap (leave cap under [party] out, and `unpooled party card`), or link rows so that the intersection is revealed (docs/linkage.md)"
            )
            raise UsageError(msg)
        leaves = {
            column.name: column.missing for card in study.parties for column in card.columns if column.missing in LEAVING_OUT
        }
        gaps, modelled = sorted(leaves), sorted(name for name, rule in leaves.items() if rule == MODELLED)
        joint = study.parameters.get("split") == SPLIT_COLUMNS
        if modelled and (joint or not self.completeness):
            whose = "a study of columns at several parties" if joint else f"model {study.row!r}"
            msg = (
                f'{whose} has no model of completeness: column {modelled[0]!r} declares missing = "model", which is for linear and logistic regression of rows at '
                'different parties with a table; declare "complete" (right unless missingness depends on the response)'
            )
            raise UsageError(msg).at(column=modelled[0])
        if gaps and not (self.gaps_of_columns if joint else self.gaps):
            leaving, split = (
                ", ".join(row.name for row in own_rows() if getattr(row, how)) for how in ("gaps", "gaps_of_columns")
            )
            whose = f"model {study.row!r} of columns at several parties" if joint else f"model {study.row!r}"
            msg = (
                f'{whose} leaves no rows out: column {gaps[0]!r} declares missing = "{leaves[gaps[0]]}", which is for rows at different parties and the models '
                f'{leaving}, and for columns at two parties and the model {split}; declare "absent" or "indicator", or leave such rows out at every party before'
            )
            raise UsageError(msg).at(column=gaps[0])
        plan = self.compile_plan(study)
        if others := sorted(set(study.trust) - set(self.roles)):
            has = f"the roles of its [trust] are {listed(list(self.roles))}" if self.roles else "it needs no trust"
            msg = f"model {study.row!r} has no role {listed(others)}: {has}; remove the others"
            raise UsageError(msg)
        made = maker(self.name)
        return replace(plan, maker=made) if made else plan


# --- Registry --------------------------------------------------------------------------------------------------------------
# Rows of the registry that are found through entry points: models of other packages, and forms that stand apart from our own models.
#
# A distribution declares a row in the group ``unpooled.models``: its name, and the place of its :class:`~unpooled.protocol.registry.Model` as
# ``module:NAME``. Entry points are read where such a row is asked for or all rows are listed, never by an import.


def joined(name: str) -> Model | None:
    """Return the row of this name that a distribution declares; None if there is none. A row that cannot be used is refused with its distribution."""
    entry = entry_of(name)
    if entry is None:
        return None
    whose = distribution(entry)
    try:
        row = entry.load()
    except Exception as error:
        system, _, form = name.rpartition("-")
        if whose == OURS and isinstance(error, ModuleNotFoundError) and f"{entry.module}.".startswith(f"{error.name}."):
            raise UsageError(_absent(system, form)) from None
        msg = (
            f"model {name!r} cannot be loaded from distribution {whose!r} ({entry.value}): {type(error).__name__}: {error}. "
            f"Install {whose!r} again, or uninstall it"
        )
        raise UsageError(msg) from error
    if not isinstance(row, Model):
        msg = f"distribution {whose!r} declares {entry.value} as model {name!r}, which is no unpooled Model: correct its entry point, or uninstall it"
        raise UsageError(msg)
    if row.name != name:
        msg = f"distribution {whose!r} declares {entry.value} as model {name!r}, but that Model is named {row.name!r}: correct its entry point, or uninstall it"
        raise UsageError(msg)
    return row


def form_of(system: str, form: str) -> Model:
    """Return the row of another form of a model, as a study's calibration asks for; refuse a form that no distribution declares."""
    row = joined(f"{system}-{form}")
    if row is not None:
        return row
    if not any(name.endswith(f"-{form}") for name in names()):
        raise UsageError(_absent(system, form))
    msg = f"model {system!r} has no {form} form: leave calibration out"
    raise UsageError(msg)


def check_own(own: Mapping[str, str]) -> None:
    """Refuse distributions that declare a row of our own name, which is never loaded from them, and names that several of them declare."""
    for name in names():
        entry = entry_of(name)
        if entry is not None and name in own:
            msg = f"distribution {distribution(entry)!r} declares model {name!r}, which is one of unpooled's own: uninstall it, or give its model another name"
            raise UsageError(msg)


def _absent(system: str, form: str) -> str:
    return f"model {system!r} has no {form} form here: the {form} forms are not part of this installation of unpooled, so leave calibration out"
