"""Plans, statements and policies: what is hashed, what is composed, what is said, what is refused."""

from __future__ import annotations

import copy
import math
import os
import pickle
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

import unpooled
from unpooled.errors import PolicyRefusal, UsageError
from unpooled.models import load
from unpooled.models.describe.declared import compile_plan
from unpooled.privacy.accounting import SAFETY, Composition, gaussian_epsilon, gaussian_mu
from unpooled.privacy.bounds import Column
from unpooled.privacy.events import UNBOUNDED
from unpooled.privacy.mechanisms import Block, DistributedGaussian, GaussianRelease, NoisyChoice, Reach
from unpooled.privacy.origin import PastEvent, ReleasedInput
from unpooled.privacy.plan import Card, HelperCard, Plan, Release, Study, check_parameters, default_delta
from unpooled.privacy.policy import Policy
from unpooled.privacy.sentence import Sentence
from unpooled.privacy.study import Whole
from unpooled.privacy.unit import Calibration, Scope, Split, Target, Unit
from unpooled.protocol.local import _shared, column_named, columns_of_parties

RECORD, ATTRIBUTE = Unit.RECORD, Unit.ATTRIBUTE
COLUMNS = (Column("age", 0.0, 100.0), Column("sex", categories=("f", "m"), missing="absent"))
CARDS = (Card("clinic", 500, COLUMNS), Card("lab", 300, COLUMNS))


def study(**changes: object) -> Study:
    return Study(**{"model": "describe", "parties": CARDS, "epsilon": 1.0, "delta": 1e-5, "derived": (), **changes})


def gaussian(mu: float = 0.2, attribute_mu: float = 0.1) -> GaussianRelease:
    """Scale 10, so that the reaches are 10 times the mus."""
    reach = ((RECORD, Reach(10 * mu, 1)), (ATTRIBUTE, Reach(10 * attribute_mu, 1)))
    return GaussianRelease((Block(2, 1.0),), reach, 10.0)


def plan(*mus: float, split: Split = Split.VERTICAL, **changes: object) -> Plan:
    """One Gaussian release per party."""
    releases = tuple(Release("sums", card.name, "sums", gaussian(mu, mu / 2)) for card, mu in zip(CARDS, mus, strict=False))
    return Plan(study(**changes), split, releases)


# --- studies and cards ----------------------------------------------------------------------------------------------------


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"epsilon": True},
        {"delta": 1.0},
        {"unit": "person"},
        {"adjacency": "add"},
        {"calibration": "loose"},
        {"parties": ()},
        {"parties": (CARDS[0], CARDS[0])},
        {"derived": ("weather",)},
        {"derived": ("bounds", "bounds")},
    ],
)
def test_a_study_that_makes_no_sense_is_refused(changes: dict) -> None:
    with pytest.raises(UsageError):
        study(**changes)


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "arguments", [("", 5, COLUMNS), ("a", 0, COLUMNS), ("a", 5, ()), ("a", 5, (COLUMNS[0], COLUMNS[0]))]
)
def test_a_card_that_makes_no_sense_is_refused(arguments: tuple) -> None:
    with pytest.raises(UsageError, match="card"):
        Card(*arguments)


@pytest.mark.guarantee
def test_cards_columns_and_releases_are_found_by_name_or_the_known_ones_are_named() -> None:
    here = plan(0.1, 0.2)
    assert here.study.card("lab") is CARDS[1]
    assert CARDS[0].column("sex") is COLUMNS[1]
    assert here.release("lab", "sums") is here.releases[1]
    with pytest.raises(UsageError, match="no party 'x'; it has clinic, lab"):
        here.study.card("x")
    with pytest.raises(UsageError, match="no column 'x'; it has age, sex"):
        CARDS[0].column("x")
    for party, name in (("clinic", "x"), ("x", "sums")):
        with pytest.raises(UsageError, match="no release"):
            here.release(party, name)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [({"confidense": 0.9}, "confidense"), ({"confidence": "high"}, "confidence"), ({"confidence": 2.0}, "between 0 and 1")],
)
def test_parameters_of_a_model_are_strict(parameters: dict, words: str) -> None:
    from unpooled.models.describe.declared import Parameters

    with pytest.raises(UsageError, match=words):
        check_parameters(study(parameters=parameters), Parameters)
    assert check_parameters(study(parameters={"confidence": 0.9}), Parameters).confidence == 0.9


