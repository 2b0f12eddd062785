"""The two text files of a helper, an organisation without data: its party file and its public card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import tomli_w

from unpooled.privacy.plan import HelperCard
from unpooled.study.files import read_card, read_party
from unpooled.study.rules import FileSection, HelperPolicy, rules_of
from unpooled.study.text import read_strictly, top_of


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
