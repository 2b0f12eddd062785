"""A model's case as organisations on disk: data files, party files, ledgers, cards, a study, and the kits of a network."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from cases import CASES, Case

from unpooled.cli import main as cli
from unpooled.models import load
from unpooled.network.kits import Kit, provision
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.plan import Plan, Study
from unpooled.privacy.table import BoundedTable
from unpooled.privacy.unit import Target, Unit
from unpooled.protocol.identity import Identity
from unpooled.protocol.local import Outcome, drive, in_process
from unpooled.study.files import read_card, write_card
from unpooled.study.party import DiskKeeper, create_helper, create_party, open_party
from unpooled.study.run import compile_study

ANALYST = "analyst@study.example"

#: Copies of the organisations before anything ran.
PRISTINE = "pristine"


def moved(folder: Path) -> None:
    """Tell the ledgers of a copied world that they were moved."""
    for ledger in folder.rglob("*.ledger"):
        Ledger.open(ledger, moved=True).close()


@dataclass
class World:
    """The organisations of one case under ``root``; every plan that a test runs is approved by all of them."""

    root: Path
    case: Case
    study: Study
    kept_in_process: dict[str, dict[str, str]] = field(default_factory=dict)

    def party(self, name: str) -> Path:
        return self.root / name / "party.toml"

    @property
    def names(self) -> list[str]:
        return [card.name for card in self.study.members]

    def variant(self, **changes) -> Study:
        return msgspec.structs.replace(self.study, **changes)

    def approve(self, study: Study, *names: str) -> Plan:
        plan = compile_study(study)
        for name in names or self.names:
            with open_party(self.party(name)) as party:
                party.ledger.approve(plan.hash)
        return plan

    def in_process(self, study: Study) -> Outcome:
        """The same study in this process, over copies of the organisations as they were before anything ran."""
        copy = self.root.parent / f"{self.root.name}-in-process" / compile_study(study).hash[:16] / self.study.model
        if not copy.exists():
            shutil.copytree(self.root / PRISTINE, copy)
            moved(copy)
        twin = World(copy, self.case, self.study)
        twin.approve(study)
        with contextlib.ExitStack() as stack:
            parties = {name: stack.enter_context(open_party(twin.party(name))) for name in self.names}
            outcome = drive(load(study.model), compile_study(study), in_process(parties))
        self.kept_in_process = kept_digests(twin, study)
        return outcome

    def entries(self, name: str, study: Study) -> list:
        """The charges of one study in a party's ledger."""
        plan = compile_study(study).hash
        with open_party(self.party(name)) as party:
            return [entry for entry in party.ledger.entries() if entry.kind == "charge" and entry.plan == plan]

    def charges(self, study: Study) -> dict[str, int]:
        return {name: len(self.entries(name, study)) for name in self.names}

    def planned(self, study: Study) -> dict[str, int]:
        releases = compile_study(study).releases
        return {name: sum(r.count for r in releases if r.party == name) for name in self.names}

    def fully_charged(self, study: Study) -> bool:
        """Every planned release was debited once; of those that are limited together some are left over, none is too many."""
        charges, planned = self.charges(study), self.planned(study)
        if any(release.exposure.together for release in compile_study(study).releases):
            helpers = {card.name for card in study.helpers}
            return all(charges[name] == 0 if name in helpers else 0 < charges[name] <= planned[name] for name in planned)
        return charges == planned

    def write_study(self, path: Path, study: Study) -> Path:
        """The study as the file that its author writes."""
        model = [] if study.contained else [f'model = "{study.model}"']
        lines = ["[study]", *model, f"run = {study.run}", f'coordinator = "{study.coordinator}"']
        if study.simulation_seed is not None:
            lines.append(f"simulation_seed = {study.simulation_seed}")
        if study.ids:
            lines.append(f'ids = "{study.ids}"')
        lines += ["[privacy]", f"epsilon = {study.epsilon!r}", f"delta = {study.delta!r}", f'unit = "{study.unit}"']
        helped = [f"helpers = {json.dumps([card.name for card in study.helpers])}"] if study.helpers else []
        if study.trust or helped:
            lines += ["[trust]", *helped, *(f"{role} = {json.dumps(trusted)}" for role, trusted in study.trust.items())]
        if not study.contained:
            lines += ["[parameters]", *(f"{key} = {toml(value)}" for key, value in study.parameters.items())]
        for one in study.contained:
            lines += ["[[analysis]]", *(f"{key} = {toml(value)}" for key, value in one.items() if key != "parameters")]
            lines += ["[analysis.parameters]", *(f"{key} = {toml(v)}" for key, v in one.get("parameters", {}).items())]
        for name in self.names:
            lines += ["[[party]]", f'card = "{self.root / name / f"{name}.card.toml"}"']
        path.write_text("\n".join(lines) + "\n")
        return path