@pytest.mark.guarantee
@pytest.mark.parametrize("changes", [{"parameters": {"a": [{"b": 2**64}]}}, {"public_seed": 2**70}, {"run": -(2**64)}])
def test_an_integer_that_no_message_can_hold_is_refused(changes: dict) -> None:
    with pytest.raises(UsageError, match="64 bits"):
        study(**changes)


def test_the_default_delta_is_far_below_one_person() -> None:
    assert default_delta(100) == 1e-5
    assert default_delta(10**6) == pytest.approx(1e-7)


# --- the hash -------------------------------------------------------------------------------------------------------------

BASE = {
    "model": "describe",
    "parties": CARDS,
    "epsilon": 1.0,
    "delta": 1e-5,
    "unit": "record",
    "adjacency": "replace",
    "calibration": "sound",
    "parameters": {"a": 1.5, "b": {"c": [1, 2.5], "d": "x"}},
    "trust": {"sum": "trusted"},
    "public_seed": 0,
    "simulation_seed": None,
    "derived": (),
    "coordinator": "",
    "run": 1,
}
FIELD_CHANGES = {
    "model": ["other"],
    "helpers": [(HelperCard("registry"),), (HelperCard("registry", contact="ask us"),), (HelperCard("other"),)],
    "epsilon": [1.0000000000000002, math.inf],
    "delta": [1.0000001e-5, 0],
    "unit": ["attribute"],
    "adjacency": ["zero-out"],
    "calibration": ["published"],
    "public_seed": [1],
    "simulation_seed": [0, 1],
    "derived": [("bounds",), ("classes",)],
    "coordinator": ["ab" * 32],
    "run": [2],
    "justification": ["a first look"],
    "within": [f"{'ab' * 32} one", f"{'ab' * 32} two", f"{'cd' * 32} one"],
    "scattered": [True],
    "whole": [Whole(2), Whole(3), Whole(2, rows_move=True)],
    "origins": [
        (ReleasedInput("bounds", "ab" * 32, holds=True, events=(PastEvent("record", "", "GAUSSIAN", 0.5, 1),)),),
        (ReleasedInput("bounds", "ab" * 32, holds=True, events=(PastEvent("record", "", "GAUSSIAN", 0.6, 1),)),),
        (ReleasedInput("bounds", "cd" * 32, holds=True),),
    ],
    "parameters": [
        {},
        {"a": 1.5},
        {"a": 1.5000000000000002, "b": BASE["parameters"]["b"]},
        {"a": 1.5, "b": {"c": [1, 2.5], "d": "y"}},
        {"a": 1.5, "b": {"c": [2.5, 1], "d": "x"}},
    ],
    "trust": [{}, {"sum": "other"}, {"mean": "trusted"}],
    "parties": [
        CARDS[:1],
        CARDS[::-1],
        (Card("Clinic", 500, COLUMNS), CARDS[1]),
        (Card("clinic", 501, COLUMNS), CARDS[1]),
        (Card("clinic", 500, COLUMNS[:1]), CARDS[1]),
        (Card("clinic", 500, COLUMNS[::-1]), CARDS[1]),
        *(
            (Card("clinic", 500, (column, COLUMNS[1])), CARDS[1])
            for column in (
                Column("Age", 0.0, 100.0),
                Column("age", 1e-300, 100.0),
                Column("age", 0.0, 100.00000000000001),
                Column("age", 0.0, 100.0, missing="absent"),
                Column("age", categories=("0", "100")),
            )
        ),
        *(
            (Card("clinic", 500, (COLUMNS[0], column)), CARDS[1])
            for column in (
                Column("sex", categories=("m", "f"), missing="absent"),
                Column("sex", categories=("f", "m"), missing="indicator"),
                Column("sex", categories=("f", "m", "d"), missing="absent"),
            )
        ),
    ],
}
ONE = ((RECORD, Reach(1.0, 1)),)
MECHANISMS = {
    "gaussian": (
        GaussianRelease((Block(2, 1.0),), ONE, 3.0),
        [
            GaussianRelease((Block(3, 1.0),), ONE, 3.0),
            GaussianRelease((Block(2, 1.0000000000000002),), ONE, 3.0),
            GaussianRelease((Block(1, 1.0), Block(1, 1.0)), ONE, 3.0),
            GaussianRelease((Block(2, 1.0),), ((RECORD, Reach(1.0, 2)),), 3.0),
            GaussianRelease((Block(2, 1.0),), ((RECORD, Reach(0.9, 1)),), 3.0),
            GaussianRelease((Block(2, 1.0),), ((ATTRIBUTE, Reach(1.0, 1)),), 3.0),
            GaussianRelease((Block(2, 1.0),), ONE, 3.0000000000000004),
            GaussianRelease((Block(2, 1.0),), ONE, 0.0),
        ],
    ),
    "share": (
        DistributedGaussian((Block(2, 1.0),), ONE, 3.0, 4),
        [
            DistributedGaussian((Block(3, 1.0),), ONE, 3.0, 4),
            DistributedGaussian((Block(2, 1.0),), ONE, 3.0, 5),
            DistributedGaussian((Block(2, 1.0),), ONE, 2.5, 4),
            DistributedGaussian((Block(2, 1.0),), ((RECORD, Reach(1.0, 2)),), 3.0, 4),
            GaussianRelease((Block(2, 1.0),), ONE, 3.0),
        ],
    ),
    "choice": (
        NoisyChoice(((RECORD, 0.5),), RECORD),
        [
            NoisyChoice(((RECORD, 0.6),), RECORD),
            NoisyChoice(((ATTRIBUTE, 0.5),), RECORD),
            NoisyChoice(((RECORD, 0.5),), ATTRIBUTE),
        ],
    ),
}


