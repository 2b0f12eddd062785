"""The outputs of ``unpooled party ...``, ``unpooled network ...`` and ``unpooled doctor``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from unpooled.cli.schemas.studies import (
    BudgetData,
    FormatData,
    Hash,
    Output,
    Path,
    Section,
    Spent,
    StatementData,
    TermData,
)


class FaultData(Section):
    """Rows of one column that share something; the first of them by number."""

    column: str
    what: str
    refused: Annotated[bool, Meta(description="Whether a study would refuse the file for it.")]
    count: int
    rows: list[int]


class GapsData(Section):
    """Columns that lack a value in the same rows, and how many rows lack exactly these: exact numbers, for the party alone."""

    columns: list[str]
    rows: int


class PartyInitOutput(Output, kw_only=True, tag="unpooled/party-init/1"):
    """``unpooled party init``: the party file and the card that were made."""

    party: Path
    card: Path
    budget: Annotated[BudgetData, Meta(description="Missing with --config, where the file says it.")] | UnsetType = UNSET
    rows: int
    ids: Annotated[int, Meta(description="The number of ids; missing without households.")] | UnsetType = UNSET
    format: FormatData
    findings: list[FaultData]
    gaps: list[GapsData]


class PartyInitHelperOutput(Output, tag="unpooled/party-init-helper/1"):
    """``unpooled party init --helper``: the party file and the card of an organisation without data."""

    helper: str
    party: Path
    card: Path


class PartyInitTemplateOutput(Output, tag="unpooled/party-init-template/1"):
    """``unpooled party init --template``: the file that was written, and the kinds of the data's columns."""

    party: Path
    format: FormatData
    kinds: dict[str, str]


class PartyInitRefusedOutput(Output, tag="unpooled/party-init-refused/1"):
    """``unpooled party init`` where the data do not keep to the declarations: nothing is made, and the exit code is 2."""

    format: FormatData
    findings: list[FaultData]
    gaps: list[GapsData]


class PartyCheckOutput(Output, tag="unpooled/party-check/1"):
    """``unpooled party check``: the promise of a study that fits the policy, and the ledger before and after it."""

    party: str
    plan: Hash
    statement: StatementData
    notes: list[str]
    purpose: str
    spent_epsilon: Spent
    spent: Annotated[str, Meta(description="The same in words.")]
    after_this_plan: Spent
    approved: bool


class ReleaseKeyData(Section):
    """The name of one release in a ledger."""

    plan: Hash
    step: str
    index: int
    name: str


class EventData(Section):
    """The cost of a release to one unit."""

    kind: Annotated[
        int, Meta(description="1 Gaussian, 2 zCDP, 3 exponential, 4 pure, 5 unbounded, 6 a perturbed objective.")
    ]
    value: float
    count: int
    total_variation: float
    tails: list[tuple[int, float]]


class EntryData(Section):
    """A row of the ledger."""

    position: int
    kind: Literal["charge", "shared", "approval", "withdrawal"]
    plan: Hash
    key: ReleaseKeyData | None
    costs: Annotated[
        list[tuple[str, str, EventData]], Meta(description="Each is a unit, a part of the rows (empty: all) and an event.")
    ]
    state: Literal["reserved", "committed"]
    time: Annotated[int, Meta(description="In seconds since 1970; 0 where it is not known.")]
    about: str
    by: str
    reason: str
    purpose: str
    release: Annotated[
        str,
        Meta(
            description="Of a debit: the name of the draw, which no two draws share; empty in debits of ledgers of format 3 or older."
        ),
    ]
    data: Annotated[
        str, Meta(description="Of an approval: a keyed digest of the data that it is for; empty where it holds none.")
    ]
    changed: Annotated[str, Meta(description="Of an approval: why the data are others than those of the approval before.")]


class LedgerStudyData(Section):
    """The rows of one plan in a ledger, in one line."""

    plan: Hash
    time: int
    state: str
    releases: int
    about: str
    purpose: str
    by: str
    reason: str
    data: Annotated[
        str, Meta(description="A keyed digest of the data that the last decision was about; empty where it holds none.")
    ]
    changed: str
    epsilon: Spent


