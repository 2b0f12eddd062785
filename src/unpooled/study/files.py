"""The text files of a study, read strictly: study.toml, party.toml, the public schema card, policies, and the files of a helper."""

from __future__ import annotations

import errno
import math
import re
import stat
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import msgspec
import tomli_w

from unpooled.errors import StudyError, UsageError
from unpooled.models import LINK, check_runnable, load
from unpooled.privacy.bounds import Column
from unpooled.privacy.declared import says
from unpooled.privacy.plan import Card, HelperCard, Household, Study, default_delta
from unpooled.privacy.policy import BELIEVED, COUNTED, HIDDEN_LINK, INTERSECTION, NO, Policy
from unpooled.privacy.study import ALLOWED, ANALYSES, CIRCUMSTANCES, HIDDEN, LINKED, NOTHING, TRUSTING, Analysis, cards_of
from unpooled.privacy.unit import Adjacency, Calibration, Scope, Target, Unit
from unpooled.study.cluster.section import EngineSection
from unpooled.study.earlier import with_cited
from unpooled.study.reading import DataFormat
from unpooled.study.sources.table import SourceSection

if TYPE_CHECKING:
    from collections.abc import Callable

    from unpooled.privacy.origin import ReleasedInput


# --- Text ------------------------------------------------------------------------------------------------------------------
# Text files of a study as they are read: TOML, strictly, and only from what is a file of a size that people write.

T = TypeVar("T")

#: No file of a study has more bytes.
_LARGEST = 20_000_000


def top_of(path: Path) -> dict[str, Any]:
    """Return the top of a TOML file as it stands; empty where it cannot be read, which the strict reader then says."""
    try:
        return msgspec.toml.decode(_bytes(path), type=dict[str, Any])
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError):
        return {}


def read_strictly(path: Path, kind: type[T]) -> T:
    """Return a TOML file as this kind; an unknown key, a missing one or a wrong type is an error that names it."""
    try:
        raw = _bytes(path)
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror}): check the path"
        raise StudyError(msg) from None
    except ValueError:  # a zero byte within it, which no file system takes
        msg = f"{str(path)!r} is not the path of a file"
        raise StudyError(msg) from None
    try:
        return msgspec.toml.decode(raw, type=kind, strict=True)
    except msgspec.ValidationError as error:
        # msgspec names the key ("... - at `$.privacy`"); values it quotes are the file's own, never data.
        msg = (
            f"{path.name}: {error}{_meant(str(error), kind)}. Correct or remove that key; docs/studies.md lists all of them"
        )
        raise StudyError(msg) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{path.name}: not a TOML file: {error}"
        raise StudyError(msg) from None


def _meant(error: str, kind: type) -> str:
    """Return the key that an unknown one is near to, among those of its table; empty where none is."""
    unknown, at = re.search(r"unknown field `(\w+)`", error), re.search(r"\$\.([\w.]+)", error)
    table: Any = kind
    for key in at[1].split(".") if at is not None else ():
        inner = next((one.type for one in msgspec.structs.fields(table) if one.name == key), None)
        table = _struct_in(inner)
        if table is None:
            return ""
    near = get_close_matches(unknown[1], table.__struct_fields__, n=1) if unknown is not None else []
    return f" (did you mean `{near[0]}`?)" if near else ""


def _struct_in(kind: Any) -> Any:  # noqa: ANN401 - a type
    """Return the struct that a type holds, alone, in a list or as one of several; None where it holds none."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for one in get_args(kind) if (found := _struct_in(one)) is not None), None)


def _bytes(path: Path) -> bytes:
    """Return what is in a file; refused where it would never end (a pipe, a device), or is larger than any file of a study."""
    about = path.stat()
    if not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
        raise OSError(errno.EINVAL, "it is no file but a pipe or a device")
    if about.st_size > _LARGEST:
        raise OSError(errno.EFBIG, f"it has more than {_LARGEST} bytes")
    return path.read_bytes()


# --- Rules -----------------------------------------------------------------------------------------------------------------
# Policies as party files declare them: of a party with data, and of a helper without.


class FileSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A strict table of a TOML file."""


