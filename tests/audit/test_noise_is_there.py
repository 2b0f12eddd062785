"""FINDINGS G9: the noise is there, with the planned law, under every key. A replay with frozen noise cannot see noise that is absent.

Every registered study runs under many root keys, with real (not simulated) keys. What each mechanism was given and what it gave back is
written down at the mechanism itself.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
import pytest
from cases import CASES
from scipy import stats
from world import minimised, sized

from unpooled.audit import presence
from unpooled.audit.presence import audit_noise
from unpooled.models import load
from unpooled.privacy import noise
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import (
    Vector,
)
from unpooled.privacy.noise import KeySource, Stream
from unpooled.privacy.policy import Policy
from unpooled.protocol.party import Party
from unpooled.testing.noise import *

LONG = {
    "test_noise_has_the_planned_law_and_differs_between_keys": [
        "glm, columns of counts",
        "glm, columns of times",
        "effects, survival",
    ],
    "test_every_act_has_a_key_of_its_own_in_every_run": [
        "glm, columns of counts",
        "glm, columns of times",
        "effects, survival",
    ],
    "test_another_statistic_under_the_same_key_gets_unrelated_noise": [
        "glm, columns of counts",
        "glm, columns of times",
        "effects, survival",
    ],
}

#: Where a test of many cases says no once in a million.
RARE = 1e-6


def test_what_a_request_decides_of_an_objective_is_in_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another request over the same data at a ledger that was rolled back: unrelated noise, or the difference would be free of it."""
    from unpooled.models.stacking.plan import MetaRequest
    from unpooled.protocol.conversation import OpenRequest
    from unpooled.protocol.messages import Array, encode

    case = CASES["stacking"]()
    model, study = load("stacking"), msgspec.structs.replace(case.study, simulation_seed=None)
    plan, name = model.compile(study), "laboratory"
    size = round(study.card(name).rows * 0.3)
    perturbations = []
    for value in (0.5, 0.50001):
        ledger = Ledger.in_memory(bytes(32))
        party = Party(name, case.tables[name], study.card(name), ledger, KeySource(bytes(32)), Policy.in_process(), load)
        party.answer(encode(plan.hash, "open", 0, OpenRequest(study)))
        with noted(monkeypatch) as notes:
            party.answer(encode(plan.hash, "meta", 0, MetaRequest((Array.of(np.full(size, value)),) * 3)))
        perturbations.append(notes.drawn[0].perturbation)
    assert not np.array_equal(*perturbations)


def test_the_run_s_sensitivity_is_in_the_noise_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """FINDINGS G14: equal statistics under two scales and one key would give the statistic as 2 a - b."""
    from unpooled.protocol.desk import OpenDesk

    case = CASES["lasso"]()
    study = msgspec.structs.replace(case.study, simulation_seed=None)
    plan = load("lasso").compile(study)
    name = study.parties[0].name
    made = []
    for sensitivity in (1.0, 2.0):
        ledger = Ledger.in_memory(bytes(32))
        party = Party(name, case.tables[name], study.card(name), ledger, KeySource(bytes(32)), Policy.in_process(), load)
        with noted(monkeypatch) as notes:
            desk = OpenDesk(party, plan, "pick", 0, b"asked")
            made.append(desk.release("score", Vector(np.array([0.25]), sensitivity)).values.numpy())
        made.append(notes.drawn[0].stream)
    (a, key), (b, other) = made[:2], made[2:]
    assert key != other
    assert abs((2 * a - b)[0] - 0.25) > 1e-9