def hash_of(changes: dict, releases: tuple[Release, ...] = (), **others: object) -> str:
    return Plan(Study(**{**BASE, **changes}), others.pop("split", Split.VERTICAL), releases, **others).hash


def test_every_field_of_a_study_is_hashed() -> None:
    assert {*FIELD_CHANGES, "ids"} == set(Study.__struct_fields__)
    keyed = tuple(
        msgspec.structs.replace(card, key=digit * 64) for card, digit in zip(CARDS, "ab", strict=True)
    )  # ids are compared between keyed cards only
    assert hash_of({"parties": keyed, "ids": "aligned"}) != hash_of({"parties": keyed})
    hashes = [hash_of({})] + [hash_of({field: value}) for field, values in FIELD_CHANGES.items() for value in values]
    assert len(set(hashes)) == len(hashes)
    assert len(hashes[0]) == 64


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_number_of_a_mechanism_is_hashed(name: str) -> None:
    base, changed = MECHANISMS[name]
    hashes = [hash_of({}, (Release("r", "clinic", "s", mechanism),)) for mechanism in (base, *changed)]
    assert len(set(hashes)) == len(hashes)


SENTENCES = ("public", "not_protected", "assumptions", "voids", "trusted", "hidden")


def test_every_part_of_a_plan_is_hashed() -> None:
    mechanism = gaussian()
    release = Release("r", "clinic", "s", mechanism)
    hashes = [
        hash_of({}, (r,))
        for r in (release, *(replace(release, **c) for c in ({"name": "q"}, {"party": "lab"}, {"step": "t"}, {"count": 2})))
    ]
    hashes += [hash_of({}), hash_of({}, (release, release)), hash_of({}, (release,), split=Split.HORIZONTAL)]
    hashes += [hash_of({}, (release,), **{field: (Sentence("t.x", "x"),)}) for field in SENTENCES]
    assert len(set(hashes)) == len(hashes)