class PolicySection(FileSection, frozen=True):
    """``[policy]``: the total that all studies together may spend, and what else is allowed."""

    epsilon: float
    delta: float
    unit: str = "record"
    calibrations: tuple[str, ...] = ("sound",)
    models: Annotated[
        tuple[str, ...] | None,
        says("The models that this party runs; left out: every model of unpooled itself, and none of another distribution."),
    ] = None
    trust: tuple[str, ...] = ()
    bounds: Annotated[
        str,
        says(
            'Of a column-split study the total bounds what all its parties release about a person ("person"), or what this one does ("party").'
        ),
    ] = "person"
    approval: Annotated[
        str | tuple[str, ...],
        says('"ask": a plan runs after `unpooled party check --approve`; or the list of plan hashes that may run.'),
    ] = "ask"
    allow_simulation: bool = False
    psi: Annotated[
        str,
        says(
            '"intersection": others may learn, by linking rows, whom this party shares with all of them. "hidden": rows may be linked where no party and no '
            'coordinator learns it. "no": they may not.'
        ),
    ] = NO
    psi_runs: Annotated[
        int,
        says(
            "How often with the same set of parties, over all studies, and how many rows another party may bring (default: ten times the own rows)."
        ),
    ] = 1
    psi_max_rows: int | None = None
    psi_max_guesses: Annotated[
        int | None,
        says(
            "How many ids all other parties may test against this one's, over all studies and all parties (default: no limit)."
        ),
    ] = None
    joint: Annotated[
        str,
        says(
            '"allowed": masked rows may travel where every party proves that its rows are short; "trusting": without a proof too; "no": not at all.'
        ),
    ] = NO
    elsewhere: Annotated[
        str, says('"believed": a household card may say that its ids are nowhere else; "counted": such cards are refused.')
    ] = BELIEVED
    coordinators: Annotated[
        tuple[str, ...],
        says(
            "The public keys of coordinators whose proposals have the room of the inbox; those of all others share a small one."
        ),
    ] = ()


class HelperPolicy(FileSection, frozen=True):
    """``[policy]`` of a helper: which plans it helps with."""

    approval: str | tuple[str, ...] = "ask"
    models: tuple[str, ...] | None = None
    allow_simulation: bool = False
    coordinators: tuple[str, ...] = ()


def policy_of(policy: PolicySection) -> Policy:
    """Return the policy that a party file declares."""
    limits = (policy.psi_runs, *(limit for limit in (policy.psi_max_rows, policy.psi_max_guesses) if limit is not None))
    if policy.psi not in {NO, INTERSECTION, HIDDEN_LINK} or min(limits) < 1:
        msg = f'psi is "{INTERSECTION}", "{HIDDEN_LINK}" or "{NO}", and psi_runs, psi_max_rows and psi_max_guesses are at least 1'
        raise UsageError(msg)
    if policy.models is not None:
        check_runnable(policy.models)
    if policy.elsewhere not in {BELIEVED, COUNTED}:
        msg = f'elsewhere is "{BELIEVED}" or "{COUNTED}"'
        raise UsageError(msg)
    if policy.joint not in {NO, ALLOWED, TRUSTING}:
        msg = f'joint is "{NO}", "{ALLOWED}" or "{TRUSTING}"'
        raise UsageError(msg)
    _check_keys(policy.coordinators)
    return Policy(
        Target(policy.epsilon, policy.delta, Unit.parse(policy.unit)),
        frozenset(Calibration.parse(word) for word in policy.calibrations),
        frozenset(policy.trust),
        scope=Scope.parse(policy.bounds),
        allow_simulation=policy.allow_simulation,
        approved=_approved(policy.approval),
        psi=policy.psi,
        psi_runs=policy.psi_runs,
        psi_max_rows=policy.psi_max_rows,
        psi_max_guesses=policy.psi_max_guesses,
        elsewhere=policy.elsewhere,
        joint=policy.joint,
        models=None if policy.models is None else frozenset(policy.models),
    )


def _check_keys(coordinators: tuple[str, ...]) -> None:
    """Refuse a coordinator that is no public key."""
    if not all(re.fullmatch("[0-9a-f]{64}", key) for key in coordinators):
        msg = "coordinators lists something that is no public key: give all 64 hexadecimal digits that the coordinator's kit shows"
        raise UsageError(msg)


def _approved(approval: str | tuple[str, ...]) -> frozenset[str]:
    """Return the hashes of plans that need no further approval."""
    if isinstance(approval, str):
        if approval != "ask":
            msg = 'approval must be "ask" or a list of plan hashes'
            raise UsageError(msg)
        return frozenset()
    if not all(re.fullmatch(r"[0-9a-f]{64}", plan) for plan in approval):
        msg = "approval lists something that is not a plan hash: give all 64 hexadecimal digits"
        raise UsageError(msg)
    return frozenset(approval)


def rules_of(policy: HelperPolicy) -> Policy:
    """Return the policy of a helper: it has no budget, for nobody's rows are there, and helps where its approval says so."""
    if policy.models is not None:
        check_runnable(policy.models)
    _check_keys(policy.coordinators)
    return Policy(
        None,
        allow_simulation=policy.allow_simulation,
        approved=_approved(policy.approval),
        models=None if policy.models is None else frozenset(policy.models),
        joint=TRUSTING,
    )


