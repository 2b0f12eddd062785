"""What acts for a party refuses what no honest run shows it, each in a sentence (tests/coverage_floor.py holds every branch of such files)."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from unpooled import PrivateLinearRegression
from unpooled.audit.account import fresh_parties
from unpooled.errors import DataError, PolicyRefusal, ProtocolError, UsageError
from unpooled.estimation import columns as linking
from unpooled.estimation.outlook import Imagined
from unpooled.estimation.outlook import imagine_rounds as imagine
from unpooled.models import load
from unpooled.models.pride.local import own_decisions
from unpooled.products import design, masking
from unpooled.protocol.local import drive, in_process
from unpooled.protocol.messages import Array, Sealed
from unpooled.study import finished as about
from unpooled.study import run as approving
from unpooled.totals import secure_sum as keys
from unpooled.totals.total import Member

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))
from cases import CASES


def test_masked_studies_that_cannot_be_are_refused() -> None:
    study = CASES["bayes, columns"]().study
    with pytest.raises(UsageError, match="delta must be positive"):
        design._check(msgspec.structs.replace(study, delta=0.0), SimpleNamespace(check=design.PROOF))
    (holder,) = (card.name for card in study.parties if any(column.name == "pressure" for column in card.columns))
    empty: Any = SimpleNamespace(
        parties=[SimpleNamespace(name="east", columns=()), SimpleNamespace(name=holder, columns=())]
    )
    with pytest.raises(UsageError, match="declares no column of this model"):
        design._check_columns(empty, holder)


@pytest.mark.guarantee
def test_masks_and_seeds_of_another_size_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spot = SimpleNamespace(side=SimpleNamespace(sender=0, receiver=1, helper=2), place=lambda: ())
    asked: Any = SimpleNamespace(sender="a", receiver="b", helper="c", seeds=None, rows=None)
    sealed = {b"sealed": msgspec.msgpack.encode(masking._Seeds(b"short")), b"masked": bytes(24)}
    monkeypatch.setattr(masking, "spot_of", lambda *_: spot)
    monkeypatch.setattr(masking, "shape_of", lambda _: SimpleNamespace(rows=2, columns=2))
    monkeypatch.setattr(masking, "receiver", lambda *_: None)
    monkeypatch.setattr(masking, "_unsealed", lambda _context, _sender, _sealed, place: sealed[place[0]])
    with pytest.raises(ProtocolError, match="not 32 bytes"):
        masking.evaluated(None, asked)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="another size"):
        masking.judged(None, asked)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="not a Seeds"):
        masking._read(b"\xc1", masking._Seeds)
    with pytest.raises(ProtocolError, match="not unsigned"):
        masking._words(Array.of(np.zeros(2)))


@pytest.mark.guarantee
def test_keys_and_fragments_of_others_are_refused() -> None:
    plan: Any = SimpleNamespace(study=SimpleNamespace(member=lambda _: SimpleNamespace(key="")))
    with pytest.raises(ProtocolError, match="64 hexadecimal digits"):
        keys.checked(plan, Member("north", "no key", "", ""))
    nodes = [Member(name, "", "", "") for name in ("north", "south")]
    vector: Any = SimpleNamespace(name="moments")
    fragments = {"north": (Sealed("north", b""), Sealed("north", b""))}
    with pytest.raises(ProtocolError, match="for others than north, south"):
        keys.check_sealed(vector, nodes, fragments)


@pytest.mark.guarantee
def test_a_key_column_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="there is no column 'id'"):
        linking._text({"name": ["a"]}, "id")


def test_imagined_totals_plan_nothing_and_ask_nobody() -> None:
    assert Imagined((), 0).releases(None, None) == ()  # type: ignore[arg-type]

    def asking(_plan: object) -> Any:
        yield []

    case = CASES["bayes"]()
    plan = load("bayes").compile(case.study)
    with pytest.raises(AssertionError, match="asks nobody"):
        imagine(plan, asking, {}, next(iter(case.tables.values())), np.random.default_rng(0))


def test_a_family_without_least_squares_has_one_decision_of_its_own() -> None:
    rng = np.random.default_rng(3)
    parameters = load("pride").compile(CASES["pride, poisson"]().study).design.parameters
    (decision,) = own_decisions(parameters, rng.normal(size=(30, 2)), rng.poisson(2.0, 20).astype(float))
    assert np.isfinite(decision).all()


@pytest.mark.guarantee
def test_a_note_that_is_damaged_and_an_account_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / about.ABOUT).write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        about.read_about(tmp_path)

    def nameless() -> str:
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert about.account() == ""


def test_what_a_policy_refuses_is_said_and_other_data_need_a_reason() -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PolicyRefusal("not here")

    party: Any = SimpleNamespace(name="north", policy=SimpleNamespace(check=refuse), other_data=lambda _: "other data")
    plan: Any = SimpleNamespace(hash="")
    assert approving.refusal_of(party, plan) == "not here"
    with pytest.raises(PolicyRefusal, match="other data"):
        approving.record_approval(party, plan, "")


@pytest.mark.guarantee
@pytest.mark.filterwarnings("ignore::unpooled.UtilityWarning")
def test_small_studies_learn_one_direction_and_a_lasso_chooses_by_moments() -> None:
    """Two kinds of runs that few studies have; what their parties answer is held by its coverage too."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 5))
    asked: dict[str, Any] = {"bounds": (-1, 1), "y_bounds": (-1, 1), "random_state": 0}
    model = PrivateLinearRegression(epsilon=1.0, **asked).fit(X, 0.5 * X[:, 0])
    assert [release.name for release in model.plan_.releases] == ["base", "descent", "length"]
    case = CASES["lasso, moments"]()
    found = drive(load("lasso"), load("lasso").compile(case.study), in_process(fresh_parties(case.study, case.tables, load)))
    assert found.result.terms
