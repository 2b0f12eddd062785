"""Every published form in the oracle of whole studies, with one, two and three holders: each ledger holds what its holder gave away, however much that is."""

from __future__ import annotations

import pytest

from unpooled.audit.oracle import audit_whole
from unpooled.models import load, row_names
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.study import Card, Study

N = 12
PUBLISHED = sorted(row for row in row_names() if row.endswith("-published"))
COLUMNS = tuple(Column(name, -1.0, 1.0) for name in ("a", "b", "c", "d", "e", "f"))


def over_columns(holders: int) -> tuple[Card, ...]:
    """Cards of holders with two columns each of the same people."""
    return tuple(Card(f"h{k}", N, COLUMNS[2 * k : 2 * k + 2], labels=("y",)) for k in range(holders))


def over_rows(holders: int) -> tuple[Card, ...]:
    """Cards of holders with the same columns, the response among them, of different people."""
    return tuple(Card(f"h{k}", N, (*COLUMNS[:3], Column("y", -1.0, 1.0))) for k in range(holders))


def studied(row: str, holders: int) -> Study:
    """The study of a published form over so many holders: the paper's settings, but for sizes."""
    model = row.removesuffix("-published")
    cards, own, trust, delta = {
        "pride": (over_columns, {"alpha": 1.0, "sketch_dim": 1, "noise_model": "plain"}, {}, 0.05),
        "stacking": (over_columns, {}, {"meta": "trusted"}, 0.0),
        "bayes": (over_rows, {}, {"aggregation": "trusted"}, 1e-4),
        "lasso": (over_columns, {"rounds": 2, "sketch_rows": 3}, {}, 1e-5),
        "pls": (over_rows, {"n_components": 1}, {"aggregation": "trusted"}, 0.01),
    }[model]
    return Study(
        model=model,
        parties=cards(holders),
        epsilon=1.0,
        delta=delta,
        calibration="published",
        parameters={"response": "y", **own},
        trust=trust,
        unit="attribute" if model == "pride" else "record",
        public_seed=3,
        derived=(),
    )


@pytest.mark.parametrize("holders", [1, 2, 3])
@pytest.mark.parametrize("row", PUBLISHED)
def test_every_holder_is_debited_for_what_it_gives_away(row: str, holders: int) -> None:
    study = studied(row, holders)
    plan = load(row).compile(study)
    if not plan.releases:  # one party of PRIDE has nobody to send to
        assert (row, holders) == ("pride-published", 1)
        return
    assert not plan.statement.holds
    found = audit_whole(study, rows=N, rounds=1)
    assert found.violations == []
    assert found.moved


@pytest.mark.parametrize("holders", [2, 3])
@pytest.mark.parametrize("row", PUBLISHED)
def test_every_holder_has_a_release_in_the_plan(row: str, holders: int) -> None:
    """Who gives nothing away is in no ledger: a plan without a release of some holder would debit it nothing."""
    plan = load(row).compile(studied(row, holders))
    owners = {release.party for release in plan.releases}
    together = any(not release.party for release in plan.releases) or row == "bayes-published"
    assert together or owners == {card.name for card in plan.study.parties}


@pytest.mark.parametrize("row", PUBLISHED)
def test_what_is_in_no_ledger_is_caught(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose: what a holder gives away is in no ledger, as the rows that edPLS handed over were."""
    monkeypatch.setattr(Ledger, "reserve", lambda *_, **__: None)
    assert audit_whole(studied(row, 2), rows=N, rounds=1).violations != []
