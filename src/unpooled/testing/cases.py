"""Cases: small studies with their data, over which every test of the contract runs, and parties that run them in this process."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import UsageError
from unpooled.models import load
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.noise import KeySource
from unpooled.privacy.policy import Policy
from unpooled.privacy.study import ALLOWED, TRUSTING
from unpooled.privacy.unit import ROWWISE, Adjacency, Target, Unit
from unpooled.protocol.conversation import OpenRequest
from unpooled.protocol.identity import Identity
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import encode
from unpooled.protocol.party import Party
from unpooled.protocol.transcript import Transcript
from unpooled.study.run import write_results

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from unpooled.privacy.plan import Study
    from unpooled.privacy.table import Table

#: Whether tests run at full size: statistics, audits and random searches; else they run the same assertions on less.
FULL = os.environ.get("UNPOOLED_FULL") == "1"


def sized(full: Any, reduced: Any) -> Any:
    """Return the size of what repeats: the full one if ``FULL``, else the reduced one."""
    return full if FULL else reduced


@dataclass(frozen=True)
class Case:
    """One small study and the tables of its parties, by the name of the case."""

    name: str
    study: Study
    tables: dict[str, Table]

    @property
    def model(self) -> str:
        """Return the row of the registry that the study asks for."""
        return self.study.row


#: A function that makes a case; a package may return the study and the tables alone.
Making = Callable[[], Case | tuple["Study", dict[str, "Table"]]]


def made(name: str, making: Making) -> Case:
    """Return the case of this name."""
    found = making()
    study, tables = (found.study, found.tables) if isinstance(found, Case) else found
    return Case(name, study, tables)


def cases_of(module: ModuleType) -> dict[str, Callable[[], Case]]:
    """Return the cases of a test module by name."""
    return {name: partial(made, name, making) for name, making in module.CASES.items()}


def forms_of(module: ModuleType) -> dict[str, Callable[[], Case]]:
    """Return the cases of a test module and the forms of studies in which other messages travel, by name."""
    return {name: partial(made, name, making) for name, making in {**module.CASES, **getattr(module, "FORMS", {})}.items()}


def units_of(study: Study) -> tuple[Unit, ...]:
    """Return the units under which a case is tried: those that every release prices; of cards that declare households that unit alone."""
    return (Unit.HOUSEHOLD,) if study.unit == Unit.HOUSEHOLD else ROWWISE


def variants_of(module: ModuleType) -> dict[str, Callable[[], Case]]:
    """Return every case under every unit, adjacency and way of its own that its model admits, by name."""
    found: dict[str, Callable[[], Case]] = {}
    for name, making in module.CASES.items():
        case = made(name, making)
        for k, way in enumerate(getattr(module, "WAYS", {}).get(name, [{}])):
            for unit, adjacency in itertools.product(units_of(case.study), Adjacency):
                merged = {**way, "parameters": {**case.study.parameters, **way.get("parameters", {})}}
                study = msgspec.structs.replace(case.study, unit=str(unit), adjacency=str(adjacency), **merged)
                try:
                    load(study.row).compile(study)
                except UsageError:  # not offered by this model
                    continue
                found[f"{name}-{k}-{unit}-{adjacency}"] = partial(Case, name, study, case.tables)
    return found


# --- parties, and runs in this process ---------------------------------------------------------------------------------------


def policy(case: Case, **changes: Any) -> Policy:
    """Return a policy whose budget is what the case's study asks for."""
    study = case.study
    rules = Policy(
        Target(study.epsilon, study.delta, Unit(study.unit)),
        trust=frozenset(study.trust.values()) | {who for one in study.contained for who in one.get("trust", {}).values()},
        allow_simulation=True,
        allow_in_process=True,
        approved=None,
        joint=ALLOWED,
        models=models_of(study),
    )
    return dataclasses.replace(rules, **changes)


def models_of(study: Study) -> frozenset[str]:
    """Return the names by which a policy lists the models of a study."""
    return frozenset(name for one in study.models for name in (one.model, one.row))


def parties(case: Case, rules: Policy | None = None) -> dict[str, Party]:
    """Return the parties of a case, with ledgers in memory whose keys are all zero."""
    people = {}
    for card in case.study.members:
        ledger = Ledger.in_memory(root_key=bytes(32))
        keys = KeySource(ledger.root_key)
        people[card.name] = Party(card.name, case.tables[card.name], card, ledger, keys, rules or policy(case), load)
    return people


def transcript_of(case: Case, people: dict[str, Party] | None = None) -> Transcript:
    """Return the transcript of a whole run of the case, by these parties or by new ones."""
    transcript = Transcript()
    model = load(case.model)
    drive(model, model.compile(case.study), in_process(people or parties(case)), transcript)
    return transcript


def open_message(case: Case, study: Study | None = None, claimed: str | None = None) -> bytes:
    """Return the message that opens the case's study, or another one, under the claimed hash."""
    plan = load(case.model).compile(study or case.study)
    maker = plan.maker or msgspec.UNSET
    return encode(claimed or plan.hash, "open", 0, OpenRequest(study or case.study, maker=maker))


def ran(folder: Path, study: Study, tables: dict[str, Table]) -> Path:
    """Run a study with keys of its own, and return the folder, which then holds what ``unpooled run`` leaves."""
    # Keys that are the same every time: the plan, and with it the noise of a simulation, follows from them.
    ledgers = {card.name: Ledger.in_memory(sha256(card.name.encode()).digest()) for card in study.members}
    keys = {name: Identity(ledger.root_key).public for name, ledger in ledgers.items()}
    # What a card of a file says of masked rows, which parties of one process are not asked.
    cards = [msgspec.structs.replace(card, key=keys[card.name], joint=card.joint or TRUSTING) for card in study.parties]
    helpers = [msgspec.structs.replace(card, key=keys[card.name]) for card in study.helpers]
    study = msgspec.structs.replace(study, parties=tuple(cards), helpers=tuple(helpers))
    model = load(study.row)
    plan, people = model.compile(study), {}
    for card in study.members:
        ledger = ledgers[card.name]
        people[card.name] = Party(
            card.name, tables[card.name], card, ledger, KeySource(ledger.root_key), Policy.in_process(), load
        )
    transcript = Transcript.open(folder / "transcript")
    outcome = drive(model, plan, in_process(people), transcript)
    transcript.close()
    write_results(folder, plan, outcome)
    return folder
