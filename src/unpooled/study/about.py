"""The note in a run's folder, next to its result: why, by whom, when, and what is left of budgets that lie on this disk."""

from __future__ import annotations

import getpass
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import msgspec

from unpooled.errors import DataError
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.ledger.spending import UNBOUNDED_WORD
from unpooled.study.files import purpose_of, read_party
from unpooled.study.helper_files import is_helper
from unpooled.study.rules import policy_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from unpooled.privacy.plan import Plan
    from unpooled.privacy.policy import Policy

#: How the file is called in the folder of a run.
ABOUT = "about.json"


class BudgetLeft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The spending of one party's ledger, at the delta of its policy."""

    party: str
    #: "unbounded" where the cost of a study is not known (unpooled 0.2.0 wrote null).
    spent: float | Literal["unbounded"] | None
    allowed: float
    delta: float
    unit: str
    #: The spending in words.
    said: str = ""

    @classmethod
    def of(cls, party: str, ledger: Ledger, policy: Policy) -> BudgetLeft:
        """Return the spending that this party's ledger holds now."""
        budget = policy.budget
        assert budget is not None  # a party file always has one
        found = ledger.spending(budget, policy.scope)
        return cls(party, found.number, budget.epsilon, budget.delta, str(budget.unit), found.words)

    @property
    def words(self) -> str:
        """For people."""
        said = self.said or (UNBOUNDED_WORD if isinstance(self.spent, str | None) else f"epsilon = {self.spent:.6g}")
        return f"{said} of {self.allowed:g} is spent, at delta = {self.delta:g} per {self.unit}"


class DataApproved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data for which a party approved a plan: a keyed digest of them and its date, or why there is none."""

    party: str
    words: str

    @classmethod
    def of(cls, party: str, ledger: Ledger, policy: Policy, plan: str) -> DataApproved | None:
        """Return what a party's ledger and policy hold of a plan; None where neither approves it."""
        entry = ledger.approval(plan)
        if entry is not None:
            return cls(party, f"approved on {moment(entry.time)} UTC {entry.data_words}")
        listed = plan in (policy.approved or ())
        return cls(party, "its policy lists the plan, which holds no digest of data") if listed else None


class About(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file. Nothing signs it: somebody who ran the study wrote it down."""

    finished: str
    by: str
    purpose: str = ""
    budgets: tuple[BudgetLeft, ...] = ()
    data: tuple[DataApproved, ...] = ()


def write_about(folder: Path, study: Path, plan: Plan, parties: Sequence[Path] = (), by: str = "") -> None:
    """Write the note of a run of this plan once; the first run of a study is the one that was run."""
    path = folder / ABOUT
    if path.exists():
        return
    budgets, data = [], []
    for config in parties:
        if is_helper(config):
            continue  # it has no budget
        text = read_party(config)
        with Ledger.open(config.parent / text.party.ledger) as ledger:
            policy = policy_of(text.policy)
            budgets.append(BudgetLeft.of(text.party.name, ledger, policy))
            data.append(DataApproved.of(text.party.name, ledger, policy, plan.hash))
    about = About(
        f"{moment(time.time())} UTC", by or account(), purpose_of(study), tuple(budgets), tuple(one for one in data if one)
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(about)))


def read_about(folder: Path) -> About | None:
    """Return the note in the folder, if there is one."""
    try:
        return msgspec.json.decode((folder / ABOUT).read_bytes(), type=About, strict=True)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError:
        msg = f"{folder / ABOUT} is damaged: remove it, the report is made without it"
        raise DataError(msg) from None


def moment(seconds: float) -> str:
    """Return a time in UTC; ledgers of the first version have none, and a clock that was wrong, or a file of somebody else, may say anything."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M") if seconds > 0 else ""
    except (ValueError, OverflowError, OSError):  # after the year 9999
        return ""


def account() -> str:
    """Return the name of the account that runs this program; empty where it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # an account without a name
        return ""
