"""The context of a step: the data, the plan, and the acts that a party performs for it.

A context holds no ledger, no key and no party. Each act looks up the party's :class:`Desk` by a token that is worth nothing once the
request is answered; what was handed out stands in a list at the desk, and nothing else leaves. So a step can neither send
what was not released nor make something look released. (Python is no sandbox: code that searches the interpreter's own memory is not held.)
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NamedTuple,
    Protocol,
    overload,
)

from unpooled.errors import ProtocolError, raised_at
from unpooled.privacy.plan import Design
from unpooled.protocol.identity import verify
from unpooled.protocol.messages import encode_content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from unpooled.privacy.mechanisms import Objective, Scores, Summand, Vector
    from unpooled.privacy.noise import Stream
    from unpooled.privacy.plan import Card, Plan, Release
    from unpooled.privacy.table import Table
    from unpooled.protocol.messages import Commitment, Masked, Partial, Pseudonyms, Released, Sealed, Signed

    #: From rows and a request's public settings to exact integers.
    Statistic = Callable[["Context", tuple[float, ...]], NDArray[np.int64]]


class Receiver(NamedTuple):
    """A member of the study, and the key by which messages for it are sealed."""

    name: str
    agreement: str


class Desk(Protocol):
    """The party's side of a context, for one request (:class:`unpooled.protocol.desk.OpenDesk`)."""

    def release(self, name: str, given: Any) -> Any: ...  # noqa: ANN401, D102 - see Context
    def pay(self, name: str, content: bytes) -> None: ...  # noqa: D102
    def affordable(self, names: tuple[str, ...]) -> None: ...  # noqa: D102
    def planned(self, name: str) -> Release: ...  # noqa: D102
    def partial(self, name: str, values: NDArray[Any]) -> Partial: ...  # noqa: D102
    def sign(self, values: tuple[Released, ...]) -> Signed: ...  # noqa: D102
    def attest(self, parts: tuple[bytes, ...]) -> str: ...  # noqa: D102
    def public_key(self) -> str: ...  # noqa: D102
    def agreement_key(self) -> str: ...  # noqa: D102
    def shared_key(self, other: str, purpose: tuple[bytes, ...]) -> bytes: ...  # noqa: D102
    def secret(self, purpose: bytes) -> bytes: ...  # noqa: D102
    def coins(self, *purpose: str | int) -> Stream: ...  # noqa: D102
    def seal_secret(self, node: str, key: str, purpose: bytes, context: tuple[bytes, ...]) -> Sealed: ...  # noqa: D102
    def align(self, guesses: int) -> None: ...  # noqa: D102
    def seal(self, node: str, key: str, content: bytes, context: tuple[bytes, ...]) -> Sealed: ...  # noqa: D102
    def mask(  # noqa: D102
        self, rows: NDArray[np.int64], to: Receiver, helper: Receiver, place: tuple[bytes, ...]
    ) -> tuple[Masked, bytes]: ...
    def seal_for(self, to: Receiver, content: bytes, place: tuple[bytes, ...]) -> Sealed: ...  # noqa: D102
    def commit(self, digest: str) -> Commitment: ...  # noqa: D102
    def pseudonyms(self, values: Sequence[bytes]) -> Pseudonyms: ...  # noqa: D102
    def keep_map(self, digest: str, rows: NDArray[Any]) -> None: ...  # noqa: D102
    def keep_places(self, name: str, places: Mapping[str, NDArray[Any]]) -> None: ...  # noqa: D102
    def keep(self, name: str, values: NDArray[Any]) -> None: ...  # noqa: D102
    def kept(self, name: str, plan: str | None) -> NDArray[Any]: ...  # noqa: D102
    def has(self, name: str, plan: str | None) -> bool: ...  # noqa: D102


_DESKS: dict[object, Desk] = {}


