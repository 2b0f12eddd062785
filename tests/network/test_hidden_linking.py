"""A hidden link over a real network has the bits of the in-process run, and a resumed one sends the same again; each party then has a folder that names its places."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import polars as pl
import pytest
from worlds import ANALYST, command, free_ports, moved

from unpooled.linkage.hidden.places import places_of
from unpooled.network.kits import Kit, provision
from unpooled.network.processes import up
from unpooled.privacy.bounds import Column
from unpooled.privacy.unit import Target
from unpooled.study.files import read_study
from unpooled.study.link import map_of
from unpooled.study.party import create_helper, create_party, keeper_of
from unpooled.study.run import compile_study, run_study

pytestmark = [pytest.mark.network, pytest.mark.network_slow, pytest.mark.timeout(600)]
pytest.importorskip("rbcl", reason="record linkage needs unpooled[psi]")

NAMES = ("clinic", "lab", "matcher")


def organisations(root: Path) -> None:
    for name, people, column in (("clinic", range(30), "age"), ("lab", range(20, 70), "dose")):
        home = root / name
        home.mkdir(parents=True)
        frame = pl.DataFrame(
            {"patient": [*(f"c{k}" for k in people), None], column: [20.0 + k % 60 for k in people] + [44.0]}
        )
        frame.write_csv(home / "data.csv")
        columns = (Column(column, 0.0, 100.0),)
        create_party(home, name, home / "data.csv", columns, Target(9.0, 1e-5), "patient", new_budget=True, cap=80)
        config = home / "party.toml"
        text = config.read_text().replace('psi = "no"', 'psi = "hidden"').replace('joint = "no"', 'joint = "allowed"')
        config.write_text(text)
        command("party", "card", "--config", str(config))
    create_helper(root / "matcher", "matcher")


def approve(root: Path, study: Path) -> None:
    for name in NAMES:
        command("party", "check", str(study), "--config", str(root / name / "party.toml"), "--approve")


def later(root: Path, coordinator: str, to: Path) -> Path:
    """A linear regression of the people in common, over the cards of the places."""
    cards = [root / "clinic/linked/clinic.card.toml", root / "lab/linked/lab.card.toml", root / "matcher/matcher.card.toml"]
    to.write_text(
        f'[study]\nmodel = "bayes"\ncoordinator = "{coordinator}"\n'
        '[parameters]\nresponse = "dose"\nsplit = "columns"\nmethod = "moments"\nexpected = 12\n'
        '[privacy]\nepsilon = 4.0\ndelta = 1e-6\nunit = "record"\n[trust]\nhelpers = ["matcher"]\n'
        + "".join(f'[[party]]\ncard = "{card}"\n' for card in cards)
    )
    return to


def homes(root: Path) -> list[Path]:
    return [root / "clinic/linked/party.toml", root / "lab/linked/party.toml", root / "matcher/party.toml"]


def test_rows_are_linked_hidden_over_a_network_as_in_process(tmp_path: Path) -> None:
    root, kits = tmp_path / "parties", tmp_path / "kits"
    organisations(root)
    shutil.copytree(root, tmp_path / "pristine")
    port, admin = free_ports()
    lines = ["[network]", 'name = "hidden"', 'server = "localhost"', f'analyst = "{ANALYST}"']
    lines += [f"port = {port}", f"admin_port = {admin}"]
    for name in NAMES:
        lines += ["[[party]]", f'name = "{name}"', f'config = "parties/{name}/party.toml"']
    (tmp_path / "network.toml").write_text("\n".join(lines) + "\n")
    coordinator = provision(tmp_path / "network.toml", kits)
    user, study = str(Kit.of(kits / ANALYST).folder), tmp_path / "link.toml"
    cards = [word for name in NAMES for word in ("--card", str(root / name / f"{name}.card.toml"))]
    command("new", "link", "--hidden", *cards, "--epsilon", "2", "--out", str(study))
    study.write_text(study.read_text().replace('model = "link"', f'model = "link"\ncoordinator = "{coordinator}"'))
    with up(kits):
        approve(root, study)
        said = command("run", str(study), "--network", user, "--out", str(tmp_path / "run"))
        assert "nobody learned who is in common" in said
        command("run", str(study), "--network", user, "--out", str(tmp_path / "again"), "--resume")
    networked = json.loads((tmp_path / "run/result.json").read_text())
    assert networked["result"] == json.loads((tmp_path / "again/result.json").read_text())["result"]
    plan, found = compile_study(read_study(study)), {}
    for name, other in (("clinic", "lab"), ("lab", "clinic")):
        config = root / name / "party.toml"
        command("link", str(study), "--config", str(config))
        assert f'linked = "{networked["result"]["ids"]}"' in (config.parent / "linked/party.toml").read_text()
        found[name] = places_of(keeper_of(config), map_of(config, plan))[other]
    shared = set(found["clinic"].rows.tolist()) & set(found["lab"].rows.tolist()) - {-1}
    assert shared == set(found["clinic"].rows[20:30].tolist())

    # The same in this process, over the organisations as they were: the same bits.
    shutil.copytree(tmp_path / "pristine", tmp_path / "copy")
    moved(tmp_path / "copy")
    same = tmp_path / "same.toml"
    same.write_text(study.read_text().replace(f"{root}/", f"{tmp_path}/copy/").replace("parties/", "copy/"))
    assert compile_study(read_study(same)).hash == plan.hash
    approve(tmp_path / "copy", same)
    _, outcome = run_study(same, [tmp_path / "copy" / name / "party.toml" for name in NAMES], tmp_path / "local")
    assert msgspec.json.decode(msgspec.json.encode(outcome.result)) == networked["result"]
    assert outcome.communication == networked["communication"]
    again = places_of(keeper_of(tmp_path / "copy/lab/party.toml"), plan_name := networked["result"]["ids"])["clinic"]
    assert again.rows.tolist() == found["lab"].rows.tolist()
    assert plan_name == found["lab"].name

    # A study of the people in common, over the network by the linked files and by the places that the helper kept, and in this process: the same bits.
    fit = later(root, coordinator, tmp_path / "fit.toml")
    for name in NAMES[:2]:
        link = kits / name / "local/party.toml"
        link.unlink()
        link.symlink_to(root / name / "linked/party.toml")
    with up(kits):
        for config in homes(root):
            command("party", "check", str(fit), "--config", str(config), "--approve")
        command("run", str(fit), "--network", user, "--out", str(tmp_path / "fit.run"), "--force")
    fitted = json.loads((tmp_path / "fit.run/result.json").read_text())
    for name in NAMES[:2]:
        command("link", str(same), "--config", str(tmp_path / "copy" / name / "party.toml"))
    here = later(tmp_path / "copy", coordinator, tmp_path / "here.toml")
    assert compile_study(read_study(here)).hash == compile_study(read_study(fit)).hash
    for config in homes(tmp_path / "copy"):
        command("party", "check", str(here), "--config", str(config), "--approve")
    _, outcome = run_study(here, homes(tmp_path / "copy"), tmp_path / "fit.local")
    assert msgspec.json.decode(msgspec.json.encode(outcome.result)) == fitted["result"]
    assert outcome.communication == fitted["communication"]
