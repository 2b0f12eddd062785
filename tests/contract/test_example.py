"""The worked example of "Adding a model in an hour": it runs, it is short, and the contract holds for it as for any model."""

from __future__ import annotations

import itertools
import math
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy import stats

from unpooled.audit.replay import replay
from unpooled.errors import UsageError
from unpooled.estimation.base import StudyEstimator
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import GaussianRelease, Reach
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Plan, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.privacy.unit import ROWWISE, Adjacency, Unit
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.party import Party
from unpooled.protocol.step import Model
from unpooled.protocol.transcript import Transcript

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGE = ROOT / "docs" / "adding-a-model.md"
COLUMN = Column("age", 18.0, 100.0)
TABLES = {"north": Table({"age": np.linspace(10, 90, 30)}), "south": Table({"age": np.linspace(40, 120, 20)})}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import private_mean

    yield private_mean.MODEL
    for name in [name for name in sys.modules if name.startswith("private_mean")]:
        monkeypatch.delitem(sys.modules, name)


def study(**changes: object) -> Study:
    cards = tuple(Card(name, table.n_rows, (COLUMN,)) for name, table in TABLES.items())
    asked = Study("private_mean", cards, 1.0, 1e-5, parameters={"column": "age"}, derived=())
    return msgspec.structs.replace(asked, **changes)


def parties(model: Model, plan: Plan) -> dict[str, Party]:
    made = {}
    for card in plan.study.parties:
        ledger = Ledger.in_memory()
        keys = KeySource(ledger.root_key)
        made[card.name] = Party(card.name, TABLES[card.name], card, ledger, keys, Policy.in_process(), lambda _: model)
    return made


