"""A party's side of one request: the desk at which a step asks for releases, signatures and sealed messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from unpooled.errors import PlanMismatch, ProtocolError
from unpooled.privacy.exposure import release_costs
from unpooled.privacy.ledger import Charge, ReleaseKey
from unpooled.privacy.mechanisms import Summand
from unpooled.privacy.noise import Stream
from unpooled.privacy.plan import AGGREGATION, Plan, Release, Study
from unpooled.protocol.context import signed_parts
from unpooled.protocol.identity import MAP_DATA, ROW_MAP
from unpooled.protocol.messages import (
    ISSUED,
    Array,
    Commitment,
    Entrusted,
    Masked,
    Partial,
    Pseudonyms,
    Released,
    Sealed,
    Signed,
    digest,
    encode_content,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.ledger import Ledger
    from unpooled.privacy.mechanisms import Given
    from unpooled.privacy.noise import KeySource
    from unpooled.privacy.policy import Policy
    from unpooled.privacy.table import Table
    from unpooled.protocol.context import Receiver
    from unpooled.protocol.identity import Identity, Keeper
    from unpooled.protocol.registry import Step

#: Each key seals one message, so that its nonce may be constant.
_NONCE = bytes(12)


class Owner(Protocol):
    """The party that a desk works for, as far as a desk needs it."""

    @property
    def name(self) -> str:
        """Its name in the study."""
        ...

    @property
    def table(self) -> Table:
        """Its rows."""
        ...

    @property
    def ledger(self) -> Ledger:
        """Where it debits and keeps what it answered."""
        ...

    @property
    def keys(self) -> KeySource:
        """Its secret keys of noise."""
        ...

    @property
    def policy(self) -> Policy:
        """Its policy."""
        ...

    @property
    def keeper(self) -> Keeper:
        """Where it keeps values between requests."""
        ...

    @property
    def identity(self) -> Identity:
        """The keys that it signs and agrees with."""
        ...

    @property
    def helps(self) -> bool:
        """Whether it is a helper, who has no rows, and so no row ids."""
        ...

    def keys_for(self, study: Study) -> KeySource:
        """Return its keys of noise in this study."""
        ...

    def fingerprint(self, content: bytes) -> bytes:
        """Return a keyed digest."""
        ...

    def debit(self, plan: Plan, charges: list[Charge], *, only_check: bool = False) -> None:
        """Debit releases durably, or refuse."""
        ...


@dataclass(slots=True)
class OpenDesk:
    """A party's side of one request: everything that a context can ask for, and a list of what was handed out."""

    party: Owner
    plan: Plan
    step: str
    index: int
    #: A digest of the request and the data.
    asked: bytes
    minted: list[msgspec.Struct] = field(default_factory=list)
    #: The plan that contains this one as a part: then it is what the ledger debits.
    within: Plan | None = None

    def release(self, name: str, given: Given) -> Released | tuple[Sealed, ...]:
        """Debit, draw, hand out. Debited durably before any noise is drawn, so that whatever happens then is paid for."""
        planned, party = self.planned(name), self.party
        mechanism = planned.mechanism
        if mechanism.needs_trust and not self.plan.study.trusts(AGGREGATION):
            msg = f"release {name!r} needs a trusted aggregator, which the study does not ask for"
            raise PlanMismatch(msg)
        if type(given) is not mechanism.takes:
            msg = f"release {name!r} is planned as {mechanism.name}, which takes a {mechanism.takes.__name__}"
            raise PlanMismatch(msg)
        mechanism.check(given)
        content = mechanism.content(given)
        fingerprint = self._bound(planned, content)
        party.debit(self._whole, [charge_of(self._whole, self._debited(planned), self.index, fingerprint)])
        names = (self.plan.hash, party.name, self.step, self.index, name)
        drawn = mechanism.draw(given, party.keys_for(self.plan.study).stream(*names, content=content))
        if isinstance(given, Summand):
            secret = party.keys.stream("seal", *names, content=content)  # never that of a simulation
            sealed = given.seal(drawn, secret.key)
            self.minted.extend(sealed)
            return sealed
        released = Released(name, self.index, Array.of(drawn))
        self.minted.append(released)
        return released

    def _bound(self, planned: Release, content: bytes) -> bytes:
        """Return what binds a debit to the request: another one at this index is refused, and whether its statistic is the same is not told."""
        party = self.party
        # The first releases are debited for a unit that is part of few of them: so they must come first.
        if planned.exposure.ordered and self.index and not party.ledger.charged(self._key(planned, self.index - 1)):
            msg = f"release {planned.name!r} is asked for in order: number {self.index - 1} was not made yet"
            raise PlanMismatch(msg)
        party.table.verify()  # what the statistic was computed from is what the digest says
        return party.fingerprint(digest(content, self.asked))

    def pay(self, name: str, content: bytes) -> None:
        """Debit a release whose noise stands among the entries of a list: nothing is drawn here, and nothing is handed out."""
        if not self.plan.hides:
            raise PlanMismatch("no release is debited without being drawn in this plan: it hides nothing in lists")
        planned = self.planned(name)
        fingerprint = self._bound(planned, content)
        self.party.debit(self._whole, [charge_of(self._whole, self._debited(planned), self.index, fingerprint)])

    def affordable(self, names: tuple[str, ...]) -> None:
        """Refuse releases that do not all fit into the budget."""
        charges = [charge_of(self._whole, self._debited(self.planned(name)), self.index, bytes(32)) for name in names]
        self.party.debit(self._whole, charges, only_check=True)

    def planned(self, name: str, *, own_step: bool = True) -> Release:
        """Return the plan's release of this name; refused where there is none in this step, or where it was made often enough."""
        planned = self.plan.release(self.party.name, name)
        if own_step and planned.step != self.step:
            msg = f"release {name!r} belongs to step {planned.step!r}, not to {self.step!r}"
            raise PlanMismatch(msg)
        if self.index >= planned.count:
            msg = f"release {name!r} is planned {planned.count} times; a request for one more is refused"
            raise PlanMismatch(msg)
        return planned

    def partial(self, name: str, values: NDArray[Any]) -> Partial:
        """Return the part of a total that this node has added up."""
        mechanism = self.planned(name, own_step=False).mechanism
        if mechanism.takes is not Summand or mechanism.needs_trust:
            msg = f"release {name!r} is planned as {mechanism.name}, which has no partial sums"
            raise PlanMismatch(msg)
        part = Partial(name, self.index, Array.of(values))
        self.minted.append(part)
        return part

    def sign(self, values: tuple[Released, ...]) -> Signed:
        """Return a signature under what this desk has just handed out."""
        if not all(any(value is one for one in self.minted) for value in values):
            raise ProtocolError("a party signs what it has just released and nothing else")
        identity = self.party.identity
        parts = signed_parts(self.plan, self.party.name, self.step, self.index, values)
        signed = Signed(identity.public, identity.sign(*parts))
        self.minted.append(signed)
        return signed

    def attest(self, parts: tuple[bytes, ...]) -> str:
        """Return a signature under public parts."""
        return self.party.identity.sign(*parts)

    def public_key(self) -> str:
        """Return the key that verifies this party's signatures."""
        return self.party.identity.public

    def agreement_key(self) -> str:
        """Return the public half of this party's key for sealed messages of this plan."""
        return self.party.identity.agreement_key(self.plan.hash.encode())

    def shared_key(self, other: str, purpose: tuple[bytes, ...]) -> bytes:
        """Return the key shared with the holder of another agreement key."""
        return self.party.identity.shared_key(self.plan.hash.encode(), other, *purpose)

    def secret(self, purpose: bytes) -> bytes:
        """Return a secret of this party for this plan and purpose: only its own root key gives it."""
        return self.party.fingerprint(purpose + b" " + self.plan.hash.encode())

    def coins(self, *purpose: str | int) -> Stream:
        """Return the words by which a party rounds at random in this plan; no draw of noise has them, whose first part is a plan's hash."""
        party = self.party
        from unpooled.privacy.masks import derived  # its arithmetic takes long to import

        return Stream(derived(party.keys_for(self.plan.study).root, "coins", self.plan.hash, party.name, *purpose))

    def seal_secret(self, node: str, key: str, purpose: bytes, context: tuple[bytes, ...]) -> Sealed:
        """That secret, sealed for another party."""
        sealed = Sealed(node, AESGCM(self.shared_key(key, context)).encrypt(_NONCE, self.secret(purpose), None))
        self.minted.append(sealed)
        return sealed

    def align(self, guesses: int) -> None:
        """Write an alignment down: once for a plan, and no more often than the policy allows for this circle of parties."""
        party = self.party
        party.policy.check_link(self.plan, party.name)
        party.ledger.align(self.plan.hash, self.plan.study.circle, guesses, *party.policy.psi_limits)

    def seal(self, node: str, key: str, content: bytes, context: tuple[bytes, ...]) -> Sealed:
        """Return bytes for another party. The key is of the content: the same again gives the same bytes, other content another key."""
        self._must_be_aligned()
        salt = self.party.fingerprint(digest(b"salt", self.plan.hash.encode(), *context, content))
        sealed = Sealed(node, AESGCM(self.shared_key(key, (*context, salt))).encrypt(_NONCE, content, None), salt)
        self.minted.append(sealed)
        return sealed

    def mask(
        self, rows: NDArray[np.int64], to: Receiver, helper: Receiver, place: tuple[bytes, ...]
    ) -> tuple[Masked, bytes]:
        """Return masked rows for one party, and the seed of their mask."""
        from unpooled.privacy.masks import masked

        self._must_be_joint()
        self.party.table.verify()
        receivers = to.name.encode(), to.agreement.encode(), helper.name.encode(), helper.agreement.encode()
        shape = repr(rows.shape).encode()
        content = digest(shape, np.ascontiguousarray(rows).tobytes())
        seed = self.party.fingerprint(digest(b"mask", self.plan.hash.encode(), *place, *receivers, content))
        salt, ciphertext = self._sealed(to, masked(rows, seed).astype("<u8").tobytes(), (b"masked", *place))
        made = Masked(to.name, ciphertext, salt)
        self.minted.append(made)
        return made, seed

    def seal_for(self, to: Receiver, content: bytes, place: tuple[bytes, ...]) -> Sealed:
        """Return bytes for another member of a plan of joint moments."""
        self._must_be_joint()
        salt, ciphertext = self._sealed(to, content, (b"sealed", *place))
        made = Sealed(to.name, ciphertext, salt)
        self.minted.append(made)
        return made

    def commit(self, digest: str) -> Commitment:
        """Return a digest under blinds, or a signature under such digests."""
        self._must_be_joint()
        made = Commitment(digest)
        self.minted.append(made)
        return made

    def _sealed(self, to: Receiver, content: bytes, place: tuple[bytes, ...]) -> tuple[bytes, bytes]:
        """Return (salt, ciphertext): the key is of the content, so that the same again gives the same bytes, and other content another key."""
        place = (*place, self.party.name.encode(), to.name.encode())
        salt = self.party.fingerprint(digest(b"salt", self.plan.hash.encode(), *place, content))
        return salt, AESGCM(self.shared_key(to.agreement, (*place, salt))).encrypt(_NONCE, content, None)

    def _must_be_joint(self) -> None:
        if not self.plan.joint:
            raise PlanMismatch("no row leaves a party under a mask in this plan: it has no joint moments")

    def pseudonyms(self, values: Sequence[bytes]) -> Pseudonyms:
        """Pseudonyms of rows."""
        self._must_be_aligned()
        made = Pseudonyms(b"".join(sorted(values)))
        self.minted.append(made)
        return made

    def _must_be_aligned(self) -> None:
        if not self.party.helps and not self.party.ledger.aligned(self.plan.hash):
            raise PlanMismatch(
                "nothing about row ids leaves a party before its ledger says that they are linked in this plan"
            )

    def keep_map(self, digest: str, rows: NDArray[Any]) -> None:
        """Keep a row map."""
        self.party.keeper.keep(digest, MAP_DATA, np.frombuffer(self.party.table.digest, dtype=np.uint8))
        self.party.keeper.keep(digest, ROW_MAP, rows)

    def keep_places(self, name: str, places: Mapping[str, NDArray[Any]]) -> None:
        """Keep places of a hidden link, and of which data they are the places."""
        self.party.keeper.keep(name, MAP_DATA, np.frombuffer(self.party.table.digest, dtype=np.uint8))
        for key, values in places.items():
            self.party.keeper.keep(name, key, values)

    def keep(self, name: str, values: NDArray[Any]) -> None:
        """Keep a value at this party."""
        self.party.keeper.keep(self.plan.hash, name, values)

    def kept(self, name: str, plan: str | None) -> NDArray[Any]:
        """Return the value that was kept."""
        return self.party.keeper.kept(plan or self.plan.hash, name)

    def has(self, name: str, plan: str | None = None) -> bool:
        """Return True if a value was kept."""
        return self.party.keeper.has(plan or self.plan.hash, name)

    @property
    def _whole(self) -> Plan:
        """Return the plan that the ledger debits."""
        return self.within or self.plan

    def _debited(self, planned: Release) -> Release:
        """Return a release of this plan as the plan has it that the ledger debits: of a part, under the part's name."""
        prefix = self._whole.prefix_of(self.plan)
        return self._whole.release(self.party.name, f"{prefix}{planned.name}") if prefix else planned

    def _key(self, planned: Release, index: int) -> ReleaseKey:
        debited = self._debited(planned)
        return ReleaseKey(self._whole.hash, debited.step, index, debited.name)


