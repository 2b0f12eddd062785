"""The three text files of a study, read strictly: study.toml, party.toml and the public schema cards.

Every error names the file, the key and the remedy. An unknown key is an error: a misspelt ``epsilon`` must never mean a default.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import tomli_w

from unpooled.errors import StudyError, UsageError
from unpooled.models import LINK, load
from unpooled.privacy.analyses import Analysis, cards_of
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, HelperCard, Household, Study, default_delta
from unpooled.privacy.policy import NO
from unpooled.privacy.study import ANALYSES, CIRCUMSTANCES, LINKED
from unpooled.privacy.unit import Split, Target
from unpooled.study.cited import with_cited
from unpooled.study.cluster.section import EngineSection
from unpooled.study.reading import DataFormat
from unpooled.study.rules import FileSection, PolicySection, policy_of
from unpooled.study.sources.source import SourceSection
from unpooled.study.text import read_strictly, top_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from unpooled.privacy.origin import ReleasedInput

#: The key of ``[trust]`` that names helpers.
HELPERS = "helpers"
#: What a study says that does not want row ids compared.
UNCHECKED = "unchecked"
#: How long a purpose may be, and the name of a party.
_LONGEST, _LONGEST_NAME = 500, 100


class StudySection(FileSection, frozen=True):
    """``[study]``: which model, a number to raise for a fresh run of the same question, and the coordinator's public key."""

    #: Of a study that is one analysis; the others name theirs under ``[[analysis]]``.
    model: str = ""
    run: int = 1
    public_seed: int = 0
    simulation_seed: int | None = None
    coordinator: str = ""
    #: "aligned", "unchecked", or empty: aligned where columns are split and every card names an id column.
    ids: str = ""
    #: What the result is for, in words for those who approve and read it. No part of the plan or its hash.
    purpose: str = ""
    #: Run it even where nothing better than what everybody has already is expected of it. No part of the plan or its hash.
    force: bool = False


class PrivacySection(FileSection, frozen=True):
    """``[privacy]``: what is asked for. Without ``delta`` it is min(1e-5, 0.1 / smallest number of rows)."""

    epsilon: float
    delta: float | None = None
    unit: str = "record"
    adjacency: str = "replace"
    calibration: str = "sound"
    #: Why this epsilon, in words for those who approve it. Part of the plan and its hash.
    justification: str = ""


class AnalysisSection(FileSection, frozen=True):
    """``[[analysis]]``: one of several analyses, with its part of the budget; ``apart``: at every site by itself, where ``pool`` are pooled terms."""

    name: str
    model: str
    share: float | None = None
    #: The columns that it uses, of those that the cards declare; without it all of them. All labels stay where it names none.
    columns: tuple[str, ...] = ()
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    trust: dict[str, str | tuple[str, ...]] = msgspec.field(default_factory=dict)  # as that of a study of one analysis
    apart: bool = False
    pool: tuple[str, ...] = ()


class PartyReference(FileSection, frozen=True):
    """``[[party]]``: the card of a participant, a path relative to the study file."""

    card: str


class StudyFile(FileSection, frozen=True):
    """study.toml."""

    study: StudySection
    party: tuple[PartyReference, ...]
    #: Every study has it but one that links rows, which has no epsilon.
    privacy: PrivacySection | None = None
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    analysis: tuple[AnalysisSection, ...] = ()
    #: Who is trusted with what; ``helpers`` names those who have no data and know the masks of joint moments.
    trust: dict[str, str | tuple[str, ...]] = msgspec.field(default_factory=dict)


def check_party_name(name: str) -> None:
    """Refuse a name of a party or helper that cannot be part of the names of files."""
    if not name.isprintable() or name in {"", ".", ".."} or set(name) & set("/\\") or len(name) > _LONGEST_NAME:
        msg = f"the name of a party is 1 to {_LONGEST_NAME} printable characters without slashes, and not a folder's own"
        raise UsageError(msg)


class PartySection(FileSection, frozen=True):
    """``[party]``: its name, its data file, its ledger, and columns that are not data to be protected.

    ``id`` is the column with the row ids (never used), ``labels`` are columns that the party uses itself and that never leave.
    ``household`` is the column with the ids of people or households whose rows belong together, for a card that protects all of them.
    """

    name: str
    data: str
    ledger: str
    id: str | None = None
    labels: tuple[str, ...] = ()
    household: str | None = None
    household_rows: int = 1
    #: false: no other party holds rows of the same ids.
    household_elsewhere: bool = True
    #: The name of a row map: the rows are those that every party of an earlier study has, in the order that all share.
    linked: str = ""
    #: Of a file of linked or new rows: the party file, a path from this one, whose ``[policy]`` holds for these rows too.
    policy_of: str = ""
    #: Free text for the public card, shown to those who approve a study.
    collected: str = ""
    legal_basis: str = ""
    retention: str = ""
    contact: str = ""

    def __post_init__(self) -> None:
        check_party_name(self.name)