def test_the_solver_s_residual_is_covered_by_noise_of_the_width_of_the_theorem() -> None:
    """Theorem S.2: two solutions of residual g lie within 2 g / Lambda of one minimiser; noise of that over e_c costs e_c."""
    from unpooled.models.stacking.declared import Fit, fits

    (mechanism,) = fits(
        msgspec.structs.replace(CASES["stacking"]().study, simulation_seed=None), [Fit(3, 50, 1.0)], 0.01, 1.0
    )
    assert mechanism.covering > 0
    bits = (KeySource(sha256(bytes([k % 256, k // 256])).digest()).stream("covering") for k in range(400))
    norms = [float(np.linalg.norm(minimised(mechanism, lambda b: np.zeros(3), bit))) for bit in bits]
    width = 2 * mechanism.residual / (mechanism.penalty * mechanism.covering)
    assert stats.kstest(norms, stats.gamma(3, scale=width).cdf).pvalue > 1e-4


# --- the checks above must be able to fail -------------------------------------------------------------------------------------


def fails(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, broken: Any, check: Callable[[], None]) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, broken)
        with pytest.raises(AssertionError):
            check()


@pytest.mark.long
def test_absent_or_smaller_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    case, original = CASES["describe"](), noise.rounded_gaussian

    def check() -> None:
        assert not audit_noise(load(case.model), case.study, case.tables, registry=load, keys=KEYS)

    check()
    for factor in (0.0, 0.7, 0.95):

        def weak(scale: float, size: int, *, factor: float = factor, **options: Any) -> np.ndarray:
            return np.rint(factor * original(scale, size, **options)).astype(np.int64)

        fails(monkeypatch, noise, "rounded_gaussian", weak, check)


#: Noise that is right coordinate by coordinate and wrong jointly; ``seen`` is the number of keys with which it is caught.
JOINTLY_WRONG: dict[str, tuple[Callable[[np.ndarray, float], np.ndarray], int]] = {
    "opposite in pairs of coordinates": (lambda z, _: np.where(np.arange(z.size) % 2, -np.roll(z, 1), z), 12),
    "opposite in both halves": (
        lambda z, _: np.concatenate([z[: z.size // 2], -z[: z.size // 2], z[2 * (z.size // 2) :]]),
        12,
    ),
    "the same in both halves": (
        lambda z, _: np.concatenate([z[: z.size // 2], z[: z.size // 2], z[2 * (z.size // 2) :]]),
        12,
    ),
    "always even": (lambda z, _: 2 * (z // 2), 12),
    "never a multiple of four": (lambda z, _: z + (z % 4 == 0), 12),
    "of Laplace's law with the same deviation": (
        lambda z, scale: np.rint(
            np.sign(z) * -np.log(np.maximum(2 * stats.norm.sf(np.abs(z) / scale), 1e-300)) * scale / np.sqrt(2)
        ).astype(np.int64),
        100,
    ),
}


@pytest.mark.long_for("of Laplace's law with the same deviation", "opposite in pairs of coordinates")
@pytest.mark.parametrize("name", JOINTLY_WRONG)
def test_noise_that_is_wrong_jointly_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    case, original = CASES["describe"](), noise.rounded_gaussian
    bent, keys = JOINTLY_WRONG[name]
    # Wide noise: what is coarse is told by its values.
    study = msgspec.structs.replace(case.study, epsilon=0.1)

    def check() -> None:
        assert not audit_noise(load(case.model), study, case.tables, registry=load, keys=keys)

    check()
    fails(
        monkeypatch,
        noise,
        "rounded_gaussian",
        lambda scale, size, **options: bent(original(scale, size, **options), scale),
        check,
    )


@pytest.mark.long
def test_noise_of_two_parts_that_share_a_stream_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """P18: the law of each number is right, and 406 tests saw nothing."""
    case = CASES["bayes, columns"]()
    study = msgspec.structs.replace(case.study, simulation_seed=None)

    def check() -> None:
        assert not audit_noise(load(case.model), study, case.tables, registry=load, keys=2)

    check()
    fails(monkeypatch, noise, "_Apart", lambda bits: bits, check)


def test_noise_that_parties_or_keys_share_up_to_its_sign_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    case, original = CASES["describe"](), noise.rounded_gaussian
    study = msgspec.structs.replace(case.study, epsilon=0.1)
    monkeypatch.setattr(presence, "ENOUGH", 0)  # draws are counted by runs
    drawn: list[np.ndarray] = []

    def check() -> None:
        drawn.clear()
        assert not audit_noise(load(case.model), study, case.tables, registry=load, keys=KEYS)

    check()
    monkeypatch.setattr(
        noise, "rounded_gaussian", lambda *given, **options: drawn.append(original(*given, **options)) or drawn[-1]
    )
    check()
    per_run = len(drawn) // (KEYS + 1)  # and one run whose streams are noted
    per_party = per_run // len(case.tables)

    def between_parties(scale: float, size: int, **options: Any) -> np.ndarray:
        place = len(drawn) % per_run
        drawn.append(original(scale, size, **options))
        return -drawn[-1 - per_party] if per_party <= place < 2 * per_party else drawn[-1]

    def between_keys(scale: float, size: int, **options: Any) -> np.ndarray:
        drawn.append(original(scale, size, **options))
        return -drawn[-1 - per_run] if per_run < len(drawn) <= 2 * per_run else drawn[-1]

    for bent in (between_parties, between_keys):
        fails(monkeypatch, noise, "rounded_gaussian", bent, check)


def test_tests_of_joint_laws_are_wrong_as_often_as_they_say() -> None:
    """Under honest noise the smallest chance of many pairs, times their number, is below a tenth in at most a tenth of the trials; so the others."""
    from unpooled.audit import presence

    rng = np.random.default_rng(5)
    trials = sized(4000, 400)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presence, "RARE", 0.1)
        pairs = sum(presence.wrong_pair(rng.standard_normal((12, 30))) is not None for _ in range(trials))
        bits = sum(
            len([*presence.wrong_bits(np.rint(40 * rng.standard_normal(500)).astype(np.int64), 40.0)]) for _ in range(trials)
        )
        tails = sum(len([*presence.wrong_tails(rng.standard_normal(2000))]) for _ in range(trials))
    most = 0.1 + 4 * np.sqrt(0.09 / trials)
    assert pairs / trials < most
    assert bits / trials / 3 < most
    assert tails / trials / 3 < most
    assert pairs > 0  # the bound over pairs is close to what happens
    assert bits > 0


def test_no_two_lists_of_names_have_one_stream() -> None:
    """Parties, releases, rounds and contents whose letters run together in the same way are told apart, and so are a number and its digits."""
    keys, rng = KeySource(bytes(32)), np.random.default_rng(3)
    lists: set[tuple[str | int | bytes, ...]] = {("1",), (1,), (b"1",), ("", "1"), ("1", "")}
    for letters in ("northsums", "aaaa", "s1s2s3", "11"):
        for _ in range(40):
            cuts = sorted(rng.integers(0, len(letters) + 1, size=int(rng.integers(0, 4))).tolist())
            lists.add(tuple(letters[a:b] for a, b in zip([0, *cuts], [*cuts, len(letters)], strict=True)))
    drawn = {names: keys.stream(*names).words(0, 2).tobytes() for names in lists}
    drawn |= {
        (*names[:-1], "content"): keys.stream(*names[:-1], content=str(names[-1]).encode()).words(0, 2).tobytes()
        for names in lists
        if names[-1] != ""
    }
    assert len(set(drawn.values())) == len(drawn)


def test_keys_that_forget_the_statistic_or_the_party_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = KeySource.stream

    def forgetful(self: KeySource, *names: str | int | bytes, content: bytes = b"") -> Stream:
        del content
        return original(self, *names)

    def anonymous(self: KeySource, *names: str | int | bytes, content: bytes = b"") -> Stream:
        return original(self, *(n for k, n in enumerate(names) if k != 1), content=content)

    fails(
        monkeypatch,
        KeySource,
        "stream",
        forgetful,
        lambda: test_another_statistic_under_the_same_key_gets_unrelated_noise(CASES["describe"](), monkeypatch),
    )
    fails(
        monkeypatch,
        KeySource,
        "stream",
        anonymous,
        lambda: test_two_parties_with_equal_data_draw_different_noise_even_in_a_simulation(CASES["describe"](), monkeypatch),
    )