class PartyConsoleOutput(Output, tag="unpooled/party-console/1"):
    """``unpooled party console``: the address that opens it, once."""

    party: str
    address: Annotated[str, Meta(description="With a ticket that opens the console once, in one browser of this machine.")]
    inbox: Path
    read_only: bool


class PartyLedgerOutput(Output, tag="unpooled/party-ledger/2"):
    """``unpooled party ledger``: studies, rows and the total against the policy."""

    studies: list[LedgerStudyData]
    entries: list[EntryData]
    spent_epsilon: Spent
    spent: Annotated[str, Meta(description="The same in words.")]
    bounds: Annotated[
        Literal["person", "party"], Meta(description="The scope of the total: all parties of a study, or this one alone.")
    ]
    spent_by_this_party: Spent
    warnings: list[str]
    delta: float
    unit: str
    allowed_epsilon: Annotated[float | None, Meta(description="null: unlimited.")]
    head: str
    guesses: Annotated[int, Meta(description="The number of ids that other parties could test.")]


class PartyWithdrawOutput(Output, tag="unpooled/party-withdraw/1"):
    """``unpooled party withdraw``: the plan whose approval was taken back."""

    plan: Hash
    approved: bool
    released_before: Annotated[int, Meta(description="The number of releases that stay debited.")]


class PartyWithdrawAllOutput(Output, tag="unpooled/party-withdraw-all/1"):
    """``unpooled party withdraw --all``: the plans whose approvals were taken back, or that were declined."""

    plans: list[Hash]


class PartyCardOutput(Output, tag="unpooled/party-card/1"):
    """``unpooled party card``: the card that was written anew."""

    card: Path
    changed: bool
    rows: int


class PartyRowsOutput(Output, tag="unpooled/party-rows/1"):
    """``unpooled party rows``: the party file and the card of new rows."""

    party: Path
    card: Path


class PartyForgetOutput(Output, tag="unpooled/party-forget/1"):
    """``unpooled party forget``: the values that were deleted."""

    plan: Hash
    deleted: list[str]


class PartyVerifyOutput(Output, tag="unpooled/party-verify/2"):
    """``unpooled party verify``: an exported ledger whose chain is unbroken."""

    head: str
    rows: int
    entries: list[EntryData]


class PartyShowOutput(Output, tag="unpooled/party-show/1"):
    """``unpooled party show STUDY``: the values that a party keeps of a study. They were computed from its raw data."""

    party: str
    plan: Hash
    terms: list[TermData]
    arrays: Annotated[dict[str, Any], Meta(description="Numbers, or lists of them as deep as the array has dimensions.")]


class PartyShowPlansOutput(Output, tag="unpooled/party-show-plans/1"):
    """``unpooled party show`` without a study: the beginnings of the plans' hashes, and the names of what is kept."""

    plans: dict[str, list[str]]


class PartyExportOutput(Output, tag="unpooled/party-export/1"):
    """``unpooled party export``: the file that was written."""

    written: Path
    party: str
    plan: Hash


class FindingData(Section):
    """A thing that the doctor looked at."""

    what: str
    fine: bool
    words: str


class DoctorOutput(Output, tag="unpooled/doctor/1"):
    """``unpooled doctor``: the findings. Exit code 2 where one of them is not fine."""

    findings: list[FindingData]


class KitFolderData(Section):
    """The kit of a participant."""

    folder: Path
    role: Literal["server", "client", "admin"]


class NetworkProvisionOutput(Output, tag="unpooled/network-provision/1"):
    """``unpooled network provision``: the kits, the authority's folder and the coordinator's public key."""

    kits: list[KitFolderData]
    authority: Path
    coordinator: str


class NetworkStartOutput(Output, tag="unpooled/network-start/1"):
    """``unpooled network start``: printed once, as soon as the participant starts."""

    starting: str
    log: Path


class NetworkUpOutput(Output, tag="unpooled/network-up/1"):
    """``unpooled network up``: printed once, as soon as all participants are up."""

    up: list[str]