class WrittenParty(FileSection, frozen=True):
    """party.toml as it is written: it has a policy, or names the party file that has it."""

    party: PartySection
    columns: tuple[Column, ...]
    policy: PolicySection | None = None
    format: DataFormat = DataFormat()
    source: SourceSection = SourceSection()
    engine: EngineSection = EngineSection()


class PartyFile(FileSection, frozen=True):
    """party.toml, with the policy of its ledger."""

    party: PartySection
    columns: tuple[Column, ...]
    policy: PolicySection
    format: DataFormat
    source: SourceSection
    engine: EngineSection


def read_study(path: str | Path, admit: Callable[[Study], None] = lambda _: None) -> Study:
    """Return a study file and the cards it names, as a study; ``admit`` may refuse it before any of its models is loaded."""
    path = Path(path)
    text = read_strictly(path, StudyFile)
    everybody = [read_card(path.parent / reference.card) for reference in text.party]
    cards = tuple(card for card in everybody if isinstance(card, Card))
    helpers = tuple(card for card in everybody if isinstance(card, HelperCard))
    trust = {role: who for role, who in text.trust.items() if isinstance(who, str) and role != HELPERS}
    named = text.trust.get(HELPERS, ())
    if [card.name for card in helpers] != list(named) or len(trust) + (HELPERS in text.trust) != len(text.trust):
        msg = (
            f"{path.name}: [trust] {HELPERS} is the list of the helpers whose cards stand under [[party]], here "
            f"{[card.name for card in helpers]}; everything else under [trust] is one word"
        )
        raise StudyError(msg)
    if not cards:
        msg = f'{path.name}: no party; add a [[party]] table with card = "..." for each participant'
        raise StudyError(msg)
    model = _model_of(text, path.name)
    linking = model == LINK
    if (text.privacy is None) != linking:
        what = "takes no [privacy]: membership is told exactly" if linking else "needs a [privacy] table with epsilon = ..."
        msg = f"{path.name}: a study of model {model!r} {what}"
        raise StudyError(msg)
    privacy = text.privacy or PrivacySection(math.inf, 0.0)
    delta = default_delta(min(card.people for card in cards)) if privacy.delta is None else privacy.delta
    parameters, origins = _asked(text, cards, path.parent)
    try:
        study = Study(
            model=model,
            parties=cards,
            epsilon=privacy.epsilon,
            delta=delta,
            unit=privacy.unit,
            adjacency=privacy.adjacency,
            calibration=privacy.calibration,
            parameters=parameters,
            origins=origins,
            justification=privacy.justification,
            trust=trust,
            helpers=helpers,
            public_seed=text.study.public_seed,
            simulation_seed=text.study.simulation_seed,
            run=text.study.run,
            coordinator=text.study.coordinator,
            ids="" if text.study.ids == UNCHECKED else text.study.ids,
            derived=(),
        )
    except UsageError as error:
        msg = f"{path.name}: {error}"
        raise StudyError(msg) from None
    admit(study)
    return study if text.study.ids or linking else _aligned(study)


def _model_of(text: StudyFile, name: str) -> str:
    """Return the model of a study file; refused where it is one analysis and several at once, or none."""
    if bool(text.study.model) == bool(text.analysis):
        what = "names a model under [study] and lists analyses" if text.analysis else "names no model"
        msg = f"{name}: it {what}: write model = ... under [study] for one analysis, or one [[analysis]] for each of several"
        raise StudyError(msg)
    if text.analysis and (text.parameters or set(text.trust) - {HELPERS}):
        msg = f"{name}: with [[analysis]] the parameters and the trust of each stand with it: [analysis.parameters], [analysis.trust]"
        raise StudyError(msg)
    return text.study.model or ANALYSES