def test_the_order_of_a_dictionary_and_a_journey_do_not_change_the_hash() -> None:
    turned = {"parameters": {"b": {"d": "x", "c": [1, 2.5]}, "a": 1.5}}
    assert hash_of(turned) == hash_of({})
    assert hash_of({"epsilon": 1}) == hash_of({})
    for start in (study(), study(epsilon=2, delta=0), study(parameters={"columns": ("age",), "confidence": 0.9})):
        arrived = msgspec.msgpack.decode(msgspec.msgpack.encode(start), type=Study, strict=True)
        assert Plan(arrived, Split.VERTICAL, ()).hash == Plan(start, Split.VERTICAL, ()).hash


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_other_processes_compute_the_same_hash() -> None:
    program = """
from unpooled.models.describe.declared import compile_plan
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
columns = (Column("age", 0.0, 100.0), Column("sex", categories=("f", "m"), missing="absent"))
cards = (Card("clinic", 500, columns), Card("lab", 300, columns))
print(compile_plan(Study("describe", cards, 1.0, 1e-5, parameters={"confidence": 0.9, "columns": ["sex", "age"]}, derived=())).hash)
"""
    here = compile_plan(study(parameters={"columns": ["sex", "age"], "confidence": 0.9})).hash
    source = str(Path(unpooled.__file__).parents[1])
    for seed in ("1", "77"):
        ran = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": source},
        )
        assert ran.stdout.strip() == here


@pytest.mark.parametrize("changes", [{"epsilon": np.float64(1.0)}, {"delta": np.float64(1e-5)}])
def test_a_numpy_number_is_as_good_as_a_plain_one(changes: dict) -> None:
    assert Plan(study(**changes), Split.VERTICAL, ()).hash == Plan(study(), Split.VERTICAL, ()).hash


# --- what is made of a study ----------------------------------------------------------------------------------------------


NUMBERS = (Column("x", -1.0, 1.0), Column("y", -1.0, 1.0))
SETUPS = {
    "bayes": ("setup", NUMBERS, {}),
    "pls": ("setup", NUMBERS, {}),
    "pride": ("parts", NUMBERS[:1], {}),
    "stacking": ("setup", NUMBERS[:1], {"penalty": 1.0}),
}


@pytest.mark.parametrize("model", SETUPS)
def test_every_plan_holds_what_its_model_made_of_the_study(model: str) -> None:
    _, columns, parameters = SETUPS[model]
    labels = () if len(columns) == 2 else ("y",)
    asked = study(
        model=model, parties=tuple(Card(p, 50, columns, labels) for p in "ab"), parameters={"response": "y", **parameters}
    )
    assert load(model).compile(asked).design.parameters.response == "y"


def test_what_a_model_made_of_a_study_is_no_part_of_the_hash() -> None:
    one = compile_plan(study())
    assert one.design is not None
    assert replace(one, design=None).hash == one.hash
    assert replace(one, design=None) == one


def test_a_study_is_what_it_says_and_its_plan_keeps_its_hash() -> None:
    asked = study()
    assert asked == copy.deepcopy(asked) == study()
    assert set(msgspec.to_builtins(asked)) == set(Study.__struct_fields__)
    CARDS[0].column("age")  # what a card looks up beside its fields is none of them
    assert set(msgspec.to_builtins(CARDS[0])) <= set(Card.__struct_fields__)
    assert CARDS[0] == Card("clinic", 500, COLUMNS)
    assert hash(CARDS[0]) == hash(Card("clinic", 500, COLUMNS))
    # A version's plans keep their hashes, or approvals would lapse: whoever changes this one raises PLAN_VERSION.
    assert plan(0.1, 0.2).hash == "9caac0141fb31c3e7da8062d247e2d6244e639da01e1e26adf5e52a87c945717"


def test_a_card_of_many_columns_looks_them_up_and_lists_a_few() -> None:
    card = Card("wide", 5, tuple(Column(f"t{j}", 0.0, 1.0) for j in range(20_000)))
    assert all(card.column(column.name) is column for column in card.columns)
    with pytest.raises(UsageError, match=r"it has t0, t1, t2, t3, t4, \.\.\. \(19,995 more\)"):
        card.column("x")


