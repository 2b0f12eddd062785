"""Parties that send anything whatever: the coordinator ends the study in words, or with a result, and never with an accident.

Every reply of an honest run is mutated, in bytes, in its envelope and in its content. What the driver's check lets through is handed to
the coordinator of a run with honest others, which goes on to the end. CI tries some thousands; UNPOOLED_FULL=1 all 100,000.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from cases import CASES, Case
from test_hostile_coordinator import parts_of, places, wild
from test_models import parties
from world import FULL, sized

from unpooled.errors import ProtocolError, UnpooledError
from unpooled.models import load, row_names
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.policy import Policy
from unpooled.privacy.table import Table
from unpooled.protocol.conversation import OPEN, find_step
from unpooled.protocol.local import _opened, drive, in_process
from unpooled.protocol.messages import WRAPPERS, Ask, Pseudonyms, open_body, open_envelope
from unpooled.protocol.transcript import Transcript

#: Mutated replies per study.
MUTANTS = sized(6000, 100)
DTYPES = ("<i8", "<i4", "<u8", "<f8", "<f4", "|u1", "|O", "<c16", "")


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


#: Every registered model, and the forms of it in which other messages travel.
STUDIES = {
    **CASES,
    "pride, published coefficients": lambda: changed(
        "pride",
        parameters={
            "publish": 0.5, "alpha": 3.0, "fit_intercept": False, "noise_model": "plain", "response_bound": 5.0,
        },
    ),
    "pride, cross-validation": lambda: changed(
        "pride", parameters={"alpha": "global-cv"}, trust={"cross-validation": "trusted"}
    ),
    "pride, published": lambda: changed("pride", calibration="published"),
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


def test_every_row_of_the_registry_is_among_them() -> None:
    assert {make().model for make in STUDIES.values()} == set(row_names())


def honest(case: Case) -> list[tuple[Ask, bytes]]:
    """Every request of an honest run, in order, with its reply."""
    people, seen = parties(case, Policy.in_process()), []
    model = load(case.model)

    def exchange(batch):
        replies = in_process(people)(batch)
        seen.extend((ask, reply) for (ask, _), reply in zip(batch, replies, strict=True))
        return replies

    drive(model, model.compile(case.study), exchange)
    return seen


def deep(rng: np.random.Generator) -> bytes:
    depth = int(rng.choice([1, 20, 900, 3000, 50_000]))
    inner = rng.choice([0, 1])
    return (b"\x91" if inner else b"\x81\xa1a") * depth + b"\xc0"


def with_body(reply: bytes, body: bytes) -> bytes:
    return msgspec.msgpack.encode({**msgspec.msgpack.decode(reply), "body": msgspec.Raw(body)})


def in_bytes(reply: bytes, rng: np.random.Generator) -> bytes:
    kind = int(rng.integers(6))
    if kind == 0:
        return reply[: int(rng.integers(len(reply)))]
    if kind == 1:
        return reply + bytes(rng.integers(0, 256, int(rng.integers(1, 9))).astype(np.uint8))
    if kind == 2:
        return with_body(reply, deep(rng))
    if kind == 3:
        return bytes(rng.integers(0, 256, int(rng.integers(0, 60))).astype(np.uint8))
    flipped = bytearray(reply)
    for _ in range(int(rng.integers(1, 4))):
        flipped[int(rng.integers(len(flipped)))] ^= 1 << int(rng.integers(8))
    return bytes(flipped)


def in_envelope(reply: bytes, rng: np.random.Generator) -> bytes:
    tree = msgspec.msgpack.decode(reply)
    key = str(rng.choice([*tree, "extra"]))
    strange: list[Any] = [None, 0, -1, 1, 2**63, 1.5, math.nan, "", "open", "sums", b"", [], {}, True]
    tree[key] = strange[int(rng.integers(len(strange)))]
    if rng.random() < 0.1:
        del tree[key]
    return msgspec.msgpack.encode(tree)


def another_array(array: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:  # noqa: PLR0911 - one line per kind
    kind, size, shape = int(rng.integers(7)), len(array["data"]), list(array["shape"])
    if kind == 0:
        return {**array, "dtype": DTYPES[int(rng.integers(len(DTYPES)))]}
    if kind == 1:  # other numbers of the same bits
        dtype = str(rng.choice(["<i8", "<u8", "<f8"]))
        return {**array, "dtype": dtype}
    if kind == 2:
        longer = int(rng.integers(1, 5))
        return {**array, "shape": [size // 8 + longer], "data": array["data"] + bytes(8 * longer)}
    if kind == 3:
        fewer = int(rng.integers(0, max(size // 8, 1)))
        return {**array, "shape": [fewer], "data": array["data"][: 8 * fewer]}
    if kind == 4:
        return {
            **array,
            "shape": [[], [*shape, 1], [1, *shape], [1] * 70, [0], [-1], [2**63], shape * 2][int(rng.integers(8))],
        }
    if kind == 5:
        count = size // 8
        real = np.full(count, [math.nan, math.inf, 1e300, 1e89, -1e89, 0.0, 0.5][int(rng.integers(7))])
        return {"dtype": "<f8", "shape": shape, "data": real.tobytes()}
    fits = array["dtype"] in DTYPES[:6] and size % np.dtype(array["dtype"]).itemsize == 0  # unless it was changed before
    return wild(array, rng) if fits else {**array, "data": b""}  # type: ignore[return-value]


def in_content(reply: bytes, rng: np.random.Generator, words: list[str], others: list[Any]) -> bytes:
    body = msgspec.msgpack.decode(msgspec.msgpack.decode(reply, type=dict[str, msgspec.Raw])["body"])
    for _ in range(int(rng.integers(1, 3))):
        spots = places(body)
        if not spots:
            break
        spot = spots[int(rng.integers(len(spots)))]
        inside = body
        for key in spot[:-1]:
            inside = inside[key]
        old, at = inside[spot[-1]], spot[-1]
        if isinstance(old, dict):
            inside[at] = another_array(old, rng)
        elif isinstance(old, str) and rng.random() < 0.7:
            inside[at] = words[int(rng.integers(len(words)))]
        elif isinstance(old, list) and old and rng.random() < 0.5:
            inside[at] = [old[::-1], old[:1], old[1:], [*old, old[0]]][int(rng.integers(4))]
        elif rng.random() < 0.1:
            inside[at] = [None, "x", 3, 2.5, [], {}][int(rng.integers(6))]
        else:
            inside[at] = wild(old, rng)
    if rng.random() < 0.15 and isinstance(body, dict) and body:  # a field of another reply, or of another name
        keys, other = list(body), others[int(rng.integers(len(others)))]
        values = list(other.values()) if isinstance(other, dict) else [other]
        body[keys[int(rng.integers(len(keys)))]] = values[int(rng.integers(len(values)))] if values else None
    return with_body(reply, msgspec.msgpack.encode(body))


def mutants(seen: list[tuple[Ask, bytes]], case: Case, rng: np.random.Generator, count: int) -> Iterator[tuple[int, bytes]]:
    """Positions in an honest run, and what stands there instead of the honest reply."""
    plan = load(case.model).compile(case.study)
    words = [
        *{r.name for r in plan.releases},
        *(card.name for card in case.study.parties),
        "",
        "x",
        "é" * 50,
        "00" * 32,
        "ff" * 64,
    ]
    bodies = [msgspec.msgpack.decode(open_envelope(reply).body) for _, reply in seen]
    words += [text for body in bodies for text in texts(body)]
    for _ in range(count):
        at = int(rng.integers(len(seen)))
        reply = seen[at][1]
        kind = rng.random()
        if kind < 0.15:
            yield at, in_bytes(reply, rng)
        elif kind < 0.22:
            yield at, in_envelope(reply, rng)
        elif kind < 0.32:  # somebody else's reply, or one of another step, as if it were this one
            stranger = open_envelope(seen[int(rng.integers(len(seen)))][1])
            yield at, with_body(reply, bytes(stranger.body))
        else:
            yield at, in_content(reply, rng, words, bodies)


def texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from texts(value)


def outcome(case: Case, place: tuple[Ask, int], mutant: bytes) -> str:
    """How a study ends in which one reply is replaced; everybody else is honest and alive."""
    model, people, seen = load(case.model), parties(case, Policy.in_process()), Counter()
    ask, number = place

    def exchange(batch):
        replies = []
        for asked, request in batch:
            key = (asked.to, asked.step, asked.index)
            seen[key] += 1
            mine = key == (ask.to, ask.step, ask.index) and seen[key] == number
            replies.append(mutant if mine else people[asked.to].answer(request))
        return replies

    try:
        drive(model, model.compile(case.study), exchange, Transcript())
    except UnpooledError as error:
        return type(error).__name__
    finally:
        for party in people.values():
            party.ledger.close()
    return "a result"


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("name", STUDIES)
def test_any_reply_ends_in_words_or_in_a_result(name: str) -> None:
    case, rng = STUDIES[name](), np.random.default_rng(20261121)
    model = load(case.model)
    plan, seen, ends = model.compile(case.study), honest(case), Counter[str]()
    for at, mutant in mutants(seen, case, rng, MUTANTS):
        ask = seen[at][0]
        try:
            _opened(model, plan, ask, b"", mutant)
        except ProtocolError:
            ends["refused at once"] += 1
            if ends["refused at once"] % 40:
                continue  # the driver raises what this raised; every fortieth is driven all the same
        ends[outcome(case, (ask, 1), mutant)] += 1
    assert ends["refused at once"] > MUTANTS / 4
    # Not refused for standing in the place of another: of a hundred mutants all may be, so it is the last of an honest run.
    assert outcome(case, (seen[-1][0], 1), seen[-1][1]) == "a result"
    if FULL:
        assert ends["a result"] > 0
        print(f"\n{name}: {dict(ends)}")


def test_every_kind_of_message_is_among_the_honest_replies() -> None:
    kinds = set()
    for make in STUDIES.values():
        case = make()
        for ask, reply in honest(case):
            step = find_step(load(case.model), ask.step)
            kinds |= {type(part) for part in parts_of(open_body(open_envelope(reply), step.reply))}
    assert kinds | {Pseudonyms} == set(WRAPPERS)  # those are of studies that link rows (tests/unit/test_linkage.py)
    assert OPEN.name == "open"


# --- what the finding named ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 100, 3000, 100_000])
def test_a_nested_reply_is_refused(case: Case, depth: int) -> None:
    for ask, reply in honest(case):
        with pytest.raises(ProtocolError):
            _opened(
                load(case.model), load(case.model).compile(case.study), ask, b"", with_body(reply, b"\x91" * depth + b"\xc0")
            )


@pytest.mark.parametrize(
    "change",
    [
        lambda a: {**a, "shape": [1] * 70},
        lambda a: {**a, "shape": [len(a["data"]) // 8 + 1], "data": a["data"] + bytes(8)},
        lambda a: {**a, "shape": [0], "data": b""},
        lambda a: {**a, "dtype": "<f8" if a["dtype"] == "<i8" else "<i8"},
        lambda a: {**a, "dtype": "<f8", "data": np.full(len(a["data"]) // 8, math.nan).tobytes()},
        lambda a: {**a, "dtype": "<f8", "data": np.full(len(a["data"]) // 8, -math.inf).tobytes()},
    ],
    ids=["dimensions", "longer", "empty", "dtype", "nan", "inf"],
)
@pytest.mark.parametrize("name", STUDIES)
def test_a_released_vector_is_as_planned_or_refused(name: str, change) -> None:
    case = STUDIES[name]()
    model, tried = load(case.model), 0
    plan = model.compile(case.study)
    for ask, reply in honest(case):
        body = msgspec.msgpack.decode(open_envelope(reply).body)
        for spot in places(body):
            inside = body
            for key in spot[:-1]:
                inside = inside[key]
            old = inside[spot[-1]]
            if not isinstance(old, dict) or set(inside) >= {"role"} or set(inside) >= {"columns"}:
                continue
            tried += 1
            inside[spot[-1]] = change(old)
            with pytest.raises(ProtocolError):
                _opened(model, plan, ask, b"", with_body(reply, msgspec.msgpack.encode(body)))
            inside[spot[-1]] = old
    assert tried > 0


@pytest.mark.parametrize("name", STUDIES)
def test_other_names_and_numbers_of_a_release_are_refused(name: str) -> None:
    case = STUDIES[name]()
    model, tried = load(case.model), 0
    plan = model.compile(case.study)
    others = sorted({r.name for r in plan.releases} | {"", "x"})
    for ask, reply in honest(case):
        body = msgspec.msgpack.decode(open_envelope(reply).body)
        # Which of several alternatives it is, only the coordinator of the model can tell (test_several_classes.py).
        alike = {r.name for r in plan.releases if r.exposure.alternative and (r.party, r.step) == (ask.to, ask.step)}
        for value in body.values():
            for part in value if isinstance(value, list) else [value]:
                if not isinstance(part, dict) or set(part) != {"name", "index", "values"}:
                    continue
                for change in (
                    *({"name": other} for other in others if other != part["name"] and other not in alike),
                    *({"index": index} for index in (-1, part["index"] + 1, 10**18)),
                ):
                    old = dict(part)
                    part.update(change)
                    tried += 1
                    with pytest.raises(ProtocolError):
                        _opened(model, plan, ask, b"", with_body(reply, msgspec.msgpack.encode(body)))
                    part.update(old)
    assert tried > 0


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


def test_a_refused_reply_is_not_in_the_transcript_and_is_asked_for_again(case: Case) -> None:
    """What was accepted before the spoilt reply is played, the spoilt one is asked for anew."""
    model, seen = load(case.model), honest(case)
    plan = model.compile(case.study)
    for at in range(len(seen)) if FULL else sorted({0, len(seen) // 2, len(seen) - 1}):
        spoilt = seen[at][0]
        transcript, people = Transcript(), parties(case, Policy.in_process())

        def dishonest(batch, spoilt=spoilt, people=people):
            answers = in_process(people)(batch)
            same = [(ask.to, ask.step, ask.index) == (spoilt.to, spoilt.step, spoilt.index) for ask, _ in batch]
            return [answer + b"\xc0" if bad else answer for bad, answer in zip(same, answers, strict=True)]

        with pytest.raises(ProtocolError):
            drive(model, plan, dishonest, transcript)
        assert len(transcript.entries) == at
        resumed = drive(model, plan, in_process(people), transcript).result
        assert msgspec.msgpack.encode(resumed) == msgspec.msgpack.encode(drive(model, plan, in_process(people)).result)