def _asked(text: StudyFile, cards: tuple[Card, ...], folder: Path) -> tuple[dict[str, Any], tuple[ReleasedInput, ...]]:
    """Return the parameters of the study with everything that they cite, and the origins of what was released before."""
    if not text.analysis:
        return with_cited(text.study.model, text.parameters, cards, folder)
    every, listed = list["ReleasedInput"](), list[dict[str, Any]]()
    labels = tuple(dict.fromkeys(label for card in cards for label in card.labels))
    for one in text.analysis:
        trust = {role: who for role, who in one.trust.items() if isinstance(who, str) and role != HELPERS}
        helpers = one.trust.get(HELPERS, ())
        if isinstance(helpers, str) or len(trust) + (HELPERS in one.trust) != len(one.trust):
            msg = f"[analysis.trust] of {one.name!r}: {HELPERS} is a list of names; everything else under it is one word"
            raise StudyError(msg)
        columns = one.columns if set(labels) & {*one.columns} or not one.columns else (*one.columns, *labels)
        own = Analysis(one.name, one.model, one.share, columns, {}, trust, helpers, apart=one.apart, pool=one.pool)
        parameters, origins = with_cited(one.model, one.parameters, cards_of(cards, own), folder)
        every += [origin for origin in origins if origin not in every]
        made = msgspec.structs.replace(own, parameters=parameters, origins=tuple(map(every.index, origins)))
        listed.append(msgspec.to_builtins(made))
    return {ANALYSES: listed}, tuple(every)


def purpose_of(path: Path) -> str:
    """Return the purpose of a study file: one printable line, for it is shown in other people's terminals."""
    purpose = read_strictly(path, StudyFile).study.purpose
    if not purpose.isprintable() or len(purpose) > _LONGEST:
        msg = f"{path.name}: purpose is one line of at most {_LONGEST} printable characters"
        raise StudyError(msg)
    return purpose


def is_forced(path: Path) -> bool:
    """Return True if a study file asks to be run whatever is expected of it."""
    return read_strictly(path, StudyFile).study.force


def _aligned(study: Study) -> Study:
    """Return the study with its rows in the order of the cards' row map, or with row ids compared where columns are split and all cards have ids."""
    maps = {card.linked for card in study.parties}
    if maps != {""}:
        if len(maps) > 1:
            raise StudyError(
                "the rows of these cards were not all linked by one study: take the cards that `unpooled link` wrote for the same study"
            )
        return msgspec.structs.replace(study, ids=LINKED + maps.pop())
    if len(study.parties) < 2 or not all(card.id for card in study.parties):  # noqa: PLR2004 - one cannot disagree
        return study
    try:
        split = load(study.row).compile(study).split
    except UsageError:
        return study  # whoever compiles it says what is wrong with it
    return msgspec.structs.replace(study, ids="aligned") if split is Split.VERTICAL else study


def read_card(path: str | Path) -> Card | HelperCard:
    """Return a public schema card: of a party, or of a helper. Without a key it is refused, for nobody could tell its replies from edited ones."""
    path = Path(path)
    card = read_strictly(path, HelperCard) if "role" in top_of(path) else read_strictly(path, Card)
    if not card.key:
        msg = (
            f"{path.name}: the card of {card.name!r} holds no public key, and what this member says could be edited by anybody who carries it. Ask for the "
            "card that `unpooled party init` wrote; a party writes its own one anew with `unpooled party card`"
        )
        raise StudyError(msg)
    return card


def read_party(path: str | Path) -> PartyFile:
    """Return a party file, with the policy of its ledger: its own one, or that of the party file that it names."""
    path = Path(path)
    text, home = _written(path), policy_home(path)
    policy = (text if home == path else _written(home)).policy
    assert policy is not None, "its home has one"
    try:
        policy_of(policy)
    except UsageError as error:
        msg = f"{home.name}, [policy]: {error}"
        raise StudyError(msg) from None
    return PartyFile(text.party, text.columns, policy, text.format, text.source, text.engine)


def policy_home(path: Path) -> Path:
    """Return the party file whose ``[policy]`` holds for this one: itself, or the first one over the same ledger, which it names."""
    text = _written(path)
    named = text.party.policy_of
    if text.policy is not None and (named or text.party.linked):
        msg = (
            f"{path}: it has a [policy], but the policy of linked and of new rows belongs to its ledger, and stands in the first party file over it: "
            'delete [policy] here, and write policy_of = "../party.toml" (the path to that file) under [party]'
        )
        raise StudyError(msg)
    if text.policy is not None:
        return path
    if not named:
        msg = f"{path}: it has neither [policy] nor policy_of: write the one, or name the party file over the same ledger that has it"
        raise StudyError(msg)
    home = path.parent / named
    if home.resolve() == path.resolve():
        msg = f"{path}: policy_of names itself: name the party file over the same ledger that has a [policy]"
        raise StudyError(msg)
    first = _written(home)
    if first.party.policy_of:
        msg = f"{path}: policy_of names {home}, which has no [policy] either: name the file that {home.name} names"
        raise StudyError(msg)
    own, theirs = ((file.parent / one.party.ledger).resolve() for file, one in ((path, text), (home, first)))
    if own != theirs or text.party.name != first.party.name:
        msg = f"{path}: policy_of names {home}, whose party has another ledger or name: a policy belongs to its ledger, so name the file over {own.name}"
        raise StudyError(msg)
    return policy_home(home)