# --- composition ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_a_value_pays_at_every_party_that_declares_its_column(seed: int) -> None:
    rng = np.random.default_rng(seed)
    held = [sorted(rng.choice(list("abcdef"), rng.integers(1, 5), replace=False).tolist()) for _ in range(4)]
    cards = tuple(Card(f"p{k}", 9, tuple(Column(name, 0.0, 1.0) for name in names)) for k, names in enumerate(held))
    mus = rng.uniform(0.05, 0.5, 4).tolist()
    releases = tuple(Release("sums", c.name, "sums", gaussian(2 * mu, mu)) for c, mu in zip(cards, mus, strict=True))
    made = Plan(study(parties=cards), Split.VERTICAL, releases)
    dearest = max(math.fsum(mu**2 for mu, names in zip(mus, held, strict=True) if name in names) for name in "abcdef")
    assert made.epsilon(1e-5, ATTRIBUTE) == pytest.approx(gaussian_epsilon(1e-5, math.sqrt(dearest)), rel=1e-9)


@pytest.mark.slow
def test_many_columns_are_composed_in_one_pass() -> None:
    columns = tuple(Column(f"t{j}", 0.0, 1.0) for j in range(40_000))
    cards = (Card("a", 9, columns[:20_001]), Card("b", 9, columns[20_000:]))
    releases = tuple(Release("sums", card.name, "sums", gaussian(0.2, 0.1)) for card in cards)
    made = Plan(study(parties=cards), Split.VERTICAL, releases)
    began = time.process_time()
    assert made.epsilon(1e-5, ATTRIBUTE) == pytest.approx(gaussian_epsilon(1e-5, math.hypot(0.1, 0.1)))  # t20000 is at both
    assert time.process_time() - began < 10


@pytest.mark.guarantee
def test_a_record_of_a_vertical_study_pays_for_all_parties() -> None:
    both = plan(0.3, 0.4)
    together = Composition([gaussian(0.3).event(RECORD), gaussian(0.4).event(RECORD)])
    assert together.mu == pytest.approx(0.5)
    assert both.epsilon(1e-5) == together.epsilon(1e-5)
    assert both.delta(1.0) == together.delta(1.0)
    assert both.cost("record").compositions[0].events == together.events
    assert both.cost("record", "lab").compositions[0].events == together.events
    assert both.cost("record", "lab", Scope.PARTY).compositions[0].events == together.events[1:]


@pytest.mark.parametrize(
    ("split", "unit"), [(Split.HORIZONTAL, "record"), (Split.HORIZONTAL, "attribute"), (Split.VERTICAL, "attribute")]
)
def test_what_is_at_one_party_pays_for_the_worst(split: Split, unit: str) -> None:
    apart = (CARDS[0], Card("lab", 300, (Column("dose", 0.0, 1.0),)))  # no column in common
    both, alone = plan(0.3, 0.4, split=split, parties=apart), Composition([gaussian(0.4, 0.2).event(Unit(unit))])
    assert both.epsilon(1e-5, unit) == alone.epsilon(1e-5)
    assert both.delta(0.5, unit) == alone.delta(0.5)
    assert plan(0.4, 0.3, split=split, parties=apart).epsilon(1e-5, unit) == alone.epsilon(1e-5)


def test_releases_of_one_party_add_up_whatever_the_split() -> None:
    releases = tuple(Release(name, "clinic", "s", gaussian(0.3)) for name in "ab")
    for split in Split:
        assert Plan(study(), split, releases).epsilon(1e-5) == Composition([gaussian(0.3).event(RECORD)] * 2).epsilon(1e-5)


def test_a_release_that_is_repeated_is_charged_every_time() -> None:
    release = Release("r", "clinic", "s", gaussian(0.2), count=4)
    assert Plan(study(), Split.VERTICAL, (release,)).cost(RECORD).compositions[0].mu == pytest.approx(0.4)
    assert (release.size, release.scale, release.sensitivity("attribute")) == (2, 10.0, 1.0)


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
def test_epsilon_and_delta_are_inverse(delta: float) -> None:
    for unit in (None, "record", "attribute"):
        both = plan(0.3, 0.4)
        epsilon = both.epsilon(delta, unit)
        assert both.delta(epsilon, unit) <= delta
        assert both.delta(epsilon * (1 - 1e-6), unit) > delta
    assert plan(0.3, 0.4, unit="attribute").epsilon(delta) == plan(0.3, 0.4).epsilon(delta, ATTRIBUTE)