@dataclass(frozen=True, slots=True)
class Context(Generic[Design]):
    """The data, the plan and the acts that a step is given in addition to its request."""

    name: str
    table: Table
    plan: Plan[Design]
    step: str
    index: int
    _token: object

    @property
    def _desk(self) -> Desk:
        if self._token not in _DESKS:
            raise ProtocolError("this request was answered: nothing more is released for it")
        return _DESKS[self._token]

    @property
    def card(self) -> Card:
        """Return the party's declared columns, as the approved study has them."""
        return self.plan.study.card(self.name)

    @property
    def design(self) -> Design:
        """Return the design that the model made of the study when the plan was compiled."""
        return self.plan.design

    def added_up(self, statistic: Statistic, settings: tuple[float, ...] = (), *, joined: bool = False) -> NDArray[np.int64]:
        """``statistic(self, settings)``, worked out where the rows are: shard by shard, where they lie on a cluster.

        The statistic is a function at the top of its module that adds up integers over the rows of ``context.table`` (``joined``: that has
        an entry for every row) and sees nothing else of the table: not its number of rows either.
        """
        return self.table.passed(Pass(statistic, self, settings, joined))

    @overload
    def release(self, name: str, given: Vector | Scores | Objective) -> Released: ...
    @overload
    def release(self, name: str, given: Summand) -> tuple[Sealed, ...]: ...
    def release(self, name: str, given: Vector | Scores | Objective | Summand) -> Released | tuple[Sealed, ...]:
        """Debit the planned release, draw its noise, and hand out the result: the only door.

        The noise key is derived from everything that names the release AND from what it is given: the same content gives the same bytes
        again (a crash costs nothing), other content gets unrelated noise, never the same noise twice.
        """
        with raised_at(release=name):
            result: Released | tuple[Sealed, ...] = self._desk.release(name, given)
        return result

    def pay(self, name: str, content: bytes) -> None:
        """Debit the planned release durably whose noise all parties put among the entries of their lists, before this one leaves."""
        self._desk.pay(name, content)

    def affordable(self, *names: str) -> None:
        """Refuse a step now whose releases do not all fit into the budget: a refusal half-way would leave the first of them debited."""
        self._desk.affordable(names)

    def planned(self, name: str) -> Release:
        """Return the plan's release of this name in this step; refused where there is none, or where it was made often enough."""
        return self._desk.planned(name)

    def partial(self, name: str, values: NDArray[Any]) -> Partial:
        """Hand out this node's part of a total whose summands their parties have debited."""
        return self._desk.partial(name, values)

    def sign(self, *values: Released) -> Signed:
        """Return a signature under values that were just released, which tells others that they are this party's own."""
        return self._desk.sign(values)

    def attest(self, *parts: bytes) -> str:
        """Return the party's signature under public parts (a key, a set of participants)."""
        return self._desk.attest(parts)

    @property
    def public_key(self) -> str:
        """Return the key that verifies this party's signatures."""
        return self._desk.public_key()

    @property
    def agreement_key(self) -> str:
        """Return the public half of this party's key for sealed messages of this plan."""
        return self._desk.agreement_key()

    def shared_key(self, other: str, *purpose: bytes) -> bytes:
        """Return the key that this party and the holder of the agreement key ``other`` share for a purpose."""
        return self._desk.shared_key(other, purpose)

    def secret(self, purpose: bytes) -> bytes:
        """Return a secret of this party for this plan and purpose, the same again after a crash."""
        return self._desk.secret(purpose)

    def coins(self, *purpose: str | int) -> Stream:
        """Return random words for what a party rounds at random before anything is masked or released: the same again after a crash.

        They come from the keys of its noise, so that a simulation has those of its seed. No sensitivity rests on them.
        """
        return self._desk.coins(*purpose)

    def seal_secret(self, node: str, key: str, purpose: bytes, *context: bytes) -> Sealed:
        """That secret, sealed for another party."""
        return self._desk.seal_secret(node, key, purpose, context)

    def align(self, guesses: int) -> None:
        """Record, once for the plan, that others may try out ``guesses`` ids on this party's set; refused where the policy says no."""
        self._desk.align(guesses)

    def seal(self, node: str, key: str, content: bytes, *context: bytes) -> Sealed:
        """Bytes for another party alone, in a plan that links rows, after it was written down."""
        return self._desk.seal(node, key, content, context)

    def mask(self, rows: NDArray[np.int64], to: Receiver, helper: Receiver, *place: bytes) -> tuple[Masked, bytes]:
        """Return rows under a mask of their own, sealed for one party, and the mask's seed, which the helper alone may get: in a plan of joint moments.

        The seed is keyed by the party's root key, the plan, the place, both receivers' keys and the rows themselves: the same again gives the
        same bytes, and no mask serves two receivers, plans, places or contents.
        """
        return self._desk.mask(rows, to, helper, place)

    def seal_for(self, to: Receiver, content: bytes, *place: bytes) -> Sealed:
        """Bytes for another member alone, in a plan of joint moments."""
        return self._desk.seal_for(to, content, place)

    def commit(self, digest: str) -> Commitment:
        """Return a digest of what this member saw under blinds, or its signature under such digests, in a plan of joint moments."""
        return self._desk.commit(digest)

    def pseudonyms(self, values: Sequence[bytes]) -> Pseudonyms:
        """Pseudonyms of this party's rows, sorted, in a plan that links rows, after it was written down."""
        return self._desk.pseudonyms(values)

    def keep_map(self, digest: str, rows: NDArray[Any]) -> None:
        """Keep a row map under its own name, under which later studies look for it."""
        self._desk.keep_map(digest, rows)

    def keep_places(self, name: str, places: Mapping[str, NDArray[Any]]) -> None:
        """Keep places of a hidden link under its name, under which later studies look for them."""
        self._desk.keep_places(name, places)

    def keep(self, name: str, values: NDArray[Any]) -> None:
        """Keep a value at this party; it never travels."""
        self._desk.keep(name, values)

    def kept(self, name: str, plan: str | None = None) -> NDArray[Any]:
        """Return the value that was kept under this name, for this plan or an earlier one."""
        return self._desk.kept(name, plan)

    def has(self, name: str, plan: str | None = None) -> bool:
        """Return True if a value was kept under this name for this plan, or an earlier one."""
        return self._desk.has(name, plan)