def _written(path: Path) -> WrittenParty:
    """Return a party file as it is written."""
    if "helper" in top_of(path):
        msg = (
            f"{path.name} is the file of a helper, which has no data and no budget: this command is for the file of a party"
        )
        raise StudyError(msg)
    return read_strictly(path, WrittenParty)


def card_of(own: PartySection, columns: tuple[Column, ...], rows: int, key: str, ids: int = 0, *, joint: str = NO) -> Card:
    """Return the public card of a party: what its file declares, how many rows it has (or ids, and rows that count), and its public signing key."""
    together = None
    if own.household is not None:
        together = Household(own.household, ids, own.household_rows, own.household_elsewhere)
    said = {name: getattr(own, name) for name in CIRCUMSTANCES}
    word = "" if joint == NO else joint
    return Card(own.name, rows, columns, own.labels, key, own.id or "", together, own.linked, word, **said)


def write_card(card: Card) -> str:
    """Return a card as TOML."""
    comment = (
        "# Public schema card: names, kinds and declared bounds. It holds nothing that was read off the data\n"
        "# but the number of rows (or of ids).\n"
    )
    told = {
        "name": card.name,
        "rows": card.rows,
        "labels": card.labels,
        "key": card.key,
        "id": card.id,
        "linked": card.linked,
        "joint": card.joint,
    }
    told |= {name: getattr(card, name) for name in CIRCUMSTANCES}
    together = "" if card.household is None else f"\n[household]\n{tomli_w.dumps(msgspec.to_builtins(card.household))}"
    said = tomli_w.dumps({key: value for key, value in told.items() if value})
    return comment + said + together + _columns_as_toml(card.columns)


def write_party(
    party: PartySection,
    columns: tuple[Column, ...],
    budget: Target | None,
    form: DataFormat | None = None,
    *,
    source: SourceSection | None = None,
    engine: EngineSection | None = None,
    template: str = "",
) -> str:
    """Return a party file with the strictest policy: sound studies only, each approved by somebody. ``template`` stands after its columns.

    None as ``budget``: the party section names the file that has the policy.
    """
    assert (budget is None) == bool(party.policy_of), "a party has one policy"
    written = msgspec.to_builtins(form) if form else {}
    asked = {
        name: said
        for name, part in (("source", source), ("engine", engine))
        if (said := msgspec.to_builtins(part) if part else {})
    }
    return (
        "[party]\n"
        + tomli_w.dumps(msgspec.to_builtins(party))
        + (f"\n[format]\n{tomli_w.dumps(written)}" if written else "")
        + (f"\n{tomli_w.dumps(asked)}" if asked else "")
        + _columns_as_toml(columns)
        + template
        + (
            "\n# The policy of these rows is that of the file that policy_of names.\n"
            if budget is None
            else _strictest(budget)
        )
    )


def _strictest(budget: Target) -> str:
    """Return ``[policy]`` with this total, and with nothing allowed that has to be asked for."""
    limits = {"epsilon": budget.epsilon, "delta": budget.delta, "unit": str(budget.unit)}
    return f"""
[policy]
# What all studies together may spend, per {budget.unit}.
{tomli_w.dumps(limits)}\
# Of a column-split study that counts what all its parties release about a person; bounds = "party": what this party does.
bounds = "person"
calibrations = ["sound"]
# The models that may run; without this line every model of unpooled itself, and none of another package.
# models = ["describe", "glm"]
trust = []
# Approved with `unpooled party check --approve`; or a list of the hashes of the plans that may run.
approval = "ask"
allow_simulation = false
# "allowed": masked rows of this party may travel in studies of joint moments, where every party proves that its rows are short (docs/joint.md).
joint = "no"
# "intersection": parties of a study that links rows may learn whom this one shares with all of them (docs/linkage.md).
psi = "no"
"""


def _columns_as_toml(columns: tuple[Column, ...]) -> str:
    """``[[columns]]`` tables, which TOML would also let stand in one line each; people edit these."""
    return "".join(f"\n[[columns]]\n{tomli_w.dumps(msgspec.to_builtins(column))}" for column in columns)