def test_an_attribute_that_two_parties_hold_pays_twice() -> None:
    both = plan(0.3, 0.4)  # both cards declare age and sex
    assert both.epsilon(1e-5, "attribute") >= Composition(
        [gaussian(0.3, 0.15).event(ATTRIBUTE), gaussian(0.4, 0.2).event(ATTRIBUTE)]
    ).epsilon(1e-5)


@pytest.mark.parametrize("unit", ["record", "attribute"])
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("epsilon", [0.1, 1, 10.0])
def test_a_compiled_plan_costs_what_was_asked_and_no_more(unit: str, adjacency: str, epsilon: float) -> None:
    compiled = compile_plan(study(unit=unit, adjacency=adjacency, epsilon=epsilon))
    assert compiled.delta(epsilon) <= 1e-5
    assert compiled.epsilon(1e-5) == pytest.approx(epsilon, rel=1e-6)
    assert compiled.statement.holds
    assert (compiled.epsilon(1e-5, "attribute") < 0.9 * epsilon) == (unit == "record")


def test_a_plan_prints_its_releases() -> None:
    choice = Release("pick", "lab", "step", NoisyChoice(((RECORD, 0.1), (ATTRIBUTE, 0.1)), RECORD), count=3)
    both = plan(0.3, 0.4)
    text = str(
        Plan(
            both.study, both.split, (*both.releases, choice), public=(Sentence("t.labels", "The labels are known to all."),)
        )
    )
    for words in (
        "clinic",
        "lab",
        "pick x 3",
        "in the run",
        "rounded Gaussian",
        "public: The labels",
        "per record: epsilon =",
        "per attribute: epsilon =",
    ):
        assert words in text


# --- statements -----------------------------------------------------------------------------------------------------------


def test_a_sound_statement_says_what_holds() -> None:
    here = plan(0.1, 0.1)
    statement = here.statement
    assert statement.holds
    assert statement.warnings == ()
    assert statement.plan == here.hash
    text = str(statement)
    assert text.startswith(
        f"Differentially private with epsilon = {here.epsilon(1e-5):.4g}, delta = 1e-05: if one person's whole row is replaced"
    )
    assert "For one value of one person, the arithmetic alone gives: epsilon =" in text
    assert "all other parties, the coordinator and readers of the results" in text
    assert "NOT protected: How many rows" in text
    assert "the same at every party" in text
    data = statement.to_dict()
    assert data["epsilon_per_unit"] == {"record": here.epsilon(1e-5), "attribute": here.epsilon(1e-5, "attribute")}
    assert data["holds"] is True


@pytest.mark.guarantee
def test_a_statement_speaks_of_its_own_split_unit_and_adjacency() -> None:
    text = str(plan(0.1, 0.1, split=Split.HORIZONTAL, unit="attribute", adjacency="zero-out").statement)
    assert "if one value of one person is replaced by no contribution at all" in text
    assert "Each person is in one row of one party." in text
    assert "everyone outside the party that holds the row" in text
    assert "For one person's whole row, the arithmetic alone gives" in text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"calibration": "published"}, "calibration that the paper published"),
        ({"derived": ("bounds",)}, "Bounds were read off the data"),
        ({"derived": ("classes",)}, "Classes were read off the data"),
        ({"simulation_seed": 0}, "simulation"),
    ],
)
def test_a_statement_that_does_not_hold_says_so_and_why(changes: dict, words: str) -> None:
    statement = plan(0.1, 0.1, **changes).statement
    assert not statement.holds
    assert any(words in warning for warning in statement.warnings)
    assert str(statement).startswith("NO privacy guarantee holds")
    assert "Protected against" not in str(statement)  # by a promise that does not hold nobody is protected
    assert "For one person's whole row, the arithmetic alone gives: epsilon =" in str(statement)