def charge_of(plan: Plan, release: Release, index: int, fingerprint: bytes) -> Charge:
    """Return the charge that the ledger debits for the ``index``-th release of this kind: both come from the party's own plan."""
    key = ReleaseKey(plan.hash, release.step, index, release.name)
    return Charge(key, fingerprint, release_costs(release, index))


def check_minted(step: Step, reply: msgspec.Struct, minted: Sequence[msgspec.Struct], study: Study) -> None:
    """Refuse a reply that holds anything but what this request's desk handed out, and what the plan entrusts."""
    if type(reply) is not step.reply:
        msg = f"step {step.name!r} returned a {type(reply).__name__} where it declares {step.reply.__name__}"
        raise ProtocolError(msg)
    for name in reply.__struct_fields__:
        value = getattr(reply, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, ISSUED) and not any(part is one for one in minted):
                msg = f"step {step.name!r} returned a {name!r} that was not released for it"
                raise ProtocolError(msg)
            if isinstance(part, Entrusted) and not study.trusts(part.role):
                msg = f"step {step.name!r} would entrust {part.role!r} with values in the clear, which the plan does not"
                raise PlanMismatch(msg)
    # Encoding to the declared type and back refuses what a field's annotation does not allow.
    try:
        msgspec.msgpack.decode(encode_content(reply), type=step.reply, strict=True)
    except msgspec.ValidationError:
        msg = f"step {step.name!r} returned a field of another type than it declares"
        raise ProtocolError(msg) from None