# --- Files -----------------------------------------------------------------------------------------------------------------
# The three text files of a study, read strictly: study.toml, party.toml and the public schema cards.
#
# Every error names the file, the key and the remedy. An unknown key is an error: a misspelt ``epsilon`` must never mean a default.

#: The key of ``[trust]`` that names helpers.
HELPERS = "helpers"
#: What a study says that does not want row ids compared.
UNCHECKED = "unchecked"
#: How long a purpose may be, and the name of a party.
_LONGEST, _LONGEST_NAME = 500, 100


class StudySection(FileSection, frozen=True):
    """``[study]``: which model, a number to raise for a fresh run of the same question, and the coordinator's public key."""

    model: Annotated[str, says("Of a study that is one analysis; the others name theirs under ``[[analysis]]``.")] = ""
    run: int = 1
    public_seed: int = 0
    simulation_seed: int | None = None
    coordinator: str = ""
    ids: Annotated[
        str, says('"aligned", "unchecked", or empty: aligned where columns are split and every card names an id column.')
    ] = ""
    purpose: Annotated[
        str, says("What the result is for, in words for those who approve and read it. No part of the plan or its hash.")
    ] = ""
    force: Annotated[
        bool,
        says(
            "Run it even where nothing better than what everybody has already is expected of it. No part of the plan or its hash."
        ),
    ] = False


class PrivacySection(FileSection, frozen=True):
    """``[privacy]``: what is asked for. Without ``delta`` it is min(1e-5, 0.1 / smallest number of rows)."""

    epsilon: float
    delta: float | None = None
    unit: Annotated[str, says("Whom the promise is for.", choices=Unit)] = "record"
    adjacency: Annotated[str, says("How two neighbouring data sets differ.", choices=Adjacency)] = "replace"
    calibration: Annotated[
        str, says("The noise whose guarantee is proved, or the paper's, which promises nothing.", choices=Calibration)
    ] = "sound"
    justification: Annotated[
        str, says("Why this epsilon, in words for those who approve it. Part of the plan and its hash.")
    ] = ""


class AnalysisSection(FileSection, frozen=True):
    """``[[analysis]]``: one of several analyses, with its part of the budget; ``apart``: at every site by itself, where ``pool`` are pooled terms."""

    name: str
    model: str
    share: float | None = None
    columns: Annotated[
        tuple[str, ...],
        says(
            "The columns that it uses, of those that the cards declare; without it all of them. All labels stay where it names none."
        ),
    ] = ()
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
    privacy: Annotated[PrivacySection | None, says("Every study has it but one that links rows, which has no epsilon.")] = (
        None
    )
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    analysis: tuple[AnalysisSection, ...] = ()
    trust: Annotated[
        dict[str, str | tuple[str, ...]],
        says("Who is trusted with what; ``helpers`` names those who have no data and know the masks of joint moments."),
    ] = msgspec.field(default_factory=dict)


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
    household_elsewhere: Annotated[bool, says("false: no other party holds rows of the same ids.")] = True
    cap: Annotated[
        int | None,
        says(
            "For hidden links: the most rows that the data may ever have. The card tells it in the place of the number of rows, which stays secret."
        ),
    ] = None
    linked: Annotated[
        str,
        says(
            'The name of a row map: the rows are those that every party of an earlier study has, in the order that all share; or "hidden:" and the name of places.'
        ),
    ] = ""
    policy_of: Annotated[
        str,
        says(
            "Of a file of linked or new rows: the party file, a path from this one, whose ``[policy]`` holds for these rows too."
        ),
    ] = ""
    collected: Annotated[str, says("Free text for the public card, shown to those who approve a study.")] = ""
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
    hides = model == LINK and text.parameters.get("reveal") == NOTHING
    linking = model == LINK and not hides
    if (text.privacy is None) != linking:
        exactly = f'takes no [privacy]: membership is told exactly, unless reveal = "{NOTHING}" under [parameters]'
        what = exactly if linking else "needs a [privacy] table with epsilon = ..."
        msg = f"{path.name}: a study of model {model!r} {what}"
        raise StudyError(msg)
    privacy = text.privacy or PrivacySection(math.inf, 0.0)
    people = [card.people for card in cards]
    delta = default_delta(sum(people) if hides else min(people)) if privacy.delta is None else privacy.delta
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
    return study if text.study.ids or linking or hides else _aligned(study)


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
        name = maps.pop()
        return msgspec.structs.replace(study, ids=name if name.startswith(HIDDEN) else LINKED + name)
    if len(study.parties) < 2 or not all(card.id for card in study.parties):  # noqa: PLR2004 - one cannot disagree
        return study
    try:
        split = load(study.row).compile(study).split
    except UsageError:
        return study  # whoever compiles it says what is wrong with it
    return msgspec.structs.replace(study, ids="aligned") if split.shares_people else study


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