def test_an_infinite_epsilon_protects_nothing() -> None:
    statement = compile_plan(study(epsilon=math.inf)).statement
    assert not statement.holds
    assert any("epsilon is infinite" in warning for warning in statement.warnings)
    assert "gives: none." in str(statement)
    assert statement.epsilon_per_unit == {"record": math.inf, "attribute": math.inf}


@pytest.mark.parametrize(("delta", "warned"), [(1 / 300, True), (0.1, True), (1 / 301, False)])
def test_a_delta_of_one_over_the_fewest_rows_draws_a_warning(delta: float, warned: bool) -> None:
    statement = plan(0.1, 0.1, delta=delta).statement
    assert any("at least 1/300" in warning for warning in statement.warnings) == warned
    assert statement.holds


def test_a_statement_repeats_what_the_model_says() -> None:
    here = plan(0.1, 0.1)
    text = str(
        Plan(
            here.study,
            here.split,
            here.releases,
            (Sentence("t.a", "Signs are public."),),
            (Sentence("t.b", "The labels."),),
            (Sentence("t.c", "Noise is drawn here."),),
        ).statement
    )
    for line in ("NOT protected: Signs are public.", "NOT protected: The labels.", "Assumed: Noise is drawn here."):
        assert line in text


# --- policies -------------------------------------------------------------------------------------------------------------


def policy(**changes: object) -> Policy:
    return replace(Policy(Target(1.0, 1e-5), approved=None, allow_in_process=True), **changes)


def test_a_policy_that_finds_nothing_wrong_says_nothing() -> None:
    assert policy().check(plan(0.1, 0.1), approved_in_ledger=False) is None
    assert not policy().allows_unbounded


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("changes", "words", "allowed"),
    [
        ({"calibration": "published"}, "allows calibration sound, not published", {"calibrations": frozenset(Calibration)}),
        ({"simulation_seed": 0}, "simulation seed", {"allow_simulation": True}),
        ({"derived": ("bounds",)}, "read off data", {"allow_derived": True}),
        ({"trust": {"aggregation": "trusted"}}, "to trust aggregation = 'trusted'", {"trust": frozenset({"trusted"})}),
        ({"trust": {"aggregation": "trusted"}}, "to trust", {"trust": frozenset({"*"})}),
    ],
)
def test_a_policy_refuses_until_it_allows(changes: dict, words: str, allowed: dict) -> None:
    here = plan(0.1, 0.1, **changes)
    with pytest.raises(PolicyRefusal, match=words):
        policy().check(here, approved_in_ledger=True)
    policy(**allowed).check(here, approved_in_ledger=True)


def test_one_trusted_word_does_not_cover_another() -> None:
    with pytest.raises(PolicyRefusal, match="'local'"):
        policy(trust=frozenset({"trusted"})).check(plan(0.1, trust={"a": "trusted", "b": "local"}), approved_in_ledger=True)


@pytest.mark.guarantee
def test_a_plan_needs_an_approval_somewhere() -> None:
    here = plan(0.1, 0.1)
    asking = policy(approved=frozenset())
    with pytest.raises(PolicyRefusal, match=f"plan {here.hash[:16]} is not approved"):
        asking.check(here, approved_in_ledger=False)
    asking.check(here, approved_in_ledger=True)
    policy(approved=frozenset({here.hash})).check(here, approved_in_ledger=False)
    with pytest.raises(PolicyRefusal, match="not approved"):
        policy(approved=frozenset({plan(0.1, 0.2).hash})).check(here, approved_in_ledger=False)
    assert Policy(None).approved == frozenset()


def test_whoever_owns_the_process_may_do_everything() -> None:
    owner = Policy.in_process()
    assert owner.budget is None
    assert owner.allows_unbounded
    owner.check(
        plan(0.1, 0.1, calibration="published", simulation_seed=1, derived=("bounds", "classes"), trust={"a": "anything"}),
        approved_in_ledger=False,
    )


