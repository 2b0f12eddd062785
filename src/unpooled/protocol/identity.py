"""What a party keeps to itself: signing keys, key agreement with another party, and values that never leave it (its own coefficients)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from unpooled.errors import ProtocolError, UsageError

if TYPE_CHECKING:
    from collections.abc import ItemsView, Mapping

    from numpy.typing import NDArray


# --- Identity --------------------------------------------------------------------------------------------------------------
# Identities: signing keys of parties and coordinators, and key agreement between two parties.
#
# Every identity is derived from a root key of 32 bytes, so a party has nothing more to keep than the key next to its ledger. The
# public key stands in the party's card and so in the hash of every plan: a study pins its participants.


@dataclass(frozen=True, slots=True)
class Identity:
    """The private half of a participant. Nothing of it is ever printed."""

    _root: bytes = field(repr=False)

    @property
    def _signer(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(_derive(self._root, b"identity"))

    @property
    def public(self) -> str:
        """Return the public key that verifies this identity's signatures, in hex."""
        return self._signer.public_key().public_bytes_raw().hex()

    def sign(self, *parts: bytes) -> str:
        """Return an Ed25519 signature over length-prefixed parts, in hex."""
        return self._signer.sign(_joined(parts)).hex()

    def agreement_key(self, context: bytes) -> str:
        """Return the public half of this identity's X25519 key for one context (a plan), in hex."""
        return _agreement(self._root, context).public_key().public_bytes_raw().hex()

    def shared_key(self, context: bytes, other: str, *purpose: bytes) -> bytes:
        """32 bytes that only this identity and the holder of the agreement key ``other`` can compute (X25519, HKDF-SHA-256)."""
        try:
            secret = _exchanged(self._root, context, other)
        except ValueError:  # not 32 bytes, or a point of small order
            raise ProtocolError("a key-agreement key that is not a valid X25519 public key") from None
        return _derive(secret, b"shared", context, *purpose)


def _agreement(root: bytes, context: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(_derive(root, b"agreement", context))


@lru_cache(maxsize=256)  # two parties share one secret in all rounds of a plan, and every round derives its own keys from it
def _exchanged(root: bytes, context: bytes, other: str) -> bytes:
    return _agreement(root, context).exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other)))


def verify(public: str, signature: str, *parts: bytes) -> None:
    """Refuse a signature that the holder of ``public`` did not make over exactly these parts."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), _joined(parts))
    except (ValueError, InvalidSignature):
        raise ProtocolError("a signature that does not belong to this message and this sender") from None


def _derive(secret: bytes, *purpose: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt=None, info=b"unpooled/1 " + _joined(purpose)).derive(secret)


def _joined(parts: tuple[bytes, ...]) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


# --- Keeper ----------------------------------------------------------------------------------------------------------------
# Where a party keeps what never leaves it (its own coefficients).

#: What the row map of linked parties is kept as, under its digest.
ROW_MAP = "link_rows"
#: And beside it the digest of the data whose rows it names.
MAP_DATA = "link_data"


class Keeper(Protocol):
    """A store of arrays by plan and name."""

    def keep(self, plan: str, name: str, values: NDArray[Any]) -> None:
        """Store one value."""
        ...

    def kept(self, plan: str, name: str) -> NDArray[Any]:
        """Return one stored value."""
        ...

    def has(self, plan: str, name: str) -> bool:
        """Return True if there is a value of this name."""
        ...


class MemoryKeeper:
    """Kept values of an in-process party."""

    def __init__(self, values: Mapping[tuple[str, str], NDArray[Any]] | None = None) -> None:
        self._values: dict[tuple[str, str], NDArray[Any]] = dict(values or {})

    def keep(self, plan: str, name: str, values: NDArray[Any]) -> None:
        """Store one value."""
        self._values[plan, name] = values

    def kept(self, plan: str, name: str) -> NDArray[Any]:
        """Return one stored value."""
        if (plan, name) not in self._values:
            msg = f"nothing named {name!r} is kept for plan {plan[:16]}"
            raise UsageError(msg)
        return self._values[plan, name]

    def has(self, plan: str, name: str) -> bool:
        """Return True if there is such a value."""
        return (plan, name) in self._values

    def items(self) -> ItemsView[tuple[str, str], NDArray[Any]]:
        """Return everything kept, by (plan, name)."""
        return self._values.items()
