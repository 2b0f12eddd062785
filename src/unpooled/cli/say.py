"""Print data for machines, and the examples at the end of every help: all commands do both alike."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Command -> what people type.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "audit": (
        "unpooled audit study.toml",
        "unpooled audit study.toml --canaries 100",
        "unpooled audit study.toml --rows 20 --json",
    ),
    "contrast": (
        'unpooled contrast study.run "ward: b - a"',
        'unpooled contrast study.run "ward: b - a, c - a" --exponentiate --json',
    ),
    "crate": (
        "unpooled crate study.run --out study.crate",
        "unpooled crate study.run --config north/party.toml --dossier study.dossier --out study.crate",
    ),
    "demo": ("unpooled demo", "unpooled demo --epsilon 0.5 --out tour"),
    "dossier": (
        "unpooled dossier study.toml",
        "unpooled dossier study.toml --config north/party.toml --audit --out north-dossier",
        "unpooled dossier study.toml --run study.run --json",
    ),
    "doctor": ("unpooled doctor kits/north", "unpooled doctor --study study.toml --config north/party.toml"),
    "link": (
        "unpooled link link.toml --party clinic/party.toml --party lab/party.toml",
        "unpooled link link.toml --config clinic/party.toml",
    ),
    "new": (
        "unpooled new bayes",
        "unpooled new glm --formula 'age * ward + log(dose)' --card north/north.card.toml --card south/south.card.toml",
        "unpooled new pls --calibration published --card mill/mill.card.toml --out study.toml",
        "unpooled new pride --card clinic/clinic.card.toml --card lab/lab.card.toml --out pride.toml",
        "unpooled new pride --fitted study.toml --card clinic-new/clinic.card.toml --card lab-new/lab.card.toml --out predict.toml",
    ),
    "plan": (
        "unpooled plan study.toml",
        "unpooled plan study.toml --utility",
        "unpooled plan study.toml --preview --out preview.html",
        "unpooled plan study.toml --json",
    ),
    "predict": (
        "unpooled predict study.run --data new.csv",
        "unpooled predict study.run --data new.csv --id patient --csv predicted.csv",
    ),
    "propose": (
        "unpooled propose study.toml --network kits/analyst",
        "unpooled propose study.toml --network kits/analyst --by 'Dr. A. Example'",
    ),
    "register": (
        "unpooled register study.toml --published 2026-11-30 --type 'Summary statistics'",
        "unpooled register study.toml --run study.run --published 2026-11-30 --type 'Machine learning model' --out study.yaml",
    ),
    "report": ("unpooled report study.run", "unpooled report study.toml --config north/party.toml"),
    "result": ("unpooled result study.run", "unpooled result study.run --csv"),
    "serve": ("unpooled serve --stdio",),
    "schema": ("unpooled schema", "unpooled schema result", "unpooled schema party ledger"),
    "run": (
        "unpooled run study.toml --party north/party.toml --party south/party.toml",
        "unpooled run study.toml --network kits/analyst --resume",
    ),
    "party init": (
        "unpooled party init patients.csv --name north --id patient --column age=0:100 --column smoker=never,former,current",
        "unpooled party init blood.xlsx --name lab --folder lab --column 'crp=0:300;absent' --label survival",
        "unpooled party init spectra.csv --name coast --separator ';' --decimal , --column 'nm*=0:3' --column fat=0:60",
        "unpooled party init patients.csv --name north --template",
        "unpooled party init --config party.toml",
    ),
    "party check": (
        "unpooled party check study.toml --config north/party.toml",
        "unpooled party check study.toml --config north/party.toml --approve",
    ),
    "party console": (
        "unpooled party console --config north/party.toml",
        "unpooled party console --config north/party.toml --read-only",
    ),
    "party ledger": (
        "unpooled party ledger --config north/party.toml",
        "unpooled party ledger --config north/party.toml --json",
        "unpooled party ledger --config north/party.toml --export ledger.json",
    ),
    "party withdraw": ("unpooled party withdraw study.toml --config north/party.toml",),
    "party card": ("unpooled party card --config north/party.toml",),
    "party rows": ("unpooled party rows new.csv --config clinic/party.toml --folder clinic-new",),
    "party forget": ("unpooled party forget study.toml --config north/party.toml",),
    "party verify": ("unpooled party verify ledger.json --head 5f0c...",),
    "party show": (
        "unpooled party show --config north/party.toml",
        "unpooled party show study.toml --config north/party.toml",
    ),
    "party export": ("unpooled party export study.toml --config north/party.toml --out own.csv",),
    "network provision": ("unpooled network provision network.toml --out kits",),
    "network start": ("unpooled network start kits/north",),
    "network up": ("unpooled network up kits", "unpooled network up kits --exit-after 600"),
}


def examples(command: str) -> str:
    """The end of a command's help; each example is a paragraph, so that none is wrapped into the next."""
    return "\n\n".join(("Examples:", *EXAMPLES[command]))


def say_json(output: str, data: Mapping[str, Any]) -> None:
    """Print data for machines on standard output; the name of the output stands first, and data that do not match its schema are not printed."""
    from unpooled.cli.schemas.registry import encoded

    typer.echo(encoded(output, data).decode())


def json_line(output: str, data: Mapping[str, Any]) -> bytes:
    """Return data for a program that reads one line for each answer: the same as :func:`say_json` prints, in one line."""
    from unpooled.cli.schemas.registry import encoded

    return encoded(output, data, lines=False) + b"\n"


def write_new(path: Path, body: bytes) -> None:
    """Write a file that only its owner may read; nothing that exists is overwritten."""
    from unpooled.errors import UsageError

    try:
        with open(path, "xb", opener=lambda file, flags: os.open(file, flags, 0o600)) as file:
            file.write(body)
    except FileExistsError:
        msg = f"{path} exists already: choose another name"
        raise UsageError(msg) from None


def new_folder(folder: Path, texts: Mapping[str, str | bytes]) -> list[Path]:
    """Write a new folder of these files, by their paths in it, and return their paths. Nothing that exists is overwritten, and no half of it stays."""
    import shutil

    from unpooled.errors import UsageError

    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        msg = f"{folder} exists already: choose another name with --out"
        raise UsageError(msg) from None
    written = [folder / name for name in texts]
    try:
        for path, text in zip(written, texts.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
    except BaseException:
        shutil.rmtree(folder)
        raise
    return written
