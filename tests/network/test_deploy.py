"""docs/deploy.md: its files are written and its commands run, as they stand there, for three organisations on loopback."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from worlds import free_ports

pytestmark = [pytest.mark.network, pytest.mark.network_slow, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs/deploy.md"
NAMES = ("north", "coast", "city")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def shell(line: str, folder: Path, code: int = 0) -> str:
    """One command of the page in a shell, with this checkout's ``unpooled`` first on the path."""
    path = f'export PATH="{Path(sys.executable).parent}:$PATH"; '
    done = subprocess.run(["bash", "-c", path + line], cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_page_works_as_it_stands(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in NAMES:
        frame = {"age": rng.uniform(20, 90, 300), "smoker": rng.choice(["never", "former", "current"], 300).tolist()}
        pl.DataFrame(frame).write_csv(tmp_path / f"{name}.csv")
    network, study = blocks("toml")
    port, admin_port = free_ports()
    (tmp_path / "network.toml").write_text(network.replace("8002", str(port)).replace("8003", str(admin_port)))
    commands = [line for block in blocks("bash") for line in block.strip().splitlines()]
    install, provision, init, link, start, check, doctor, user_doctor, run = commands
    assert "whl[network]" in install  # is what this test runs in
    key = re.search("[0-9a-f]{64}", shell(provision, tmp_path))
    assert key is not None
    (tmp_path / "study.toml").write_text(study.replace("PASTE THE KEY THAT PROVISION PRINTED", key[0]))
    for name in NAMES:
        shell(init.replace("north", name), tmp_path)
        shell(link.replace("north", name), tmp_path)
    assert start == "unpooled network start kits/north"
    unpooled = Path(sys.executable).parent / "unpooled"
    kits = [tmp_path / "kits" / name for name in ("localhost", *NAMES)]
    started = [subprocess.Popen([unpooled, "network", "start", kit], cwd=tmp_path, stdout=subprocess.PIPE) for kit in kits]
    try:
        for name in NAMES:
            assert "Approved" in shell(check.replace("north", name), tmp_path)
        until = time.monotonic() + 90
        while subprocess.run(
            ["bash", "-c", f"{unpooled.parent}/{user_doctor}"], cwd=tmp_path, capture_output=True, check=False
        ).returncode:
            assert time.monotonic() < until
            time.sleep(1)
        assert "PROBLEM" not in shell(doctor, tmp_path)
        assert "pooled" in shell(run, tmp_path)
        assert (tmp_path / "study.run/result.json").is_file()
        assert "run here before" in _failing(run, tmp_path)
        shell(run + " --resume", tmp_path)
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(timeout=40) for process in started]
        for process in started:
            process.stdout.close()
    assert codes == [0, 0, 0, 0]


def _failing(line: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", f"{Path(sys.executable).parent}/{line}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 2
    return " ".join(done.stderr.split())


def test_a_rehearsal_comes_up_and_stops_by_itself(tmp_path: Path) -> None:
    from worlds import make_rehearsal

    made = make_rehearsal(tmp_path, "describe")
    unpooled = Path(sys.executable).parent / "unpooled"
    command = [unpooled, "network", "up", made.kits, "--exit-after", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "up: localhost, city, coast, north" in done.stdout
    assert "all stopped" in done.stdout