def card_of(
    own: PartySection, columns: tuple[Column, ...], rows: int, key: str, ids: int = 0, *, joint: str = NO, places: int = 0
) -> Card:
    """Return the public card of a party: what its file declares, how many rows it has (or ids, and rows that count), and its public signing key.

    Of rows that lie at ``places`` of a hidden link their number stands in the place of the cap.
    """
    together = None
    if own.household is not None:
        together = Household(own.household, ids, own.household_rows, own.household_elsewhere)
    said = {name: getattr(own, name) for name in CIRCUMSTANCES}
    word, capped = "" if joint == NO else joint, own.cap is not None
    if own.cap is not None and not places and rows > own.cap:
        msg = f"the data of {own.name!r} have more rows than cap = {own.cap} under [party] allows: raise it, to the most rows that they may ever have"
        raise StudyError(msg)
    told = places or (rows if own.cap is None else own.cap)
    return Card(own.name, told, columns, own.labels, key, own.id or "", together, own.linked, word, capped, **said)


def write_card(card: Card) -> str:
    """Return a card as TOML."""
    comment = (
        "# Public schema card: names, kinds and declared bounds. It holds nothing that was read off the data\n"
        "# but the number of rows (or of ids).\n"
    )
    if card.capped:
        comment = "# Public schema card: names, kinds, declared bounds, and the most rows that there may be. It holds nothing that was read off the data.\n"
    told = {
        "name": card.name,
        "rows": card.rows,
        "labels": card.labels,
        "key": card.key,
        "id": card.id,
        "linked": card.linked,
        "joint": card.joint,
        "capped": card.capped,
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
# "hidden": rows may be linked where nobody learns whom this party shares with others; "intersection": the others may learn it (docs/linkage.md).
psi = "no"
"""


def _columns_as_toml(columns: tuple[Column, ...]) -> str:
    """``[[columns]]`` tables, which TOML would also let stand in one line each; people edit these."""
    return "".join(f"\n[[columns]]\n{tomli_w.dumps(msgspec.to_builtins(column))}" for column in columns)


# --- Helper files ----------------------------------------------------------------------------------------------------------
# The two text files of a helper, an organisation without data: its party file and its public card.


class HelperSection(FileSection, frozen=True):
    """``[helper]``: the name of an organisation without data, its ledger, and whom to ask."""

    name: str
    ledger: str
    contact: str = ""


class HelperFile(FileSection, frozen=True):
    """party.toml of a helper."""

    helper: HelperSection
    policy: HelperPolicy = HelperPolicy()


def is_helper(path: str | Path) -> bool:
    """Return True if a party file is that of a helper."""
    return "helper" in top_of(Path(path))


def read_helper(path: str | Path) -> HelperFile:
    """Return the party file of a helper."""
    text = read_strictly(Path(path), HelperFile)
    rules_of(text.policy)
    return text


def helpers_of(cards: Sequence[Path]) -> tuple[str, ...]:
    """Return the names of the helpers among these cards; those that cannot be read are not."""
    found = (read_card(path) for path in cards if "role" in top_of(path))
    return tuple(card.name for card in found)


def ledger_of(path: Path) -> Path:
    """Return the ledger of a party file, of a party or of a helper."""
    name = read_helper(path).helper.ledger if is_helper(path) else read_party(path).party.ledger
    return path.parent / name


def coordinators_of(path: Path) -> tuple[str, ...]:
    """Return the keys of the coordinators whom the policy of a party file names, of a party or of a helper."""
    return read_helper(path).policy.coordinators if is_helper(path) else read_party(path).policy.coordinators


def write_helper(helper: HelperSection) -> str:
    """Return the party file of a helper, whose plans somebody approves one by one."""
    return (
        "[helper]\n"
        + tomli_w.dumps({key: value for key, value in msgspec.to_builtins(helper).items() if value})
        + """
[policy]
# Approved with `unpooled party check --approve`; or a list of the hashes of the plans that it helps with.
approval = "ask"
"""
    )


def write_helper_card(card: HelperCard) -> str:
    """Return the card of a helper as TOML."""
    said = {"name": card.name, "role": card.role, "key": card.key, "contact": card.contact}
    return "# Public card of a helper: it has no data.\n" + tomli_w.dumps(
        {key: value for key, value in said.items() if value}
    )