def test_it_is_short_and_runs(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    files = [*(EXAMPLES / "private_mean").glob("*.py"), EXAMPLES / "run_private_mean.py"]
    assert sum(len(file.read_text().splitlines()) for file in files) < 240
    runpy.run_path(str(EXAMPLES / "run_private_mean.py"))
    shown = capsys.readouterr().out
    assert shown.startswith("mean ")
    assert "Differentially private with epsilon = 1" in shown


def contract(package: str, places: list[str], where: list[Path]) -> subprocess.CompletedProcess[str]:
    """Run the contract tests of these places over the cases of a package that lies in one of these folders, as its author does."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    joined = {"UNPOOLED_MODELS": package, "PYTHONPATH": os.pathsep.join(map(str, where))}
    options = ["-q", "-n0", "-p", "no:cacheprovider", "-m", "", "-k", "private_mean", "--ignore", __file__]
    command = [sys.executable, "-m", "pytest", *options, *places]
    return subprocess.run(command, cwd=ROOT, env=kept | joined, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("place", "least"), [("tests/contract", 45), pytest.param("tests/audit", 18, marks=pytest.mark.slow)]
)
def test_the_whole_contract_holds_for_it(place: str, least: int) -> None:
    """Every test that runs over the rows of the registry runs over the example, in a process of its own."""
    done = contract("private_mean", [place], [EXAMPLES])
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= least, done.stdout


def test_the_contract_fails_for_a_model_whose_record_cannot_be_read(tmp_path: Path) -> None:
    """The example without ``results=``, as it once was."""
    package = tmp_path / "forgetful"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from dataclasses import replace\nimport private_mean\nMODEL = replace(private_mean.MODEL, results=())\n"
    )
    (package / "case.py").write_text("from private_mean.case import CASES as CASES\n")
    places = ["tests/contract/test_results.py"]
    assert contract("private_mean", places, [EXAMPLES]).returncode == 0
    done = contract("forgetful", places, [EXAMPLES, tmp_path])
    assert done.returncode == 1, done.stdout
    assert "test_a_record_tells_what_the_transcript_tells[private_mean]" in done.stdout


def test_the_outlook_is_the_planned_noise_with_the_error_of_sampling(model: Model) -> None:
    asked = study()
    assert model.outlook is not None
    found, quick = model.outlook(asked, ranges=4.0), model.outlook(asked, quick=True)
    result = drive(model, model.compile(asked), in_process(parties(model, model.compile(asked)))).result
    assert found.error == pytest.approx(math.hypot(result.deviation / COLUMN.half_width * 4.0, 1 / math.sqrt(50)))
    assert found.at.low == found.at.high == found.error
    assert [point.error for point in found.points] == sorted((point.error for point in found.points), reverse=True)
    assert quick.points == (quick.at,)
    assert quick.at.low < quick.error < quick.at.high
    (line,) = model.terms(model.compile(asked), result)
    assert (line.term, line.estimate, line.privacy) == ("age: mean", result.mean, result.deviation)


def test_the_page_says_which_letters_are_taken_and_which_hooks_there_are() -> None:
    """Letters of theorems are those of the package's pages; the example's own is free."""
    from test_citations import headings, pages

    page = PAGE.read_text()
    (said,) = re.findall(r"letters ([A-Z, ]+ and [A-Z]) are taken", page)
    assert re.findall("[A-Z]", said) == sorted({number[0] for number in headings(pages())})
    (own,) = {number[0] for number in headings({"": (EXAMPLES / "private_mean" / "THEORY.md").read_text()})}
    assert own not in said
    table = page.partition("| hook of the estimator |")[2].partition("\n\n")[0]
    hooks = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert len(hooks) >= 8
    assert [hook for hook in hooks if not hasattr(StudyEstimator, hook) and hook not in StudyEstimator.__annotations__] == []
    table = page.partition("| field of `Model` |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(Model.__dataclass_fields__)[5:]


def test_equal_bits_from_the_parties_again_and_from_the_transcript(model: Model) -> None:
    plan = model.compile(study())
    people, transcript = parties(model, plan), Transcript()
    first = drive(model, plan, in_process(people), transcript).result
    assert drive(model, plan, in_process(people)).result == first
    assert drive(model, plan, lambda _: pytest.fail("asked"), transcript.replay()).result == first
    assert drive(model, plan, in_process(parties(model, plan))).result != first  # other keys, other noise
    assert [len(party.ledger.entries()) for party in people.values()] == [1, 1]


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_sensitivity_is_attained_and_never_exceeded(model: Model, adjacency: Adjacency) -> None:
    """Theorem M.1 by brute force over the coded values, and two studies on the audit: as planned, and with half of the reach."""
    plan = model.compile(study(adjacency=str(adjacency)))
    ends = plan.design.code([np.array([-5.0, 18.0, 40.0, 59.0, 100.0, 1e9])])[0][:, 0].astype(float)
    others = [0.0] if adjacency is Adjacency.ZERO_OUT else ends
    farthest = max(abs(a - b) for a, b in itertools.product(ends, others))
    declared = plan.releases[0].sensitivity(Unit.RECORD)
    assert farthest == declared
    assert replay(model, study(adjacency=str(adjacency)), TABLES, registry=lambda _: model, rounds=4).passed

    def halved(asked: Study) -> Plan:
        sound = model.compile_plan(asked)
        short = GaussianRelease.calibrated(
            sound.releases[0].mechanism.blocks, dict.fromkeys(ROWWISE, Reach(declared / 2, 1)), Unit.RECORD, 1.0
        )
        return replace(sound, releases=tuple(replace(r, mechanism=short) for r in sound.releases))

    broken = replace(model, compile_plan=halved)
    assert not replay(broken, study(adjacency=str(adjacency)), TABLES, registry=lambda _: broken, rounds=4).passed


def test_the_noise_is_there_with_its_law_under_every_key(model: Model) -> None:
    plan = model.compile(study())
    results = [drive(model, plan, in_process(parties(model, plan))).result for _ in range(300)]
    clipped = np.concatenate([np.clip(table["age"], 18, 100) for table in TABLES.values()])
    deviations = [(result.mean - clipped.mean()) / result.deviation for result in results]
    assert stats.kstest(deviations, "norm").pvalue > 1e-6
    assert stats.kstest(np.array(deviations) / 2, "norm").pvalue < 1e-6


def test_what_it_cannot_do_is_refused(model: Model) -> None:
    cards = study().parties
    other = msgspec.structs.replace(cards[1], columns=(Column("age", 0.0, 100.0),))
    words = msgspec.structs.replace(cards[0], columns=(Column("age", categories=("young", "old")),))
    for changes, match in (
        ({"parameters": {"colum": "age"}}, "colum"),
        ({"parties": (cards[0], other)}, "agree on one range"),
        ({"parties": (words,)}, "needs low and high"),
        ({"calibration": "published"}, "another form"),
    ):
        with pytest.raises(UsageError, match=match):
            model.compile(study(**changes))
