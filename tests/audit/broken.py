"""Mechanisms, studies and whole models that are broken on purpose, each as somebody might write it; an audit must catch every one.

A row is a function of a ``MonkeyPatch`` and of whether to break: what the audit finds in the honest form (nothing) and in the broken one.
"""

from __future__ import annotations

import dataclasses
import hmac
import itertools
import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import plain_sums
import pytest
from cases import CASES
from scipy.special import expit, softmax
from test_audited_households import audit as audit_households
from test_audited_households import study as household_study

from unpooled import PrivateBayesianRegression, PrivatePLSRegression
from unpooled.audit.account import audit_account
from unpooled.audit.attacks import empirical_epsilon
from unpooled.audit.orders import audit_orders
from unpooled.audit.presence import audit_noise
from unpooled.audit.replay import replay
from unpooled.audit.stage import Act, share
from unpooled.audit.transcripts import audit_sealed, audit_transcript
from unpooled.linear.layout import MomentsLayout
from unpooled.models import load
from unpooled.models.describe import declared
from unpooled.models.effects import partial as effects_partial
from unpooled.models.effects import sums as effects_sums
from unpooled.models.stacking import rows as stacking_rows
from unpooled.models.survival import declared as survival_declared
from unpooled.privacy import exposure, noise
from unpooled.privacy import table as household
from unpooled.privacy.bounds import Column
from unpooled.privacy.events import NO_COST
from unpooled.privacy.exposure import Exposure
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.mechanisms import (
    GaussianObjective,
    GaussianRelease,
    LossShape,
    LossSign,
    Objective,
    ObjectivePerturbation,
    Reach,
    ScaledGaussian,
    Vector,
)
from unpooled.privacy.noise import KeySource
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Unit
from unpooled.protocol import party
from unpooled.protocol.desk import OpenDesk
from unpooled.protocol.messages import Array, Entrusted, Public, Released
from unpooled.study.made_up import made_up
from unpooled.totals import secure_sum

#: Whatever an audit says.
Found = list[Any]
Broken = Callable[..., Found]
BROKEN: dict[str, Broken] = {}


def breaks(what: str) -> Callable[[Broken], Broken]:
    def row(run: Broken) -> Broken:
        BROKEN[what] = run
        return run

    return row


def replayed(model: Any, study: Study | None = None, rounds: int = 3) -> Found:
    return replay(
        model, study or plain_sums.study(), plain_sums.tables(), registry=lambda _: model, rounds=rounds
    ).violations


def of_case(name: str, **changes: Any) -> tuple[Any, Study, dict[str, Table]]:
    case = CASES[name]()
    model = load(case.model)
    return model, *made_up(model, msgspec.structs.replace(case.study, **changes), 12)


# --- sensitivities --------------------------------------------------------------------------------------------------------------


@breaks("the largest coordinate in the place of the length")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    def reach(study: Study) -> dict[Unit, Reach]:
        found = plain_sums.reaches(study)
        return {**found, Unit.RECORD: found[Unit.ATTRIBUTE]}

    return replayed(plain_sums.model(reach if broken else plain_sums.reaches))


@breaks("the lower bound used twice")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    def far(column: Column, _adjacency: Any) -> float:
        return 200 * abs(column.range[0])

    return replayed(plain_sums.model((lambda s: plain_sums.reaches(s, far)) if broken else plain_sums.reaches))


@breaks("another row taken as a row left out")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    def reach(study: Study) -> dict[Unit, Reach]:
        return plain_sums.reaches(msgspec.structs.replace(study, adjacency="zero-out" if broken else study.adjacency))

    return replayed(plain_sums.model(reach))


@breaks("values beyond the declared range are not clipped")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    if broken:
        patch.setattr(plain_sums.np, "clip", lambda values, *_: values)
    return replayed(plain_sums.model())


@breaks("ranges read off the data")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    def sums(context: Any, _request: Any) -> plain_sums.Sums:
        found = []
        for column in plain_sums.COLUMNS:
            x, (low, high) = context.table[column.name], column.range
            ends = (x.min(), x.max()) if broken else (low, high)
            found.append(np.rint(100 * (low + (high - low) * (np.clip(x, *ends) - ends[0]) / (ends[1] - ends[0]))).sum())
        return plain_sums.Sums(context.release("sums", Vector(np.array(found, dtype=np.int64))))

    return replayed(plain_sums.model(said=sums))


