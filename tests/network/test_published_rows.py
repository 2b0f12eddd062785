"""New rows of a published PRIDE study over a network: fitted and predicted by the commands of the sound form, the same bits as in one process."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from worlds import ANALYST, command, free_ports, moved

from unpooled.network.kits import Kit, provision
from unpooled.network.processes import up
from unpooled.privacy.bounds import Column
from unpooled.privacy.unit import Target, Unit
from unpooled.study.party import create_party
from unpooled.study.run import run_study

pytestmark = [pytest.mark.network, pytest.mark.network_slow, pytest.mark.timeout(600)]
NAMES = ("clinic", "laboratory")
STUDY = """\
[study]
model = "pride"
coordinator = "{coordinator}"

[parameters]
response = "y"
alpha = 3.0
noise_model = "plain"
sketch_dim = 2

[privacy]
epsilon = 20.0
delta = 0.05
unit = "attribute"
calibration = "published"
"""


def people(seed: int, count: int) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(seed)
    X = np.clip((rng.normal(size=(count, 1)) + rng.normal(size=(count, 6))) / 5, -1, 1)
    y, ids = X[:, 0] + X[:, 5] + 0.05 * rng.normal(size=count), [f"{seed}-{k}" for k in range(count)]
    return {
        name: pl.DataFrame({"patient": ids, **{f"{name[0]}{j}": X[:, 3 * k + j] for j in range(3)}, "y": y})
        for k, name in enumerate(NAMES)
    }


def references(folder: Path, below: str = "") -> str:
    return "".join(f'\n[[party]]\ncard = "{folder / name}{below}/{name}.card.toml"\n' for name in NAMES)


def approve(folder: Path, study: Path, below: str = "") -> None:
    for name in NAMES:
        command("party", "check", str(study), "--config", str(folder / f"{name}{below}/party.toml"), "--approve")


def new_rows(folder: Path) -> None:
    for name, frame in people(2, 40).items():
        frame.drop("y").write_csv(folder / name / "fresh.csv")
        config, fresh = folder / name / "party.toml", folder / name / "fresh.csv"
        command("party", "rows", str(fresh), "--config", str(config), "--folder", str(folder / f"{name}-new"))


def predictions(folder: Path, study: Path) -> dict[str, list[float]]:
    found = {}
    for name in NAMES:
        out = folder / f"{name}.csv"
        command("party", "export", str(study), "--config", str(folder / f"{name}-new/party.toml"), "--out", str(out))
        found[name] = pl.read_csv(out)["prediction"].to_list()
    return found


def test_new_rows_are_predicted_over_a_network_as_in_one_process(tmp_path: Path) -> None:
    parties, kits, twin = tmp_path / "parties", tmp_path / "kits", tmp_path / "twin"
    for name, frame in people(1, 300).items():
        home = parties / name
        home.mkdir(parents=True)
        frame.write_csv(home / "data.csv")
        declared = tuple(Column(column, -1.0, 1.0) for column in frame.columns[1:4])
        budget = Target(1000.0, 0.2, Unit.ATTRIBUTE)
        create_party(home, name, home / "data.csv", declared, budget, "patient", ("y",), new_budget=True)
        config = home / "party.toml"
        config.write_text(config.read_text().replace('calibrations = ["sound"]', 'calibrations = ["sound", "published"]'))
    shutil.copytree(parties, twin)
    moved(twin)
    port, admin = free_ports()
    lines = [
        "[network]",
        'name = "published"',
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
    fit, predict = tmp_path / "fit.toml", tmp_path / "predict.toml"
    fit.write_text(STUDY.format(coordinator=coordinator) + references(parties))
    new_rows(parties)
    with up(kits):
        approve(parties, fit)
        command("run", str(fit), "--force", "--network", user, "--out", str(tmp_path / "fit.run"))
        cards = [word for name in NAMES for word in ("--card", str(parties / f"{name}-new/{name}.card.toml"))]
        command("new", "pride", "--fitted", str(fit), *cards, "--out", str(predict))
        approve(parties, predict, "-new")
        for name in NAMES:
            link = kits / name / "local/party.toml"
            link.unlink(missing_ok=True)
            link.symlink_to(parties / f"{name}-new/party.toml")
        said = command("run", str(predict), "--force", "--network", user, "--out", str(tmp_path / "predict.run"))
    assert "nobody can say what the release costs" in " ".join(said.split())
    found, truth = predictions(parties, predict), people(2, 40)["clinic"]["y"].to_numpy()
    assert all(np.corrcoef(values, truth)[0, 1] > 0.4 for values in found.values())

    new_rows(twin)
    for study, below in ((fit, ""), (predict, "-new")):
        copy = tmp_path / f"twin-{study.name}"
        copy.write_text(study.read_text().replace("parties/", "twin/"))
        approve(twin, copy, below)
        run_study(copy, [twin / f"{name}{below}/party.toml" for name in NAMES], tmp_path / f"twin-{study.stem}.run")
    assert predictions(twin, copy) == found
