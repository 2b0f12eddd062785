"""The ledger as its party uses it: approve, reserve, commit, reply, and what has been spent; ledgers of earlier formats are taken over."""

from __future__ import annotations

import hmac
import json
import math
import os
import sqlite3
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from unpooled.errors import BudgetRefusal, PolicyRefusal, ReleaseConflict, UnpooledError
from unpooled.privacy.ledger import formats
from unpooled.privacy.ledger import store as files
from unpooled.privacy.ledger.chain import (
    DIGEST_ALONE,
    Approval,
    Charge,
    Entry,
    History,
    Place,
    ReleaseKey,
    Row,
    check_digest,
    check_line,
    check_plan,
    check_step,
    read_debit,
    require,
    spent,
    unknown_plans,
    where,
)
from unpooled.privacy.ledger.formats import Old
from unpooled.privacy.ledger.spending import Spending, StudyBalance, StudyLine, export
from unpooled.privacy.ledger.store import Store, damaged, ledger_at
from unpooled.privacy.unit import Scope, Target, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from unpooled.privacy.exposure import Worst
    from unpooled.privacy.origin import ReleasedInput


# --- Migration -------------------------------------------------------------------------------------------------------------
# Takes a ledger of format 1, 2 or 3 over into files of today, with everything it spent.

#: Formats that can be taken over, and what reads them.
_READERS: dict[int, Callable[[Path, Path, bytes], Old]] = {1: formats.read_format1}
_READERS.update((version, partial(formats.read, version)) for version in formats.FORMATS)


def migrate(database: Path) -> None:
    """Replace the files of an older format at this path; the old ones stay next to them, under ``.format1``, ``.format2`` or ``.format3``.

    The new files are complete before any old one is replaced, and a migration that was cut short can be run again.
    """
    draft = files.beside(database, ".migrating")
    try:
        root_key = files.beside(database, ".key").read_bytes()
        try:
            version, old = _read(database, root_key)
            kept = files.beside(database, f".format{version}")
        except (ValueError, msgspec.MsgspecError, UnpooledError):
            found = [kept for kept in _kept(database) if kept.exists() and files.beside(kept, ".anchor").exists()]
            if not found:
                raise
            version, old = _read(found[-1], root_key)  # cut short while the old files were being replaced
        else:
            for ending in ("", ".anchor"):
                files.beside(kept, ending).unlink(missing_ok=True)
                files.write_new(files.beside(kept, ending), files.beside(database, ending).read_bytes())
        for ending in ("", "-journal", ".anchor", ".anchor.new"):
            files.beside(draft, ending).unlink(missing_ok=True)
        files.write_new(draft, b"")
        store = Store(draft, root_key, new=True)
        try:
            _take_over(store, version, old, Place.of(database, draft))
        finally:
            store.close()
        files.beside(draft, ".anchor").replace(files.beside(database, ".anchor"))
        draft.replace(database)
        files.sync(database.parent)
    except (OSError, ValueError, LookupError, TypeError, msgspec.MsgspecError, sqlite3.DatabaseError) as error:
        what = str(error) if type(error) is ValueError else type(error).__name__
        damaged(database, f"it cannot be taken over: {what}", error)


def _kept(database: Path) -> list[Path]:
    """Return where the files of each older format stay, the oldest format first."""
    return [files.beside(database, f".format{version}") for version in _READERS]


def _read(database: Path, root_key: bytes) -> tuple[int, Old]:
    """Return the format of an old ledger, and what it holds."""
    anchor = files.beside(database, ".anchor")
    version = json.loads(anchor.read_bytes())["format"]
    if version not in _READERS:
        raise ValueError("it is of no older format")
    return version, _READERS[version](database, anchor, root_key)


def _take_over(store: Store, version: int, old: Old, place: Place) -> None:
    """Write the rows of an old ledger into a new one, with their times, and say where it will lie."""
    with store.locked():
        for content, body in old.replies:
            store.keep(content, body)
        rows = [row for row in old.rows if row.kind != "genesis"]
        ends = [
            Row(kind="migration", number=version, fingerprint=old.head),
            Row(kind="place", detail=msgspec.json.encode(place)),
        ]
        store.append(*rows, *ends)