def make_world(
    root: Path, case: Case, coordinator: str, *, ids: dict[str, list[str]] | None = None, studies: int = 3
) -> World:
    """A study's parties on disk, with budgets for so many like it."""
    cards = []
    for card in case.study.parties:
        home, table = root / card.name, case.tables[card.name]
        home.mkdir(parents=True)
        values = {name: table[name].tolist() for name in table.names}
        columns = {name: [None if v is None or str(v) == "nan" else v for v in column] for name, column in values.items()}
        if ids is not None:
            columns["person"] = ids[card.name]
        budget = Target(case.study.epsilon * studies, case.study.delta, Unit(case.study.unit))
        label = "person" if ids is not None else None
        together: dict[str, Any] = {}
        if card.household is not None:
            assert isinstance(table, BoundedTable)
            columns[card.household.column] = table._owners.tolist()
            declared = card.household
            together = {
                "household": declared.column,
                "household_rows": declared.rows,
                "household_elsewhere": declared.elsewhere,
            }
        pl.DataFrame(columns).write_parquet(home / "data.parquet")
        create_party(
            home, card.name, home / "data.parquet", card.columns, budget, label, card.labels, new_budget=True, **together
        )
        config = home / "party.toml"
        text = config.read_text().replace("allow_simulation = false", "allow_simulation = true")
        text = text.replace('joint = "no"', 'joint = "allowed"') if case.study.helpers else text
        config.write_text(text.replace("trust = []", f"trust = {json.dumps(sorted(set(case.study.trust.values())))}"))
        with open_party(config) as party:
            (home / f"{card.name}.card.toml").write_text(write_card(party.declared))
        cards.append(read_card(home / f"{card.name}.card.toml"))
        shutil.copytree(home, root / PRISTINE / card.name)
    helpers = []
    for card in case.study.helpers:
        home = root / card.name
        config, own = create_helper(home, card.name)
        config.write_text(config.read_text() + "allow_simulation = true\n")
        helpers.append(read_card(own))
        shutil.copytree(home, root / PRISTINE / card.name)
    study = msgspec.structs.replace(case.study, parties=tuple(cards), helpers=tuple(helpers), coordinator=coordinator)
    return World(root, case, study)


def toml(value: object) -> str:
    """A value in TOML: JSON but for tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(part)}" for key, part in value.items()) + "}"
    return json.dumps(value)


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


@dataclass
class Rehearsal:
    """The kits of one network, and the worlds of the cases whose parties are on it."""

    kits: Path
    worlds: dict[str, World]

    @property
    def user(self) -> Kit:
        return Kit.of(self.kits / ANALYST)

    @property
    def port(self) -> int:
        return Kit.of(self.kits / "localhost").address[1]

    def run(self, world: World, study: Study, out: Path, *words: str, code: int = 0) -> str:
        """``unpooled run STUDY --network KIT`` with its exit code asserted; returns what it printed."""
        out.mkdir(parents=True, exist_ok=True)
        file = world.write_study(out / "study.toml", study)
        where = ("--network", str(self.user.folder), "--out", str(out / "run"))
        return command("run", str(file), "--force", *where, *words, code=code)


def make_rehearsal(root: Path, *models: str, ids: dict[str, list[str]] | None = None, studies: int = 3) -> Rehearsal:
    root.mkdir(parents=True, exist_ok=True)
    port, admin_port = free_ports()
    names = [card.name for model in models for card in CASES[model]().study.members]
    lines = ["[network]", 'name = "rehearsal"', 'server = "localhost"', f'analyst = "{ANALYST}"']
    lines += [f"port = {port}", f"admin_port = {admin_port}"]
    for name in names:
        lines += ["[[party]]", f'name = "{name}"', f'config = "parties/{name}/party.toml"']
    (root / "network.toml").write_text("\n".join(lines) + "\n")
    public = provision(root / "network.toml", root / "kits")
    worlds = {model: make_world(root / "parties", CASES[model](), public, ids=ids, studies=studies) for model in models}
    return Rehearsal(root / "kits", worlds)


def command(*words: str, code: int = 0) -> str:
    """Run the command in this process, as the console script does; returns everything it printed."""
    out, argv = io.StringIO(), sys.argv
    sys.argv = ["unpooled", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            cli.main()
        found = 0
    except SystemExit as end:
        found = end.code or 0
    finally:
        sys.argv = argv
    assert found == code, out.getvalue()
    return out.getvalue()


def kept_digests(world: World, study: Study) -> dict[str, dict[str, str]]:
    """Digests of what each party keeps on its disk for this study."""
    plan, found = compile_study(study).hash, {}
    for name in world.names:
        folder = world.root / name / f"{name}.ledger.kept"
        files = sorted(folder.glob(f"{plan[:32]}-*.npy"))
        keeper = DiskKeeper(folder)
        found[name] = {f.stem[33:]: _digest(keeper.kept(plan, f.stem[33:])) for f in files}
    return found


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(repr((values.dtype.str, values.shape)).encode() + values.tobytes()).hexdigest()


def identity_of(world: World, name: str) -> Identity:
    with Ledger.open(world.root / name / f"{name}.ledger") as ledger:
        return Identity(ledger.root_key)