@pytest.mark.guarantee
def test_an_unbounded_release_has_no_epsilon_in_a_plan() -> None:
    release = Release("raw", "clinic", "s", replace(gaussian(), scale=0.0), count=2)
    here = Plan(study(), Split.VERTICAL, (release,))
    assert here.cost(RECORD).compositions[0].events[0].kind is UNBOUNDED.kind
    assert here.epsilon(1e-5) == math.inf
    assert not here.statement.holds
    assert plan(gaussian_mu(1.0, 1e-5) * (1 - SAFETY)).delta(1.0) <= 1e-5


@pytest.mark.guarantee
def test_columns_of_parties_are_named_or_counted() -> None:
    names = [f"t{j}" for j in range(40_000)]
    assert [column_named(names, column) for column in ("t7", 7, -1)] == ["t7", "t7", "t39999"]
    began = time.process_time()
    assert columns_of_parties({"a": names[20_000:], "b": list(range(20_000))}, names) == {
        "a": names[20_000:],
        "b": names[:20_000],
    }
    assert time.process_time() - began < 2
    for wrong in ("x", 40_000, -40_001):
        with pytest.raises(UsageError, match="no column"):
            columns_of_parties({"a": [wrong]}, names)
    with pytest.raises(UsageError, match="at least 1"):
        columns_of_parties(0, names)


def test_a_model_has_no_split_beside_that_of_its_plans() -> None:
    from unpooled.protocol.registry import Model

    assert "split" not in Model.__dataclass_fields__


# --- sentences ------------------------------------------------------------------------------------------------------------


def test_a_hash_holds_keys_and_values_and_never_words() -> None:
    def hashed(key: str, words: str, **values: object) -> str:
        return replace(plan(0.1, 0.1), public=(Sentence(key, words, **values),)).hash

    first = hashed("t.rows", "The coordinator sees {rows} rows.", rows=3)
    assert hashed("t.rows", "Le coordinateur voit {rows} lignes.", rows=3) == first
    assert hashed("t.rows", "The coordinator sees {rows} rows.", rows=4) != first
    assert hashed("t.others", "The coordinator sees {rows} rows.", rows=3) != first
    assert replace(plan(0.1, 0.1), not_protected=(Sentence("t.rows", "{rows}", rows=3),)).hash != first, "its place counts"


@pytest.mark.guarantee
def test_a_sentence_says_what_it_is_made_of() -> None:
    said = Sentence("t.rows", "{name} sees {rows:,} rows.", name="ann", rows=3000)
    assert said == "ann sees 3,000 rows."
    assert said.identity == ("t.rows", (("name", "ann"), ("rows", 3000)))
    for twin in (copy.deepcopy(said), pickle.loads(pickle.dumps(said))):
        assert (twin, twin.identity) == (said, said.identity)
    with pytest.raises(UsageError, match="does not say its value 'rows'"):
        Sentence("t.rows", "Rows.", rows=3)
    with pytest.raises(UsageError, match="key of a sentence"):
        Sentence("Two words", "Rows.")
    with pytest.raises(UsageError, match="sentences with a key"):
        replace(plan(0.1, 0.1), public=("Rows.",))


@pytest.mark.guarantee
def test_what_has_its_default_is_not_in_the_hash() -> None:
    from unpooled.privacy.plan import _said

    assert set(_said(study())) == {"model", "parties", "epsilon", "delta", "derived"}
    assert "justification" in _said(study(justification="a first look"))
    for text in ("two\nlines", "x" * 5000):
        with pytest.raises(UsageError, match="justification is one line"):
            study(justification=text)
    assert plan(0.1, 0.1).hash != plan(0.1, 0.1, justification="a first look").hash


def test_parties_of_one_process_compile_a_study_once_and_another_one_anew() -> None:
    compiled = []

    def counted(asked: Study) -> Plan:
        compiled.append(asked)
        return compile_plan(asked)

    model = replace(load("describe"), compile_plan=counted)
    made = model.compile(study())
    shared = _shared(model, made)
    assert shared.compile(msgspec.structs.replace(study())) is made
    assert len(compiled) == 1
    assert shared.compile(study(epsilon=2.0)).hash != made.hash
    assert len(compiled) == 2