@dataclass(frozen=True, slots=True)
class Pass:
    """A statistic of a step, to be worked out of some rows or of all."""

    statistic: Statistic
    context: Context
    settings: tuple[float, ...] = ()
    joined: bool = False

    def over(self, table: Table) -> NDArray[np.int64]:
        """Return the statistic of these rows; a design may see columns that it makes of the party's name (``at_site``) and of the rows (``seen``)."""
        at_site, seen = (getattr(self.context.design, name, None) for name in ("at_site", "seen"))
        table = table if at_site is None else at_site(table, self.context.name)
        return self.statistic(replace(self.context, table=table if seen is None else seen(table)), self.settings)


@contextmanager
def serving(desk: Desk, name: str, table: Table, plan: Plan, step: str, index: int) -> Iterator[Context]:
    """A context in front of this desk, for as long as one request is answered."""
    token = object()
    _DESKS[token] = desk
    try:
        yield Context(name, table, plan, step, index, token)
    finally:
        del _DESKS[token]


# --- Claims ----------------------------------------------------------------------------------------------------------------
# Signatures of parties under their releases, which other parties check before they act on them.


def signed_parts(plan: Plan, party: str, step: str, index: int, values: Sequence[Released]) -> tuple[bytes, ...]:
    """Return the parts that a party signs: the place and time of a release, and its values."""
    return (
        *(b"released", plan.hash.encode(), party.encode(), step.encode(), str(index).encode()),
        *(encode_content(value) for value in values),
    )


def check_signed(context: Context, party: str, step: str, index: int, values: Sequence[Released], signed: Signed) -> None:
    """Refuse values that this party of the study did not sign as its release of this step."""
    plan = context.plan
    # Its own key it knows; the others' are pinned by their cards (parties of one process pin none).
    pinned = plan.study.card(party).key or signed.identity
    key = context.public_key if party == context.name else pinned
    verify(key, signed.signature, *signed_parts(plan, party, step, index, values))
