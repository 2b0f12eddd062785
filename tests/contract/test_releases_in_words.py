"""Releases in words: every model of unpooled says what each release holds, and the noise in people is the plan's own."""

from __future__ import annotations

import msgspec
import pytest
from cases import CASES

from unpooled.models import load
from unpooled.report import releases
from unpooled.report.releases import in_words

ROWS = sorted(CASES)


@pytest.mark.parametrize("row", ROWS)
def test_every_release_of_every_case_has_words(row: str) -> None:
    study = CASES[row]().study
    plan = load(study.row).compile(study)
    made = in_words(plan)
    assert not [one for one in made if "the model calls" in one.content]
    planned = {(release.party, release.name) for release in plan.releases}
    assert {(party, f"{one.part}: {one.name}" if one.part else one.name) for one in made for party in one.parties} == planned


@pytest.mark.parametrize("row", ROWS)
def test_the_noise_in_people_is_that_of_the_plan(row: str) -> None:
    study = CASES[row]().study
    plan = load(study.row).compile(study)
    made = in_words(plan)
    for release in plan.releases:
        reach = release.sensitivity(study.unit)
        alike = [
            one
            for one in made
            if release.party in one.parties and release.name == (f"{one.part}: {one.name}" if one.part else one.name)
        ]
        if not reach or release.scale is None or release.mechanism.needs_trust:
            assert any(not one.shares for one in alike)
            assert not release.mechanism.needs_trust or any("exact numbers" in one.noise for one in alike)
            continue
        many = release.scale / reach
        number = f"{many:.2g}" if many < 10 else f"{many:,.0f}"
        people = {card.name: card.people for card in plan.study.parties}.get(release.party)  # a helper has none
        assert any(f"what {number} " in one.noise and (people is None or many / people in one.shares) for one in alike)


def test_more_noise_is_more_people() -> None:
    study = CASES["describe"]().study
    few, many = (
        in_words(load("describe").compile(msgspec.structs.replace(study, epsilon=e)))[0].shares[0] for e in (1.0, 0.1)
    )
    assert many > 5 * few


def test_a_model_of_another_package_names_its_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    study = CASES["describe"]().study
    model = load("describe")
    monkeypatch.setattr(releases, "load", lambda _: _Silent())
    (one,) = in_words(model.compile(study))
    assert one.content == "numbers that the model calls 'sums'"


class _Silent:
    """A model that says nothing about its releases."""

    releases: dict[str, str] = {}  # noqa: RUF012 - as a model's own default
