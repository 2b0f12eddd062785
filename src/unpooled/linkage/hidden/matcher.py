"""The helper of a hidden link: it matches pseudonyms that it can try nothing out on, draws places, seals them, and keeps no pseudonym.

Also what all members do alike: their first message, which ties keys and commitments to their cards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unpooled.errors import PlanMismatch, ProtocolError
from unpooled.linkage.hidden.matching import permutation, placed, shared
from unpooled.linkage.hidden.messages import Matched, MatchRequest
from unpooled.linkage.hidden.plan import MATCH
from unpooled.linkage.letters import Letters
from unpooled.linkage.messages import Hello, HelloReply, Relayed, SealedReply
from unpooled.privacy.noise import Stream
from unpooled.privacy.places import NAMES, set_of
from unpooled.protocol.identity import verify
from unpooled.protocol.messages import PSEUDONYM, Public, digest, encode_content
from unpooled.protocol.registry import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from unpooled.linkage.hidden.plan import HiddenLinkDesign
    from unpooled.privacy.plan import Plan
    from unpooled.protocol.context import Context

#: What letters of this protocol are about.
ABOUT = b"hidden link"


def hello_parts(plan: str, hello: Hello) -> tuple[bytes, ...]:
    """Return the parts that the signature of a first message covers."""
    words = (b"hidden hello", plan.encode(), hello.party.encode())
    return (*words, hello.agreement.encode(), hello.commitment.encode())


def hello_of(context: Context, commitment: str) -> HelloReply:
    """Return a member's first message: its key for sealed messages, and what it commits itself to."""
    hello = Hello(context.name, context.agreement_key, commitment, "")
    signature = context.attest(*hello_parts(context.plan.hash, hello))
    return HelloReply(Public(hello.agreement), Public(hello.commitment), Public(signature))


def check_hellos(context: Context, hellos: Sequence[Hello]) -> None:
    """Refuse first messages that are not of all members, or that their members did not sign."""
    members = context.plan.study.members
    if tuple(hello.party for hello in hellos) != tuple(card.name for card in members):
        raise PlanMismatch("lists are masked once every member of the study has said what it will send")
    for card, hello in zip(members, hellos, strict=True):
        verify(card.key, hello.signature, *hello_parts(context.plan.hash, hello))


def list_digest(plan: str, party: str, blob: bytes) -> bytes:
    """Return the digest of a party's list of pseudonyms, which nobody can try out who has not all of them."""
    return digest(b"hidden list", plan.encode(), party.encode(), blob)


def name_of(plan: Plan[HiddenLinkDesign], lists: Sequence[bytes]) -> str:
    """Return the name of the places: of the plan, which says the run, the number of places, and the lists."""
    totals = ",".join(map(str, plan.design.totals)).encode()
    return digest(b"hidden places", plan.hash.encode(), totals, *lists).hex()


def matched_parts(plan: str, name: str) -> tuple[bytes, ...]:
    """Return what the helper signs: the plan and the name of the places."""
    return b"hidden matched", plan.encode(), name.encode()


def _match(context: Context[HiddenLinkDesign], request: MatchRequest) -> SealedReply:
    letters, design = Letters(context, ABOUT), context.design
    if context.name != design.helper:
        raise PlanMismatch("pseudonyms are matched by the helper of the study alone")
    check_hellos(context, request.hellos)
    letters.keep("hellos", encode_content(request.hellos))
    if len(request.lists) != len(design.names):
        raise ProtocolError("another number of lists than the study has parties")
    blobs: dict[str, bytes] = {}
    lists: dict[str, list[bytes]] = {}
    for name, sealed in zip(design.names, request.lists, strict=True):
        blob = letters.open(Relayed(name, name, sealed.ciphertext, sealed.salt), "pseudonyms", name, name)
        found = [blob[k : k + PSEUDONYM] for k in range(0, len(blob), PSEUDONYM)]
        if len(blob) != PSEUDONYM * design.length(name) or len(set(found)) != len(found):
            msg = f"the list of {name!r} has another length than its cap gives, or a pseudonym twice: nothing is matched"
            raise ProtocolError(msg)
        blobs[name], lists[name] = blob, found
    digests = tuple(list_digest(context.plan.hash, name, blob) for name, blob in blobs.items())
    places = _placed(design, lists, lambda *words: context.secret(digest(b"hidden matching", *words, *digests)))
    name = name_of(context.plan, digests)
    _keep(context, name, digests, places)
    signature = context.attest(*matched_parts(context.plan.hash, name))
    answers = []
    for party in design.names:
        own = tuple(places[party, array].astype("<u4").tobytes() for array in design.arrays_of(party))
        answers.append(letters.seal(party, "places", context.name, encode_content(Matched(own, digests, signature))))
    return SealedReply(tuple(answers))


def _placed(
    design: HiddenLinkDesign, lists: dict[str, list[bytes]], secret: Callable[..., bytes]
) -> dict[tuple[str, int], np.ndarray]:
    """Return the places of every party's list in each of its arrays, by a secret of the helper's that depends on all lists."""
    common = shared(lists, design.hub, secret(b"several"))
    found = {}
    for array, (first, second) in enumerate(design.arrays):
        order = permutation(Stream(secret(b"array", str(array).encode())), design.totals[array])
        found[first, array], found[second, array] = placed(lists[first], lists[second], common[second], order)
    return found


def _keep(
    context: Context[HiddenLinkDesign], name: str, lists: Sequence[bytes], places: dict[tuple[str, int], np.ndarray]
) -> None:
    """Keep what later studies of these places need: of each party and array the set of places; and what it was of. No pseudonym is kept."""
    design = context.design
    kept = {set_of(design.names.index(p), a): np.sort(found) for (p, a), found in places.items()}
    kept[NAMES] = np.frombuffer("\n".join(design.names).encode(), dtype=np.uint8)
    kept["hidden_lists"] = np.frombuffer(b"".join(lists), dtype=np.uint8)
    kept["hidden_plan"] = np.frombuffer(bytes.fromhex(context.plan.hash), dtype=np.uint8)
    kept["hidden_run_and_caps"] = np.array([context.plan.study.run, *design.rows], dtype=np.int64)
    context.keep_places(name, kept)


def _once(plan: Plan) -> int:
    return int(plan.hides)


MATCHER_STEPS = (Step(MATCH, MatchRequest, SealedReply, _match, bulky=True, times=_once),)
