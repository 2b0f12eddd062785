"""Identities: signatures and agreed keys bind who speaks, to whom, and about what."""

from __future__ import annotations

import pytest

from unpooled.errors import ProtocolError, UsageError
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card
from unpooled.protocol.identity import Identity, verify

CLINIC, LAB = Identity(b"c" * 32), Identity(b"l" * 32)


def test_a_signature_holds_for_its_parts_and_its_signer_only() -> None:
    signature = CLINIC.sign(b"plan", b"body")
    verify(CLINIC.public, signature, b"plan", b"body")
    for public, parts in (
        (LAB.public, (b"plan", b"body")),
        (CLINIC.public, (b"plan", b"bodY")),
        (CLINIC.public, (b"planb", b"ody")),
    ):
        with pytest.raises(ProtocolError, match="does not belong"):
            verify(public, signature, *parts)
    for public, text in ((CLINIC.public, "zz"), ("", signature), (CLINIC.public, signature[:-2])):
        with pytest.raises(ProtocolError, match="does not belong"):
            verify(public, text, b"plan", b"body")


def test_two_parties_agree_on_a_key_that_depends_on_everything() -> None:
    context = b"plan"
    ours = CLINIC.shared_key(context, LAB.agreement_key(context), b"release", b"0")
    assert ours == LAB.shared_key(context, CLINIC.agreement_key(context), b"release", b"0")
    assert len(ours) == 32
    others = {
        CLINIC.shared_key(context, LAB.agreement_key(context), b"release", b"1"),
        CLINIC.shared_key(b"another", LAB.agreement_key(b"another"), b"release", b"0"),
        CLINIC.shared_key(context, CLINIC.agreement_key(context), b"release", b"0"),
    }
    assert len(others | {ours}) == 4


@pytest.mark.parametrize("key", ["", "zz", "00" * 31, "00" * 32])
def test_a_key_that_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(ProtocolError, match="X25519"):
        CLINIC.shared_key(b"plan", key)


def test_private_keys_are_not_printed() -> None:
    assert repr(CLINIC) == "Identity()"


@pytest.mark.guarantee
def test_a_card_takes_only_a_public_key() -> None:
    columns = (Column("age", 0.0, 1.0),)
    assert Card("clinic", 3, columns, key=CLINIC.public).key == CLINIC.public
    with pytest.raises(UsageError, match="public key"):
        Card("clinic", 3, columns, key=CLINIC.public.upper())