@breaks("divided by its own length before the noise")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    def sums(context: Any, _request: Any) -> plain_sums.Sums:
        found = plain_sums.sums(context)
        if broken:
            found = np.rint(found * (40000.0 / np.linalg.norm(found[::4]))).astype(np.int64)
        return plain_sums.Sums(context.release("sums", Vector(found)))

    return replayed(plain_sums.model(said=sums))


@breaks("an indicator under zero-out (G3)")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    columns = (*(Column(f"x{j}", -1.0, 1.0, missing="indicator") for j in range(2)), Column("y", -1.0, 1.0))
    rng = np.random.default_rng(1)
    tables = {name: Table({c.name: rng.uniform(-1, 1, 12) for c in columns}) for name in ("a", "b")}
    cards = tuple(Card(name, 12, columns) for name in tables)
    parameters = {"response": "y", "norm": 1.0, "fit_intercept": False}
    trust = {"aggregation": "trusted"}
    asked = Study("bayes", cards, 1.0, 1e-5, adjacency="zero-out", trust=trust, parameters=parameters, derived=())
    if broken:
        patch.setattr(MomentsLayout, "makes_other_rows", False)
    return replay(load("bayes"), asked, tables, registry=load, rounds=6).violations


@breaks("all rows of a household for the price of one")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    if broken:
        patch.setattr(Reach, "times", lambda self, _rows: self)
    return audit_households(household_study("describe")).violations


@breaks("rows of a household beyond those that count")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    asked = household_study("describe", most=1)
    three = tuple(
        msgspec.structs.replace(c, rows=24, household=dataclasses_household(c.household, 3)) for c in asked.parties
    )
    _, tables = made_up(load("describe"), msgspec.structs.replace(asked, parties=three), 24)
    if broken:
        patch.setattr(household, "counted", lambda ids, *_: np.ones(ids.size, dtype=bool))
    own = {name: household.BoundedTable(table._own(), table._owners, 1) for name, table in tables.items()}  # type: ignore[attr-defined]
    return replay(load("describe"), asked, own, registry=load, rounds=2).violations


def dataclasses_household(card: Any, rows: int) -> Any:
    return msgspec.structs.replace(card, rows=rows)


# --- objectives -----------------------------------------------------------------------------------------------------------------


def newton(gradient: Callable, hessian: Callable, size: int) -> Callable[[np.ndarray], np.ndarray]:
    def solve(term: np.ndarray) -> np.ndarray:
        w = np.zeros(size)
        for _ in range(300):
            slope = gradient(w) + term
            step = np.linalg.solve(hessian(w), slope)
            step *= min(1.0, 2.0 / np.abs(step).max(initial=1e-300))
            w = w - step
            if np.abs(step).max() < 1e-13:
                break
        return w

    return solve


def logistic(rows: np.ndarray, ridge: np.ndarray) -> Objective:
    def gradient(w: np.ndarray) -> np.ndarray:
        return -rows.T @ expit(-rows @ w) + ridge * w

    def hessian(w: np.ndarray) -> np.ndarray:
        u = rows @ w
        return (rows.T * (expit(u) * expit(-u))) @ rows + np.diag(ridge)

    return Objective(newton(gradient, hessian, rows.shape[1]), (rows, ridge))


