"""Parties that send anything whatever: the coordinator ends the study in words, or with a result, and never with an accident.

Every reply of an honest run is mutated, in bytes, in its envelope and in its content. What the driver's check lets through is handed to
the coordinator of a run with honest others, which goes on to the end. CI tries some thousands; UNPOOLED_FULL=1 all 100,000.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from cases import CASES, Case

from unpooled.errors import ProtocolError
from unpooled.models import load, row_names
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.protocol.conversation import OPEN, find_step
from unpooled.protocol.local import _opened
from unpooled.protocol.messages import WRAPPERS, Pseudonyms, open_body, open_envelope
from unpooled.testing.hostile_parties import *
from unpooled.testing.mutants import parts_of

#: Of the tests that are imported, those that the guarantee's coverage needs.
GUARANTEE = ("test_a_released_vector_is_as_planned_or_refused", "test_other_names_and_numbers_of_a_release_are_refused")
LONG = {
    "test_any_reply_ends_in_words_or_in_a_result": [
        "glm, columns of counts",
        "glm, columns of times",
        "effects, survival",
        "bayes, published",
    ],
    "test_a_refused_reply_is_not_in_the_transcript_and_is_asked_for_again": [
        "glm, columns of counts",
        "glm, columns of times",
        "effects, survival",
    ],
    "test_a_nested_reply_is_refused": ["effects, survival"],
}


def changed(name: str, **changes: Any) -> Case:
    case = CASES[name]()
    parameters = {**case.study.parameters, **changes.pop("parameters", {})}
    study = msgspec.structs.replace(case.study, parameters=parameters, **changes)
    cards = {card.name for card in study.parties}
    return dataclasses.replace(case, study=study, tables={n: t for n, t in case.tables.items() if n in cards})


def ranges_study() -> Case:
    columns = tuple(Column(name, -1e6, 1e6, missing="absent") for name in ("age", "dose"))
    rng = np.random.default_rng(0)
    tables = {
        name: Table({"age": rng.uniform(20, 90, n), "dose": rng.normal(0, 1e-3, n)}) for name, n in (("a", 30), ("b", 50))
    }
    cards = tuple(Card(name, table.n_rows, columns) for name, table in tables.items())
    study = Study("describe", cards, 20.0, 1e-5, parameters={"ranges": True}, simulation_seed=3, derived=())
    return Case("describe", study, tables)


def counts_study(family: str, method: str, **changes: Any) -> Case:
    rng, case = np.random.default_rng(16), CASES["glm"]()
    columns = (case.study.parties[0].columns[0], Column("hours", 0.5, 8.0), Column("visits", 0.25, 12.0))
    tables = {
        name: Table({"age": t["age"], "hours": rng.uniform(0.5, 8, t.n_rows), "visits": rng.uniform(0.25, 12, t.n_rows)})
        for name, t in case.tables.items()
    }
    cards = tuple(msgspec.structs.replace(card, columns=columns) for card in case.study.parties)
    parameters = {"response": "visits", "exposure": "hours", "family": family, "method": method, "max_passes": 4}
    return Case("glm", msgspec.structs.replace(case.study, parties=cards, parameters=parameters, **changes), tables)


def rows_split() -> Case:
    case = CASES["stacking"]()
    first = case.study.parties[1]
    cards = tuple(msgspec.structs.replace(first, name=name) for name in ("north", "south", "west"))
    parameters = {"split": "samples", "holder": "west"}
    study = msgspec.structs.replace(case.study, parties=cards, parameters=parameters, trust={})
    return Case("stacking", study, dict.fromkeys(("north", "south", "west"), case.tables[first.name]))


def alone(name: str, **changes: Any) -> Case:
    return changed(name, parties=CASES[name]().study.parties[:1], **changes)


def columns_with_gaps() -> Case:
    case = CASES["bayes, columns"]()
    cards = tuple(
        msgspec.structs.replace(
            card,
            columns=tuple(msgspec.structs.replace(c, missing="complete") if c.may_be_absent else c for c in card.columns),
        )
        for card in case.study.parties
    )
    return dataclasses.replace(case, study=msgspec.structs.replace(case.study, parties=cards))


#: The forms of our models in which other messages travel.
FORMS = {
    "bayes, columns with gaps": columns_with_gaps,
    "pride, published coefficients": lambda: changed(
        "pride",
        parameters={
            "publish": 0.5, "alpha": 3.0, "fit_intercept": False, "noise_model": "plain", "response_bound": 5.0,
        },
    ),
    "pride, cross-validation": lambda: changed(
        "pride", parameters={"alpha": "global-cv"}, trust={"cross-validation": "trusted"}
    ),
    "pride, published": lambda: changed("pride", calibration="published", parameters={"alpha": 1.0}),
    "bayes, trusted": lambda: changed("bayes", trust={"aggregation": "trusted"}, parameters={"tolerate": 0}),
    "bayes, local": lambda: changed("bayes", trust={"aggregation": "local"}),
    "describe, ranges": ranges_study,
    "bayes, refinement": lambda: changed(
        "bayes",
        parameters={"projection": 0.0, "noise_precision": "estimate", "method": "refinement", "max_passes": 5},
    ),
    "bayes, mean": lambda: changed(
        "bayes", parameters={"projection": 0.0, "noise_precision": "estimate", "method": "mean", "max_passes": 2}
    ),
    "bayes, published": lambda: changed("bayes", calibration="published"),
    "glm, counts": lambda: counts_study("poisson", "gradient", trust={"aggregation": "trusted"}),
    "glm, moments": lambda: changed(
        "glm", parameters={"offset": "", "method": "moments", "rows": "unit"}, trust={"aggregation": "local"}
    ),
    "glm, mean": lambda: counts_study("negative-binomial", "mean"),
    "glm, multinomial gradient": lambda: changed(
        "glm, multinomial", parameters={"method": "gradient"}, trust={"aggregation": "trusted"}
    ),
    "glm, survival local": lambda: changed("glm, survival", trust={"aggregation": "local"}),
    "glm, gamma": lambda: counts_study("gamma", "newton", trust={"aggregation": "local"}),
    "stacking, published": lambda: changed("stacking", calibration="published"),
    "stacking, noisy": lambda: changed("stacking", trust={"meta": "perturbed"}),
    "stacking, rows": rows_split,
    "lasso, blocks": lambda: changed("lasso", parameters={"coupling": "blocks"}),
    "lasso, published": lambda: changed(
        "lasso", calibration="published", parameters={"radius": 3.0, "radius_in_half_ranges": None}
    ),
    "pls, exact": lambda: changed("pls", epsilon=math.inf),
    "pls, published": lambda: alone("pls", calibration="published", parameters={"tolerate": 0, "norm": None, "basis": "none", "matrix": [], "n_components": 2}),
}  # fmt: skip


STUDIES = {**CASES, **FORMS}


def test_every_row_of_the_registry_is_among_them() -> None:
    assert {make().model for make in STUDIES.values()} == set(row_names())


@pytest.mark.slow
def test_every_kind_of_message_is_among_the_honest_replies() -> None:
    kinds = set()
    for make in STUDIES.values():
        case = make()
        for ask, reply in honest(case):
            step = find_step(load(case.model), ask.step, load(case.model).compile(case.study))
            kinds |= {type(part) for part in parts_of(open_body(open_envelope(reply), step.reply))}
    assert kinds | {Pseudonyms} == set(WRAPPERS)  # those are of studies that link rows (tests/unit/test_linkage.py)
    assert OPEN.name == "open"


# --- what the finding named ----------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("columns", ["age"]),  # of another party
        ("values", lambda values: {**values, "shape": [values["shape"][0] // 2, 2]}),
        ("values", lambda values: {**values, "shape": values["shape"][:1]}),
        ("values", lambda values: {**values, "data": np.full(values["shape"][0], math.nan).tobytes()}),
    ],
    ids=["columns", "rows", "dimensions", "nan"],
)
def test_other_columns_or_rows_than_a_party_s_own_are_not_disclosed(field: str, wrong: Any) -> None:
    case, tried = CASES["pride"](), 0
    model = load(case.model)
    for ask, reply in honest(case):
        body = msgspec.msgpack.decode(open_envelope(reply).body)
        for part in body.get("disclosed", ()):
            tried += 1
            part[field] = wrong(part[field]) if callable(wrong) else wrong
            with pytest.raises(ProtocolError, match="discloses something else"):
                _opened(model, model.compile(case.study), ask, b"", with_body(reply, msgspec.msgpack.encode(body)))
    assert tried


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("name", "field", "words"),
    [
        ("pride, cross-validation", "role", "entrusts somebody"),
        ("stacking", "role", "entrusts somebody"),
        ("bayes", "node", "seals something for nobody"),
    ],
)
def test_nothing_is_sealed_or_entrusted_to_somebody_who_is_not_in_the_plan(name: str, field: str, words: str) -> None:
    case, tried = STUDIES[name](), 0
    model = load(case.model)
    plan = model.compile(case.study)
    for ask, reply in honest(case):
        body = msgspec.msgpack.decode(open_envelope(reply).body)
        parts = [part for value in body.values() for part in (value if isinstance(value, list) else [value])]
        for part in parts:
            if isinstance(part, dict) and field in part:
                tried += 1
                old, part[field] = part[field], "nobody"
                with pytest.raises(ProtocolError, match=words):
                    _opened(model, plan, ask, b"", with_body(reply, msgspec.msgpack.encode(body)))
                part[field] = old
    assert tried
