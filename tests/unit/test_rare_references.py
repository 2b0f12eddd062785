"""Levels and classes are compared with the commonest one where the release shows that the first declared one is rare."""

from __future__ import annotations

import math
import warnings

import numpy as np
import polars as pl
import pytest

import unpooled
from unpooled.inference.coding import commonest

N = 20_000
WARDS, KINDS = ("odd", "a", "b", "c"), ("other", "p", "q")
BOUNDS = {"age": (20, 100), "ward": list(WARDS)}


def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    ward = rng.choice(WARDS, N, p=[0.01, 0.5, 0.3, 0.19])
    age = rng.normal(60, 10, N).clip(20, 100)
    y = 0.03 * age + (ward == "a") + rng.normal(size=N)
    u = np.column_stack([np.full(N, -3.0), np.zeros(N), 0.03 * (age - 60)])
    kind = np.array(KINDS)[(u + rng.gumbel(size=u.shape)).argmax(axis=1)]
    return pl.DataFrame({"age": age, "ward": ward, "y": y, "kind": kind})


FRAME = frame()


def linear(method: str, formula: str = "y ~ age + ward", **asked) -> unpooled.PrivateLinearRegression:
    model = unpooled.PrivateLinearRegression(
        epsilon=1.0, bounds=BOUNDS, y_bounds=(-5, 10), random_state=0, method=method, **asked
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(FRAME.drop("kind"), formula=formula)


def lines(table: object) -> list[str]:
    return [line.term for line in table.terms if "ward" in line.term]  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["refinement", "moments"])
def test_a_rare_first_level_is_no_reference(method: str) -> None:
    model = linear(method)
    table = model.summary()
    assert lines(table) == ["ward: odd - a", "ward: b - a", "ward: c - a"]
    assert "ward is compared with 'a', the commonest: the first one declared is rare (reference names another)" in str(table)
    errors = {line.term: line.std_error for line in table.terms}
    against = {line.term: line.std_error for line in model.summary(reference={"ward": "odd"}).terms}
    assert errors["ward: b - a"] < against["ward: b - odd"] / 3, "which is the error of a rare level"
    assert model._tables().data()["references"] == {"ward": "a"}


def test_who_names_a_reference_has_it() -> None:
    model = linear("moments")
    table = model.summary(reference={"ward": "odd"})
    assert lines(table)[0] == "ward: a - odd"
    assert "the commonest" not in str(table)
    assert lines(linear("moments", "y ~ age + C(ward, ref='odd')").summary())[0] == "ward: a - odd"
    assert "compared with" not in str(model.summary(coding="sum")).replace("are compared with the mean", "")
    two = linear("moments").contrast("ward")
    assert [line.term for line in two.terms] == ["ward: odd - a", "ward: b - a", "ward: c - a"]


@pytest.mark.slow
def test_a_rare_first_class_and_level_of_a_generalised_model() -> None:
    common = {"epsilon": 3.0, "bounds": BOUNDS, "classes": KINDS, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = unpooled.PrivateGLM("multinomial", method="newton", **common).fit(
            FRAME.drop("y"), formula="kind ~ age + ward"
        )
        other = unpooled.PrivateLogisticRegression(method="rounds", delta=1e-5, **common).fit(
            FRAME.drop("y"), formula="kind ~ age + ward"
        )
    for each in (model, other):
        text, printed = str(each.summary()), each._tables().printed()
        assert printed.against in {"p", "q"}
        assert printed.references["ward"] == "a"
        assert (
            f"log odds of each class against {printed.against!r}, the commonest: the first one declared is rare (against names another)"
            in text
        )
        assert each._tables().printed(against="other").against == "other"
        assert "the commonest" not in str(each.summary(against="other", reference={"ward": "b"}))


def test_without_noise_nothing_is_released_of_shares_and_the_first_stays() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = unpooled.PrivateGLM("logistic", epsilon=math.inf, bounds=BOUNDS, classes=("no", "yes"), random_state=0)
        model.fit(
            FRAME.with_columns(ill=pl.when(pl.col("y") > 2).then(pl.lit("yes")).otherwise(pl.lit("no"))).drop("y", "kind"),
            formula="ill ~ ward",
        )
    assert lines(model.summary())[0] == "ward: a - odd"


@pytest.mark.parametrize(
    ("levels", "shares", "unsure", "found"),
    [
        (WARDS, (0.01, 0.5, 0.3, 0.19), 0.001, "a"),
        (WARDS, (0.2, 0.5, 0.3, 0.0), 0.001, None),  # the first one is common enough
        (WARDS, (0.01, 0.5, 0.3, 0.19), 0.05, None),  # noise could have made it rare
        (("no", "yes"), (0.01, 0.99), 0.001, None),  # two levels have one line, whichever is named first
        (WARDS, (0.01, math.nan, 0.3, 0.19), 0.001, None),  # nothing is known
    ],
)
def test_what_counts_as_rare(levels: tuple[str, ...], shares: tuple[float, ...], unsure: float, found: str | None) -> None:
    assert commonest(levels, shares, levels[0], unsure) == found


def test_sites_that_are_pooled_have_the_declared_reference() -> None:
    """What is common differs between sites, and lines of other names would not be pooled."""
    rare = FRAME.with_columns(site=pl.lit("north"))
    even = rare.with_columns(ward=pl.Series(np.random.default_rng(1).choice(WARDS, N)), site=pl.lit("south"))
    whole = pl.concat([rare, even]).drop("kind")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = unpooled.meta_analysis(
            unpooled.PrivateLinearRegression(
                epsilon=3.0, bounds=BOUNDS, y_bounds=(-5, 10), random_state=0, method="refinement"
            ),
            whole.drop("site"),
            "y",
            sites=whole["site"].to_numpy(),
            terms="ward",
        )
    terms = list(found.pooled_)
    assert terms == ["ward: a - odd", "ward: b - odd", "ward: c - odd"]
