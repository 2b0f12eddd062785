"""From three files of different people in different orders to predictions, over a network: linked, fitted, predicted, reported.

A study of linked rows is bound to the name of their row map, and noise to the study. So the comparison is with parties that hold the same keys and files
whose rows somebody put in order by hand, said to be those of that row map: the same plan, and then everything must be the same bits.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from worlds import ANALYST, command, free_ports, moved

from unpooled.network.kits import Kit, provision
from unpooled.network.processes import up
from unpooled.privacy.bounds import Column
from unpooled.privacy.unit import Target
from unpooled.protocol.identity import MAP_DATA, ROW_MAP
from unpooled.study.files import read_study
from unpooled.study.party import create_party, keeper_of, open_party
from unpooled.study.run import compile_study, run_study

pytestmark = [pytest.mark.network, pytest.mark.network_slow, pytest.mark.timeout(600)]
pytest.importorskip("rbcl", reason="record linkage needs unpooled[psi]")

NAMES = ("clinic", "laboratory", "registry")
COLUMNS = {
    "clinic": (Column("age", 0.0, 100.0), Column("pressure", 70.0, 230.0)),
    "laboratory": tuple(Column(f"marker{j}", -4.0, 4.0) for j in range(4)),
    "registry": (Column("income", 0.0, 9.0), Column("region", 0.0, 1.0)),
}
PRIVACY = "\n[privacy]\nepsilon = 4.0\ndelta = 1e-6\nunit = 'attribute'\n"
RNG = np.random.default_rng(12)


def people(names: list[str]) -> dict[str, pl.DataFrame]:
    """What each party could hold of these people."""
    n = len(names)
    age, markers = RNG.uniform(20, 90, n), RNG.normal(0, 1, (n, 4)).clip(-4, 4)
    y = age / 30 + markers[:, 0] - markers[:, 2] + RNG.normal(0, 0.1, n)
    return {
        "clinic": pl.DataFrame({"patient": names, "age": age, "pressure": RNG.uniform(90, 200, n), "y": y}),
        "laboratory": pl.DataFrame({"patient": names, **{f"marker{j}": markers[:, j] for j in range(4)}, "y": y}),
        "registry": pl.DataFrame({"patient": names, "income": RNG.uniform(0, 9, n), "region": RNG.uniform(0, 1, n)}),
    }


def references(folder: Path, below: str) -> str:
    return "".join(f'\n[[party]]\ncard = "{folder / name}/{below}{name}.card.toml"\n' for name in NAMES)


def approve(folder: Path, study: Path, below: str) -> None:
    for name in NAMES:
        command("party", "check", str(study), "--config", str(folder / name / f"{below}party.toml"), "--approve")


def use(kits: Path, folder: Path, below: str) -> None:
    """Each party links this party file into its kit."""
    for name in NAMES:
        link = kits / name / "local/party.toml"
        link.unlink(missing_ok=True)
        link.symlink_to(folder / name / f"{below}party.toml")


def kept(folder: Path, plan: str) -> dict[str, dict[str, tuple[str, bytes]]]:
    found: dict[str, dict[str, tuple[str, bytes]]] = {}
    for name in NAMES:
        keeper = keeper_of(folder / name / "party.toml")
        held = {key: keeper.kept(plan, key) for key in keeper.names(plan)}
        found[name] = {key: (values.dtype.str, values.tobytes()) for key, values in held.items()}
    return found


def by_hand(pristine: Path, linked: Path, to: Path, order: list[str], ids: str) -> None:
    """The organisations as they were before anything ran, whose files somebody put in this order, row by row."""
    shutil.copytree(pristine, to)
    moved(to)
    for name in NAMES:
        frame = pl.read_csv(to / name / "data.csv", schema_overrides={"patient": pl.String})
        place = {patient: row for row, patient in enumerate(frame["patient"])}
        frame[[place[patient] for patient in order]].write_csv(to / name / "data.csv")
        with open_party(to / name / "party.toml") as party:
            digest = party.table.digest
        keeper = keeper_of(to / name / "party.toml")
        keeper.keep(ids.removeprefix("psi:"), ROW_MAP, np.arange(len(order)))
        keeper.keep(ids.removeprefix("psi:"), MAP_DATA, np.frombuffer(digest, dtype=np.uint8))
        shutil.copytree(linked / name / "linked", to / name / "linked")


def test_from_three_files_of_other_people_to_predictions_and_reports(tmp_path: Path) -> None:
    common, parties, kits = [f"both-{k:03d}" for k in range(60)], tmp_path / "parties", tmp_path / "kits"
    held = people([*common, *(f"single-{k:03d}" for k in range(40))])
    for k, name in enumerate(NAMES):
        own = RNG.permutation([*range(60), *range(60 + 9 * k, 60 + 9 * k + 15)])  # people in one file, in two, and in all
        home = parties / name
        home.mkdir(parents=True)
        held[name][own.tolist()].write_csv(home / "data.csv")
        labels = () if name == "registry" else ("y",)
        create_party(home, name, home / "data.csv", COLUMNS[name], Target(40.0, 1e-5), "patient", labels, new_budget=True)
        config = home / "party.toml"
        config.write_text(config.read_text().replace('psi = "no"', 'psi = "intersection"'))
    shutil.copytree(parties, tmp_path / "pristine")
    port, admin = free_ports()
    lines = [
        "[network]",
        'name = "linking"',
        'server = "localhost"',
        f'analyst = "{ANALYST}"',
        f"port = {port}",
        f"admin_port = {admin}",
    ]
    for name in NAMES:
        lines += ["[[party]]", f'name = "{name}"', f'config = "parties/{name}/party.toml"']
    (tmp_path / "network.toml").write_text("\n".join(lines) + "\n")
    coordinator = provision(tmp_path / "network.toml", kits)
    user = str(Kit.of(kits / ANALYST).folder)
    link, fit, predict = (tmp_path / f"{word}.toml" for word in ("link", "pride", "predict"))
    link.write_text(f'[study]\nmodel = "link"\ncoordinator = "{coordinator}"\n{references(parties, "")}')

    with up(kits):
        approve(parties, link, "")
        said = command("run", str(link), "--network", user, "--out", str(tmp_path / "link.run"))
        assert "60 people are at every party" in said
        for name in NAMES:
            told = command("link", str(link), "--config", str(parties / name / "party.toml"), "--json")
        ids = json.loads(told)["ids"]

        fit.write_text(
            f'[study]\nmodel = "pride"\ncoordinator = "{coordinator}"\nids = "{ids}"\n\n[parameters]\nresponse = "y"\nsketch_dim = 2\n'
            f"{PRIVACY}{references(parties, 'linked/')}"
        )
        approve(parties, fit, "linked/")
        use(kits, parties, "linked/")
        said = command("run", str(fit), "--force", "--network", user, "--out", str(tmp_path / "fit.run"))
        assert "told every party, without noise, which of its ids all parties hold" in said

        fresh = people([f"new-{k:02d}" for k in range(12)])
        for name in NAMES:
            fresh[name].drop("y", strict=False).write_csv(parties / name / "fresh.csv")
            # From the linked party file: new rows are not those of its row map.
            words = ("--config", str(parties / name / "linked/party.toml"), "--folder", str(parties / name / "new"))
            command("party", "rows", str(parties / name / "fresh.csv"), *words)
        cards = [word for name in NAMES for word in ("--card", str(parties / name / f"new/{name}.card.toml"))]
        command("new", "pride", "--fitted", str(fit), *cards, "--out", str(predict))
        assert f'coordinator = "{coordinator}"' in predict.read_text()
        approve(parties, predict, "new/")
        use(kits, parties, "new/")
        command("run", str(predict), "--force", "--network", user, "--out", str(tmp_path / "predict.run"))

    for run in ("link.run", "fit.run", "predict.run"):
        assert "written" in command("report", str(tmp_path / run))
        page = (tmp_path / run / "report.html").read_text()
        assert "both-0" not in page
        assert "single-0" not in page
    first = str(parties / "clinic/linked/party.toml")
    assert "written" in command("report", str(fit), "--config", first)
    assert "age" in command("party", "show", str(fit), "--config", first)
    export = tmp_path / "predictions.csv"
    command("party", "export", str(predict), "--config", str(parties / "clinic/new/party.toml"), "--out", str(export))
    told = pl.read_csv(export)
    assert told["patient"].to_list() == fresh["clinic"]["patient"].to_list()
    assert np.corrcoef(told.to_series(1).to_numpy(), fresh["clinic"]["y"].to_numpy())[0, 1] > 0.2

    # The same with files that were put in order by hand.
    orders = []
    for name in NAMES:
        with open_party(parties / name / "linked/party.toml") as party:
            orders.append([str(one) for one in party.table.ids()])
    assert orders[0] == orders[1] == orders[2]
    assert sorted(orders[0]) == common
    plan, later = compile_study(read_study(fit)), compile_study(read_study(predict))
    swapped = [orders[0][1], orders[0][0], *orders[0][2:]]
    for twin, order in (("aligned", orders[0]), ("swapped", swapped)):
        copy = tmp_path / twin
        by_hand(tmp_path / "pristine", parties, copy, order, ids)
        same = copy / "pride.toml"
        same.write_text(fit.read_text().replace(str(parties), str(copy)))
        assert compile_study(read_study(same)).hash == plan.hash
        approve(copy, same, "linked/")
        _, outcome = run_study(same, [copy / name / "linked/party.toml" for name in NAMES], tmp_path / f"{twin}.run")
        equal = kept(copy, plan.hash) == kept(parties, plan.hash)
        assert equal is (twin == "aligned")  # the other one is the control: two people in each other's place are noticed
        if not equal:
            continue
        networked = json.loads((tmp_path / "fit.run/result.json").read_text())
        local = json.loads((tmp_path / f"{twin}.run/result.json").read_text())
        assert networked["result"] == local["result"]
        assert networked["communication"] == outcome.communication
        for name in NAMES:
            shutil.copytree(parties / name / "new", copy / name / "new")
            shutil.copy(parties / name / "fresh.csv", copy / name / "fresh.csv")
        predicting = tmp_path / f"predict-{twin}.toml"
        predicting.write_text(predict.read_text().replace("parties/", f"{twin}/"))
        assert compile_study(read_study(predicting)).hash == later.hash
        approve(copy, predicting, "new/")
        run_study(predicting, [copy / name / "new/party.toml" for name in NAMES], tmp_path / f"{twin}-predict.run")
        assert kept(copy, later.hash) == kept(parties, later.hash)
        again = copy / "predictions.csv"
        command("party", "export", str(predicting), "--config", str(copy / "clinic/new/party.toml"), "--out", str(again))
        assert again.read_bytes() == export.read_bytes()