# --- Account ---------------------------------------------------------------------------------------------------------------
# The ledger as its party uses it: approve, reserve, commit, reply; and what it says has been spent.

LARGEST_REPLY = 900_000_000  # SQLite holds no more than 10^9 bytes in one row


class Ledger:
    """One party's account of privacy spent. Use :meth:`create` once, :meth:`open` ever after, as a context manager.

    Threads may share a ledger and processes may open the same one; after a fork the child opens its own.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.root_key = store.root_key

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Ledger:
        """Return a new ledger with a new root key. Refused where any file of a ledger is found; a failure leaves none."""
        return cls(Store.create(Path(path).absolute()))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, moved: bool = False) -> Ledger:
        """Return the ledger at this path, every row and every stored reply verified. Never creates anything.

        A ledger knows its place. One that is elsewhere is a copy, which would spend its budget a second time, and is refused, until its
        owner says that it was ``moved``.
        """
        return cls(Store.open(Path(path).absolute(), moved=moved))

    @classmethod
    def migrate(cls, path: str | os.PathLike[str]) -> Ledger:
        """Take over a ledger of format 1 or 2 with everything it spent. The old files stay next to it, under ``.format1`` or ``.format2``.

        The new files are complete before any old one is replaced, and a migration that was cut short can be run again.
        """
        migrate(Path(path).absolute())
        return cls.open(path)

    @classmethod
    def in_memory(cls, root_key: bytes | None = None) -> Ledger:
        """Return a ledger that ends with the process, for simulation: the same rules, no files."""
        root_key = os.urandom(32) if root_key is None else root_key
        check_digest("root key", root_key)
        return cls(Store(None, root_key, new=True))

    def close(self) -> None:
        """Give the files back. Closing twice does no harm."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- approve, reserve, commit, reply

    def approve(
        self,
        plan: str,
        words: str = "",
        *,
        by: str = "",
        reason: str = "",
        purpose: str = "",
        origins: Iterable[ReleasedInput] = (),
        after: int | None = None,
        data: str = "",
        changed: str = "",
    ) -> None:
        """Record that this party agreed to a plan: what it is about (``words``), who approved it, why, and the origins that were shown.

        ``after`` is the number of decisions about the plan that the person knew: refused where somebody decided otherwise since. ``data`` is a
        keyed digest of the party's data. A plan is approved once, unless the data are others and somebody says why (``changed``).
        """
        check_plan(plan)
        check_line("name of who approves", by)
        check_line("reason of an approval", reason)
        check_line("reason why data changed", changed)
        told = Approval(by, reason, purpose, tuple((o.input, o.plan, o.holds, o.rows) for o in origins), data, changed)
        with self._store.locked() as history:
            other = changed and plan in history.approved and history.approvals[plan].approval.data != data
            if plan not in history.approved or other:
                history.known(plan, after)
                self._store.append(Row(kind="approval", plan=plan, name=words, detail=msgspec.json.encode(told)))

    def approved(self, plan: str) -> bool:
        """Return True if this party agreed to a plan."""
        check_plan(plan)
        with self._store.locked() as history:
            return plan in history.approved

    def approval(self, plan: str) -> Entry | None:
        """Return the approval of a plan that stands, the last one; None where none does."""
        check_plan(plan)
        with self._store.locked() as history:
            return history.entry(history.approvals[plan]) if plan in history.approved else None

    def withdraw(
        self, plan: str, words: str = "", *, by: str = "", reason: str = "", purpose: str = "", after: int | None = None
    ) -> None:
        """Take an agreement back, or decline a plan (``after`` as above): nothing (more) of it is debited or answered, until it is approved."""
        check_plan(plan)
        check_line("name of who withdraws", by)
        check_line("reason of a withdrawal", reason)
        with self._store.locked() as history:
            if plan not in history.withdrawn:
                history.known(plan, after)
                detail = msgspec.json.encode(Approval(by, reason, purpose))
                self._store.append(Row(kind="withdrawal", plan=plan, name=words, detail=detail))

    def check(
        self,
        charges: Iterable[Charge],
        budget: Target | None,
        *,
        scope: Scope = Scope.PERSON,
        allow_unbounded: bool = False,
    ) -> None:
        """Raise the refusal that :meth:`reserve` would; write nothing.

        A plan is checked before its requests and data are at hand, so fingerprints are not compared here.
        """
        charges = tuple(charges)  # before the lock: an iterator may ask the ledger itself
        with self._store.locked() as history:
            self._judge(history, history.new(charges, fingerprints=False), budget, scope, allow_unbounded=allow_unbounded)

    def reserve(
        self,
        charges: Iterable[Charge],
        budget: Target | None,
        *,
        scope: Scope = Scope.PERSON,
        allow_unbounded: bool = False,
    ) -> None:
        """Debit these releases durably, all of them or none. What was debited before is not debited again.

        With a budget, everything ever charged to its unit and these charges must compose to no more than it: per person over all
        parties of column-split studies, or this party's own releases only (``scope``). ``allow_unbounded`` admits releases of
        unknown cost: the budget then holds for the others only.
        """
        charges = tuple(charges)
        with self._store.locked() as history:
            new = history.new(charges, fingerprints=True)
            for key in new:
                history.stands(key.plan)
            self._judge(history, new, budget, scope, allow_unbounded=allow_unbounded)
            new = {key: self._named(charge) for key, charge in new.items()}
            self._store.append(*map(Row.of, new.values()))

    def _named(self, charge: Charge) -> Charge:
        """Return a debit with a name that no other draw has: of this ledger's secret key, of its place, and of the request and the data behind it.

        A ledger that was restored from a copy, or data that changed, give another name to what is drawn anew.
        """
        if charge.release:
            return charge
        key = charge.key
        place = msgspec.json.encode((key.plan, key.step, key.index, key.name, charge.shared, charge.fingerprint.hex()))
        return replace(charge, release=hmac.digest(self._store.root_key, b"name of a draw" + place, "sha256").hex())

    def commit(self, plan: str, step: str, index: int, request: bytes, reply: bytes, *, keep: bool = True) -> None:
        """Store the reply of a step, which may be sent once this returns. The charges of the step are now committed.

        Without ``keep`` its digest alone is stored: a later request must be answered with the same bytes, which are made anew.
        """
        check_step(plan, step, index)
        check_digest("request", request)
        right = type(reply) is bytes and len(reply) <= LARGEST_REPLY
        require(right, f"a reply must be at most {LARGEST_REPLY} bytes: encode it first, and split what is larger")
        content = sha256(reply).digest()
        with self._store.locked() as history:
            known = history.answers.get((plan, step, index))
            if known is None:
                if keep:
                    self._store.keep(content, reply)
                detail = b"" if keep else DIGEST_ALONE
                self._store.append(Row(0, 0, "commit", plan, step, index, "", request, content, detail))
            elif (known.fingerprint, known.content) != (request, content):
                msg = f"{where(plan, step, index)} was answered before, to another request or with another reply"
                raise ReleaseConflict(msg)

    def reply(self, plan: str, step: str, index: int, request: bytes) -> bytes | None:
        """Return the stored reply of a step, or None while there is none, or where its digest alone is stored."""
        check_step(plan, step, index)
        check_digest("request", request)
        with self._store.locked() as history:
            history.stands(plan)
            known = history.answers.get((plan, step, index))
            if known is None:
                return None
            if known.fingerprint != request:
                msg = (
                    f"{where(plan, step, index)} was answered before, to another request or over other data: it is answered once. Go on with "
                    "the run's own transcript, or raise `run` in the study and have it approved again"
                )
                raise ReleaseConflict(msg)
            return None if known.detail else self._store.body(known.content)

    def align(
        self, plan: str, parties: str, guesses: int, most: int, in_total: int | None = None, *, only_check: bool = False
    ) -> None:
        """Record that rows are linked in this plan with this set of parties, who may test ``guesses`` ids; once for a plan.

        Refused where ``most`` plans with that set are recorded already, or where the guesses of all plans, with any parties, would exceed
        ``in_total``.
        """
        check_plan(plan)
        with self._store.locked() as history:
            history.stands(plan)
            before = sum(row.name == parties for row in history.alignments.values())
            if plan in history.alignments:
                return
            if before >= most:
                msg = (
                    f"rows were linked {before} time(s) with this set of parties, which is what the policy allows (psi_runs): every further run "
                    "tells more about who is in the sets. Nothing was recorded"
                )
                raise PolicyRefusal(msg)
            tested = sum(row.number for row in history.alignments.values())
            if in_total is not None and tested + guesses > in_total:
                msg = (
                    f"this plan lets other parties test {guesses} ids against this party's set, {tested} could be tested before, and the policy allows "
                    f"{in_total} in total (psi_max_guesses). Nothing was recorded"
                )
                raise PolicyRefusal(msg)
            if not only_check:
                self._store.append(Row(kind="alignment", plan=plan, name=parties, number=guesses))

    def aligned(self, plan: str) -> bool:
        """Return True if rows are linked in this plan."""
        with self._store.locked() as history:
            return plan in history.alignments

    def begun(self, plan: str) -> bool:
        """Return True if anything of this plan was debited, linked or answered: a helper answers and debits nothing."""
        with self._store.locked() as history:
            keys = (*(key.plan for key in history.charges), *(key[0] for key in history.answers))
            return plan in history.alignments or plan in keys

    @property
    def guesses(self) -> int:
        """Return the number of ids that other parties could try out on this one's set, over all plans that linked its rows."""
        with self._store.locked() as history:
            return sum(row.number for row in history.alignments.values())

    def belongs_to(self, file: str, digest: bytes) -> None:
        """Record the file whose budget this ledger keeps, and the SHA-256 of what it held then."""
        check_digest("digest of the file", digest)
        with self._store.locked():
            detail = msgspec.json.encode({"file": file, "digest": digest.hex()})
            self._store.append(Row(kind="data", detail=detail))

    # --- what it says

    @property
    def data(self) -> tuple[tuple[str, bytes], ...]:
        """Return the files whose budget it keeps, each with the SHA-256 of what it held when it was recorded."""
        with self._store.locked() as history:
            found = [msgspec.json.decode(row.detail) for row in history.rows if row.kind == "data"]
        return tuple((one["file"], bytes.fromhex(one["digest"])) for one in found)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return warnings about costs that the ledger's total does not hold: those of rows that were taken over from format 1."""
        with self._store.locked() as history:
            last = max((row.position for row in history.rows if row.kind == "migration" and row.number < 2), default=0)  # noqa: PLR2004 - of format 1
            old = [row for row in history.rows[:last] if row.kind == "charge"]
        if not old:
            return ()
        free = sorted({row.plan[:16] for row in old if not any(cost.event.value for cost in read_debit(row.detail)[1])})
        own = (
            "Entries of unpooled 0.1.0 hold what this party released; what other parties released about the same people in column-split "
            "studies is not in them, nor what a label cost there."
        )
        uncounted = f"Unpooled 0.1.0 debited releases of {len(free)} plan(s) at nothing ({', '.join(free)}): their cost is not in the total."
        return (own, uncounted) if free else (own,)

    def composition(self, unit: Unit | str, scope: Scope = Scope.PARTY, charges: Iterable[Charge] = ()) -> Worst:
        """Return the cost to one unit of everything charged so far and of these charges, sent or not: once reserved, a release counts as spent.

        Scope "party": this party's own releases. Scope "person", which policies bound unless they say otherwise: of a column-split
        study that released anything here, the whole plan over all its parties.
        """
        unit, scope, charges = Unit.parse(unit), Scope.parse(scope), tuple(charges)
        with self._store.locked() as history:
            return spent([*history.charges.values(), *history.new(charges, fingerprints=False).values()], unit, scope)

    def spending(self, budget: Target, scope: Scope = Scope.PARTY, charges: Iterable[Charge] = ()) -> Spending:
        """Return what everything charged so far, and these charges, cost the budget's unit at its delta (:meth:`composition` says of whom)."""
        with self._store.locked() as history:
            every = [*history.charges.values(), *history.new(charges, fingerprints=False).values()]
        return _spending(every, budget, scope)

    def studies(self, budget: Target, scope: Scope = Scope.PARTY) -> tuple[StudyLine, ...]:
        """Return what the ledger holds of every plan, in the order in which the plans appear: a line for each."""
        with self._store.locked() as history:
            entries, charges = history.entries(), tuple(history.charges.values())
            withdrawn = frozenset(history.withdrawn)
        lines = []
        for plan in dict.fromkeys(entry.plan for entry in entries):
            own = tuple(entry for entry in entries if entry.plan == plan)
            cost = _spending((charge for charge in charges if charge.key.plan == plan), budget, scope)
            lines.append(StudyLine(plan, own, cost, plan in withdrawn))
        return tuple(lines)

    def balances(self, budget: Target, scope: Scope = Scope.PARTY) -> tuple[StudyBalance, ...]:
        """Return what is spent after each study, in the order of first charges: the composition of all charges to it and to those before it."""
        with self._store.locked() as history:
            entries, charges = history.entries(), tuple(history.charges.values())
        about = {entry.plan: entry.about for entry in entries if entry.kind == "approval"}
        times = {entry.plan: entry.time for entry in reversed(entries) if entry.key is not None}  # of a plan's first charge
        plans: dict[str, list[Charge]] = {}
        for charge in charges:
            plans.setdefault(charge.key.plan, []).append(charge)
        so_far: list[Charge] = []
        balances = []
        for plan, own in plans.items():
            so_far += own
            balances.append(StudyBalance(plan, times[plan], about.get(plan, ""), _spending(so_far, budget, scope)))
        return tuple(balances)

    def charged(self, key: ReleaseKey) -> bool:
        """Return True if this release was debited."""
        with self._store.locked() as history:
            return key in history.charges

    def entries(self) -> tuple[Entry, ...]:
        """Return the charges, approvals and withdrawals, oldest first."""
        with self._store.locked() as history:
            return history.entries()

    def export(self) -> bytes:
        """Return every row of the chain as text, for an auditor: no reply and no key, and yet enough to recompute the head."""
        with self._store.locked() as history:
            return export(history.rows, history.head.digest.hex())

    @property
    def head(self) -> str:
        """Return the end of the chain. Written down elsewhere, it shows later that no row was taken back."""
        with self._store.locked() as history:
            return history.head.digest.hex()

    def _judge(
        self,
        history: History,
        new: dict[ReleaseKey, Charge],
        budget: Target | None,
        scope: Scope,
        *,
        allow_unbounded: bool,
    ) -> None:
        """Refuse new charges for which a budget has no room."""
        require(budget is None or type(budget) is Target, f"not a Budget or None: {type(budget).__name__}")
        if budget is None or not new:  # a retry is never refused, even if the policy has become stricter
            return

        def words(charges: Iterable[Charge]) -> str:
            epsilon = spent(charges, budget.unit, scope, known_only=allow_unbounded).epsilon(budget.delta)
            return "unbounded" if epsilon == math.inf else f"epsilon = {epsilon:.6g}"

        before = list(history.charges.values())
        after = [*before, *new.values()]
        if not spent(after, budget.unit, scope, known_only=allow_unbounded).within(budget.epsilon, budget.delta):
            counted = {Scope.PERSON: "all parties together", Scope.PARTY: "this party alone"}[scope]
            msg = (
                f"{ledger_at(self._store.path)} has no room: at delta = {budget.delta:g}, {len(new)} new debit(s) ask for"
                f" {words(new.values())}, spent is {words(before)}, together {words(after)}; allowed is {budget}, for {counted}."
                " Nothing was debited. Ask for fewer releases, more noise, or a larger budget"
            )
            raise BudgetRefusal(msg)


def _spending(charges: Iterable[Charge], budget: Target, scope: Scope) -> Spending:
    """Return what these charges cost together."""
    charges = tuple(charges)
    known = spent(charges, budget.unit, scope, known_only=True).epsilon(budget.delta)
    unknown = unknown_plans(charges, budget.unit)
    total = spent(charges, budget.unit, scope).epsilon(budget.delta) if unknown else known
    return Spending(total, known, len(unknown))