def pairs(seed: int, count: int, columns: int) -> Any:
    """Small neighbouring sets of rows of length 1, many of them equal: there determinants change most."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        rows = rng.normal(size=(int(rng.integers(1, 4)), columns))
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        changed = rows.copy()
        other = rng.normal(size=columns)
        changed[0] = -rows[0] if rng.random() < 0.5 else other / np.linalg.norm(other)
        yield rows, changed


@breaks("an intercept without a penalty")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    """The loss is no longer strongly convex in it: a determinant has no bound."""
    found, penalty, rng = [], 2.0, np.random.default_rng(2)
    for rows, changed in pairs(0, 60, 2):
        n = len(rows)
        mechanism = ObjectivePerturbation(2, n, 1.0, penalty / n, 1.0, 2.0, 0.0)
        term, ridge = 2 * rng.normal(size=2), np.array([penalty, 1e-3 if broken else penalty])
        one, other = (
            Act("fit", mechanism, logistic(half / math.sqrt(2), ridge), np.zeros(2), term)
            for half in (np.c_[data[:, :1], np.ones(n)] for data in (rows, changed))
        )
        part = share(one, other, mechanism.event(Unit.RECORD))
        found += [part] if part is None or part > 1.001 else []
    return found


@breaks("a softmax with the determinant of one predictor")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    found, penalty, rng = [], 0.5, np.random.default_rng(3)
    for rows, changed in pairs(1, 40, 1):
        n, classes = len(rows), 3

        def objective(data: np.ndarray, y: np.ndarray) -> Objective:
            def gradient(w: np.ndarray) -> np.ndarray:
                p = softmax(np.outer(data[:, 0], w), axis=1)
                return (data[:, :1] * (p - np.eye(3)[y])).sum(axis=0) + penalty * w

            def hessian(w: np.ndarray) -> np.ndarray:
                p = softmax(np.outer(data[:, 0], w), axis=1)
                return sum(
                    x * x * (np.diag(q) - np.outer(q, q)) for x, q in zip(data[:, 0], p, strict=True)
                ) + penalty * np.eye(3)

            return Objective(newton(gradient, hessian, 3), (data, y))

        shape = LossShape(LossSign.SOFTMAX, classes)
        mechanism = GaussianObjective(
            classes, n, 1.0, penalty / n, 4.0, 2.0, 0.0, factors=1 if broken else classes - 1, curvature=0.25 if broken else 0.5,
            predictors=classes, slope=math.sqrt(2.0), shape=shape,
        )  # fmt: skip
        y, term = rng.integers(classes, size=n), rng.normal(size=classes)
        one, other = (Act("fit", mechanism, objective(d, y), np.zeros(classes), term) for d in (rows, changed))
        part = share(one, other, mechanism.event(Unit.RECORD))
        found += [part] if part is None or part > 1.001 else []
    return found


# --- composition ----------------------------------------------------------------------------------------------------------------


@breaks("composition forgotten")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model = plain_sums.model(rounds=3)
    if broken:
        patch.setattr(Exposure, "times", lambda *_: 1)
    return replayed(model)


@breaks("fits of the same rows, each at the whole epsilon (Corollary 6)")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    parameters = {**CASES["stacking"]().study.parameters, "holder": ""}
    model, study, tables = of_case("stacking", unit="record", trust={"meta": "public-weights"}, parameters=parameters)
    if broken:
        original = exposure.neighbours
        patch.setattr(exposure, "neighbours", lambda *given: tuple((e,) for events in original(*given) for e in events))
    return replay(model, study, tables, registry=load, rounds=1).violations


@breaks("counts of every cell from the score upwards, priced as counts of single cells (Theorem S.16)")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("stacking, probabilities", unit="record")
    if broken:
        original = stacking_rows.counted

        def upwards(*given: Any) -> Any:
            return np.cumsum(original(*given))

        patch.setattr(stacking_rows, "counted", upwards)
    return replay(model, study, tables, registry=load, rounds=1).violations


@breaks("sums of every arm priced as if a row stayed in its arm (Theorem Q.2)")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("describe, arms")
    if broken:
        patch.setattr(declared.ArmsLayout, "distance", lambda _, column: 1.0 if column else math.sqrt(2.0))
        study = msgspec.structs.replace(study, run=2)  # plans are compiled anew
    return replay(model, study, tables, registry=load, rounds=2).violations


@breaks("exits that also count everybody who was at risk, priced as one cell (Theorem V.1)")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("survival", trust={"aggregation": "local"})
    if broken:
        counted = survival_declared.ExitsLayout.counted

        def at_risk(self: Any, blocks: Any) -> Any:
            cells = counted(self, blocks).reshape(self.shape)
            return np.cumsum(cells[..., ::-1], axis=-1)[..., ::-1].ravel()

        patch.setattr(survival_declared.ExitsLayout, "counted", at_risk)
    return replay(model, study, tables, registry=load, rounds=2).violations


@breaks("contributions of two arms priced as those of one row that stays in its arm (Theorem E.1)")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("effects, survival", trust={"aggregation": "local"})
    if broken:
        patch.setattr(effects_sums, "contributions_of_arms", lambda *_: 1.0)
        study = msgspec.structs.replace(study, run=2)
    return replay(model, study, tables, registry=load, rounds=3).violations


@breaks("scores priced as if their squares moved nothing and their signs could not turn (Theorem E.4)")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("effects, partial", trust={"aggregation": "local"})
    if broken:
        patch.setattr(effects_partial, "partialled_scores", lambda *_: 0.25)
        study = msgspec.structs.replace(study, run=2)
    return replay(model, study, tables, registry=load, rounds=4).violations


@breaks("weighted rows of a table of balance that are not shortened (Theorem E.2)")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("effects", trust={"aggregation": "local"})
    if broken:
        patch.setattr(effects_sums, "_shortened", lambda rows: 9 * rows)
    return replay(model, study, tables, registry=load, rounds=2).violations


@breaks("the second of two analyses, whose parts of the rows pass for those of the first (Theorem F.26)")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("analyses, columns")
    if broken:
        patch.setattr(exposure, "_partition", lambda _part: "")
        study = msgspec.structs.replace(study, run=2)
    return audit_account(model, study, tables, registry=load)


@breaks("an answer that is not kept, so that it is worked out again")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("describe")
    if broken:
        patch.setattr(Ledger, "commit", lambda *_, **__: None)
    return audit_orders(model, study, tables, registry=load)


@breaks("a release that is made once more than planned")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("glm")
    if broken:
        patch.setattr(OpenDesk, "planned", lambda self, name, **_: self.plan.release(self.party.name, name))
    return audit_orders(model, study, tables, registry=load)


@breaks("repetitions in any order, of which the first alone are debited")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("lasso")
    if broken:
        patch.setattr(Ledger, "charged", lambda *_: True)
    return audit_orders(model, study, tables, registry=load)


@breaks("a release over data that changed under way")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("describe")
    release = OpenDesk.release

    def unverified(self: OpenDesk, name: str, given: Any) -> Any:
        patch.setattr(type(self.party.table), "verify", lambda _: None)
        return release(self, name, given)

    if broken:
        patch.setattr(OpenDesk, "release", unverified)
    return audit_orders(model, study, tables, registry=load)


@breaks("a reply that holds what its desk did not hand out")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("describe")
    if broken:
        patch.setattr(party, "check_minted", lambda *_: None)
    return audit_orders(model, study, tables, registry=load)


def with_digests(patch: pytest.MonkeyPatch, digest: Any) -> Found:
    """Fragments of sums of three nodes, with another function of their secrets."""
    model, study, tables = of_case("bayes, columns")
    patch.setattr(secure_sum, "hmac", SimpleNamespace(digest=digest))
    return audit_sealed(model, study, tables, registry=load)


@breaks("fragments of one seed, which add up to no noise")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    def digest(secret: bytes, message: bytes, kind: str) -> bytes:
        return hmac.digest(secret, b"seed" if broken and message.startswith(b"seed") else message, kind)

    return with_digests(patch, digest)


@breaks("one salt for every message")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    def digest(secret: bytes, message: bytes, kind: str) -> bytes:
        return bytes(32) if broken and message.startswith(b"salt") else hmac.digest(secret, message, kind)

    return with_digests(patch, digest)


@breaks("fragments that a simulation's seed is enough to work out")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("bayes")
    stream = KeySource.stream

    def known(self: KeySource, *names: Any, content: bytes = b"") -> Any:
        return stream(KeySource.simulation(0) if names[:1] == ("seal",) else self, *names, content=content)

    if broken:
        patch.setattr(KeySource, "stream", known)
    return audit_sealed(model, study, tables, registry=load)


@breaks("a part of the rows that is not debited (G1)")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("stacking", trust={"meta": "trusted"})
    if broken:
        charge = Exposure.charge
        patch.setattr(Exposure, "charge", lambda self, *given: NO_COST if self.part == "low" else charge(self, *given))
    return audit_account(model, study, tables, registry=load)


@breaks("a label that nobody counted (G2)")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model, study, tables = of_case("stacking", unit="attribute")

    def silent(study: Study) -> Any:
        plan = load("stacking").compile(study)
        releases = (dataclasses.replace(r, exposure=dataclasses.replace(r.exposure, label=None)) for r in plan.releases)
        return dataclasses.replace(plan, releases=tuple(releases))

    model = dataclasses.replace(model, compile_plan=silent) if broken else model
    return replay(model, study, tables, registry=load, rounds=1).violations


@breaks("fresh noise for everybody who asks")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    model = plain_sums.model()
    if broken:
        stream, turn = KeySource.stream, itertools.count()
        patch.setattr(
            KeySource, "stream", lambda self, *names, content=b"": stream(self, *names, next(turn), content=content)
        )
        patch.setattr(Ledger, "reply", lambda *_, **__: None)
        patch.setattr(Ledger, "commit", lambda *_, **__: None)
    return audit_account(model, plain_sums.study(), plain_sums.tables(), registry=lambda _: model)


# --- noise ----------------------------------------------------------------------------------------------------------------------


def noisy(model: Any = None, keys: int = 12) -> Found:
    found = model or plain_sums.model()
    return audit_noise(found, plain_sums.study(), plain_sums.tables(), registry=lambda _: found, keys=keys)


def weaker(patch: pytest.MonkeyPatch, law: Callable[[np.ndarray, float], np.ndarray]) -> None:
    """Another law in the place of the rounded Gaussian."""
    original = noise.rounded_gaussian

    def other(scale: float, size: int, **options: Any) -> np.ndarray:
        return np.rint(law(original(scale, size, **options), scale)).astype(np.int64)

    patch.setattr(noise, "rounded_gaussian", other)


@breaks("noise six per cent too small")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    if broken:
        weaker(patch, lambda values, _scale: 0.94 * values)
    return noisy(keys=320)


@breaks("no noise")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    if broken:
        weaker(patch, lambda values, _scale: 0 * values)
    return noisy()


@breaks("noise that is rounded away")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    if broken:
        weaker(patch, lambda values, scale: np.rint(values / (8 * scale)) * 8 * scale)
    return noisy()


@breaks("noise shared by two releases")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    if broken:
        stream = KeySource.stream
        patch.setattr(KeySource, "stream", lambda self, *_names, content=b"": stream(self, "noise"))
    return noisy(plain_sums.model(rounds=2))


@breaks("a seed that is always the same")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    if broken:
        stream = KeySource.stream
        fixed = KeySource(bytes(32))
        patch.setattr(KeySource, "stream", lambda self, *names, content=b"": stream(fixed, *names, content=content))
    return noisy()


@breaks("floating-point noise on unquantised numbers")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    """The last bits of x + noise depend on x: what can be told apart with certainty has no epsilon."""
    model, study, tables = of_case("lasso")
    if broken:

        def draw(self: ScaledGaussian, given: Vector, bits: Any) -> np.ndarray:
            generator = np.random.default_rng(int.from_bytes(bits.key[:8], "big"))
            return given.values + self.multiplier * given.sensitivity * generator.normal(size=self.size)

        patch.setattr(ScaledGaussian, "draw", draw)
    return audit_noise(model, study, tables, registry=load, keys=4)


@breaks("noise whose key forgets the statistic")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    """A ledger rolled back, and other data under the same key: the difference would be free of noise."""
    if broken:
        stream = KeySource.stream
        patch.setattr(KeySource, "stream", lambda self, *names, content=b"": stream(self, *names, content=content[:0]))
    made = []
    for values in (np.zeros(8, dtype=np.int64), np.full(8, 5)):
        release = GaussianRelease.calibrated([plain_sums.Block(8, 1.0)], {Unit.RECORD: Reach(10.0, 8)}, Unit.RECORD, 0.5)
        content = release.content(Vector(values))
        made.append(release.draw(Vector(values), KeySource(bytes(32)).stream("plan", "sums", content=content)) - values)
    return [made] if np.array_equal(*made) else []


# --- messages -------------------------------------------------------------------------------------------------------------------


def sent(model: Any) -> Found:
    return audit_transcript(model, plain_sums.study(), plain_sums.tables(), plain_sums.tables(1), registry=lambda _: model)


def leaking(kind: Any, more: Callable[[Any, Released], Any]) -> Any:
    """The sums with something beside them."""
    reply = msgspec.defstruct("Leaky", [("sums", Released), ("more", kind)], frozen=True, forbid_unknown_fields=True)

    def said(context: Any, request: Any) -> Any:
        released = plain_sums.answer(context, request).sums
        return reply(released, more(context, released))

    return plain_sums.model(said=said, reply=reply)


@breaks("a number of the data in a public field")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    return sent(leaking(Public[float], lambda context, _: Public(float(context.table["x0"].max()) if broken else 0.0)))


@breaks("a value in words")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    """Equal for all other data in this test but for its digits: the canary finds it."""
    found = sent(
        leaking(Public[str], lambda context, _: Public(f"x0 ends at {context.table['x0'][0] if broken else 0:.12f}"))
    )
    return [each for each in found if "stands in a message" in each.what]


@breaks("a number of messages that depends on the data")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    reply = msgspec.defstruct("Several", [("sums", tuple[Released, ...])], frozen=True, forbid_unknown_fields=True)

    def said(context: Any, request: Any) -> Any:
        released = plain_sums.answer(context, request).sums
        return reply(() if broken and context.table["x0"][0] > 0 else (released,))

    return replayed(plain_sums.model(said=said, reply=reply))


@breaks("a refusal that depends on the data")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    from unpooled.errors import DataError

    def moody(context: Any, request: Any) -> plain_sums.Sums:
        if broken and context.table["x0"][0] >= 3:
            raise DataError("too far")
        return plain_sums.answer(context, request)

    return replayed(plain_sums.model(said=moody))


@breaks("values in the clear for somebody whom nobody trusts")
def _(patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    from unpooled.protocol import local, party

    for home, own in ((party, "check_minted"), (local, "check_reply")):  # which would refuse it before
        patch.setattr(home, own, lambda *_: None)
    role, values = "aggregation", Array.of(np.zeros(2))
    return sent(leaking(Entrusted, lambda *_: Entrusted(role, values)) if broken else plain_sums.model())


# --- what estimators show -------------------------------------------------------------------------------------------------------


@breaks("bounds read off the data and not said so")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    """Two fits of other rows have other plans."""
    rng = np.random.default_rng(4)
    plans = []
    for _ in range(2):
        X = rng.uniform(-1, 1, (40, 2))
        bounds = (X.min(axis=0), X.max(axis=0)) if broken else (-1, 1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plans.append(
                PrivateBayesianRegression(bounds=bounds, y_bounds=(-2, 2), random_state=0).fit(X, X[:, 0]).plan_.hash
            )
    return [] if plans[0] == plans[1] else plans


@breaks("PLS as its paper prints it, at a claimed epsilon of 1")
def _(_patch: pytest.MonkeyPatch, *, broken: bool) -> Found:
    """Its noise is in units of X'y, but falls on weights of length 1: with small spectra there is hardly any."""
    rng = np.random.default_rng(6)
    X, y = rng.uniform(-0.02, 0.02, (40, 3)), rng.uniform(-0.02, 0.02, 40)
    X[0], y[0] = 0.02, 0.02
    other = X.copy(), y.copy()
    other[0][0], other[1][0] = (0.02, -0.02, 0.02), -0.02
    form = {"calibration": "published"} if broken else {}

    def released(data: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        model = PrivatePLSRegression(1, basis="none", bounds=(-1, 1), y_bounds=(-1, 1), epsilon=1.0, delta=1e-2, **form)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(*data)
        return np.resize(np.append(model.x_weights_, 0.0), 3)

    least = empirical_epsilon(released, (X, y), other, runs=600 if broken else 60, delta=1e-2, confidence=0.99)
    return [least] if least > (3.0 if broken else 1.0) else []


__all__ = ["BROKEN"]
