"""Random whole programs for the oracle: fits, functions, studies, priors and budgets over one population, and one person who changes everywhere.

A :class:`Scene` is a population with a person (or a household) in the first rows of every site, and a program over it: what somebody writes who
fits several things about the same people. :func:`scenes` draws them from a grammar; :func:`hold` plays one in two worlds
(:mod:`unpooled.audit.oracle`). A new model or way to combine fits is a line in :data:`ATOMS` or :data:`PROGRAMS`.
"""

from __future__ import annotations

import pickle
import tempfile
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import unpooled
from unpooled.audit.oracle import Attained, Oracle, Promise
from unpooled.errors import UnpooledError, UsageError
from unpooled.estimation.columns import link_rows
from unpooled.estimation.hidden import HiddenLink
from unpooled.estimation.running import run
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.exposure import account
from unpooled.privacy.origin import by_draw
from unpooled.privacy.places import Places
from unpooled.privacy.plan import Card, Household, Plan
from unpooled.privacy.study import Study
from unpooled.privacy.table import BoundedTable, Table, counted, texts_of
from unpooled.privacy.unit import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


#: The public names, as a program writes them: with any parameters.
api: Any = unpooled
#: The declared columns of the population; responses have ranges of their own.
BOUNDS: dict[str, Any] = {"x": (0.0, 1.0), "z": (0.0, 1.0), "g": ["u", "v"]}
Y, TIME = (0.0, 1.0), (0.0, 10.0)
_DELTA = 1e-5
_COLUMNS = (Column("x", 0.0, 1.0), Column("z", 0.0, 1.0), Column("g", categories=("u", "v")), Column("y", *Y))


@dataclass(frozen=True)
class Scene:
    """A population, how it is split, and whom a promise is about."""

    seed: int
    unit: str = "record"
    adjacency: str = "replace"
    sites: int = 1
    #: Rows of the household at every site; 1 where a row is a person.
    rows: tuple[int, ...] = (1,)
    trust: str = "distributed"
    epsilon: float = 1.0
    people: int = 60
    #: Columns of the person that change; all where empty.
    alone: str = ""

    @property
    def together(self) -> int:
        """Return the number of rows of one id that count."""
        return sum(self.rows)

    @property
    def asked(self) -> dict[str, Any]:
        """Return what every call is asked for."""
        return {"delta": _DELTA, "unit": self.unit, "adjacency": self.adjacency} | (
            {"rows_per_household": self.together} if self.unit == "household" else {}
        )

    def frame(self, ends: tuple[float, ...] = (0.0,), rows: tuple[int, ...] | None = None) -> pl.DataFrame:
        """Return the population; the person's rows have these values in turn, at these numbers of rows in every site."""
        rng = np.random.default_rng(self.seed)
        n = self.people
        each = self.together if self.unit == "household" else 1
        ids = np.repeat(np.arange(1, n), each)
        site = np.array([f"s{k}" for k in range(self.sites)])
        others = {
            "x": rng.uniform(0, 1, ids.size),
            "z": rng.uniform(0, 1, ids.size),
            "y": rng.uniform(0, 1, ids.size),
            "w": rng.uniform(0.2, 1, ids.size),
            "t": rng.uniform(0, 10, ids.size),
            "e": rng.integers(0, 2, ids.size).astype(float),
            "c": rng.integers(0, 2, ids.size),
            "g": rng.choice(["u", "v"], ids.size),
        }
        # Everybody has rows at every site, as the person has: so numbers of ids are the same wherever rows lie.
        where = (
            np.concatenate([np.repeat(site, self.rows)] * (n - 1))
            if self.unit == "household"
            else rng.choice(site, ids.size)
        )
        held = rows or (self.rows if self.unit == "household" else (1,) + (0,) * (self.sites - 1))
        mine = np.repeat(site, held)
        own = _of_person(ends, mine.size)
        if self.alone:  # one value alone is another one
            own = _of_person((0.0,), mine.size) | {self.alone: own[self.alone]}
        columns = {name: np.concatenate([own[name], others[name]]) for name in others}
        return pl.DataFrame(
            {"id": np.concatenate([np.zeros(mine.size, dtype=int), ids]), "site": np.concatenate([mine, where]), **columns}
        )

    def changes(self, rng: np.random.Generator) -> Iterator[pl.DataFrame]:
        """Yield populations in which the person is another one: at the other end, in between, and with rows at other sites."""
        if self.adjacency == "zero-out":
            yield self.frame((1.0,))  # whatever changed is left out
            return
        yield self.frame((1.0,))
        yield self.frame((1.0, 0.0))
        yield self.frame(tuple(rng.uniform(0, 1, 3)))
        yield self.frame((7.0, -3.0))  # beyond every declared range
        if self.unit == "household" and (more := self._more_than_count()):
            yield self.frame((1.0,), more)
        if self.unit == "household" and self.sites > 1 and self.together > self.sites:
            for end in (0.0, 1.0):
                moved = [1] * self.sites
                moved[-1] = self.together - self.sites + 1
                yield self.frame((end,), tuple(moved))

    def _more_than_count(self) -> tuple[int, ...]:
        """Return more rows of the household than count, of which each site keeps some: the number of ids of every site is public."""
        for more in range(2, 12):
            held = (self.together + more,) * self.sites
            kept = counted(texts_of(np.zeros(sum(held), dtype=int)), self.together)
            if all(part.any() for part in np.split(kept, self.sites)):
                return held
        return ()


def _of_person(ends: tuple[float, ...], rows: int) -> dict[str, Any]:
    """Return the values of a person's rows: each row so far from the lower ends of all ranges."""
    at = np.resize(np.array(ends), rows)
    high = at > 0.5
    same = {"x": at, "z": at, "y": at, "w": np.ones(rows), "t": 10 * np.clip(at, 0, 1)}
    return same | {"e": high.astype(float), "c": high.astype(int), "g": np.where(high, "v", "u")}


# --- single fits -------------------------------------------------------------------------------------------------------------------

#: A call on the frame with a budget of epsilon, and whatever else it is given; it returns something with a plan.
Atom = Any


def _rows(scene: Scene, frame: pl.DataFrame) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if scene.sites > 1:
        found["sites"] = frame["site"].to_numpy()
    if scene.unit == "household":
        found["unit_id"] = frame["id"].to_numpy()
    return found


def _regression(method: str, **more: Any) -> Atom:
    def call(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:
        own = scene.asked | {"bounds": BOUNDS, "y_bounds": Y, "method": method, "formula": "y ~ x + z + g"}
        own |= {"aggregation": scene.trust} if scene.sites > 1 else {}
        model = api.PrivateLinearRegression(**own | more | given)
        weights = {"weights": frame["w"].to_numpy()} if "weights_bounds" in more else {}
        return model.fit(frame.select("x", "z", "g", "y"), **_rows(scene, frame), **weights)

    return call


def _glm(family: str, **more: Any) -> Atom:
    def call(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:
        own = scene.asked | {"bounds": BOUNDS, "method": "gradient", "max_passes": 4}
        own |= {"classes": (0, 1)} if family == "logistic" else {"y_bounds": Y}
        own |= {"aggregation": scene.trust} if scene.sites > 1 else {}
        model = api.PrivateGLM(family, **own | more | given)
        return model.fit(
            frame.select("x", "z", "g"), frame["c" if family == "logistic" else "y"].to_numpy(), **_rows(scene, frame)
        )

    return call


def _describe(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:
    return api.describe(frame.select("x", "z", "g"), BOUNDS, **scene.asked | given, **_rows(scene, frame))


def _by_arm(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:
    return api.describe(frame.select("x", "z", "g"), BOUNDS, by="g", **scene.asked | given, **_rows(scene, frame))


def _ranges(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:
    return api.describe(frame.select("x", "z"), bounds=True, **scene.asked | given, **_rows(scene, frame))


def _table(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:
    own = {"bounds": {"g": ["u", "v"], "x": (0.0, 1.0)}, "cuts": {"x": [0.5]}}
    return api.tabulate(frame, ["g", "x"], **own, **scene.asked | given, **_rows(scene, frame))


def _survival(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:
    own = {"bounds": {"g": ["u", "v"], "t": TIME, "e": (0.0, 1.0)}} | (
        {"aggregation": scene.trust} if scene.sites > 1 else {}
    )
    return api.survival(frame, "t", "e", "g", **own, **scene.asked | given, **_rows(scene, frame))


def _pls(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:
    own = {"basis": "none", "bounds": (0.0, 1.0), "y_bounds": Y, "n_components": 1, "method": "moments"}
    own |= {"aggregation": scene.trust} if scene.sites > 1 else {}
    model = api.PrivatePLSRegression(**own, **scene.asked | given)
    return model.fit(frame.select("x", "z").to_numpy(), frame["y"].to_numpy(), **_rows(scene, frame))


def _effect(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:
    own: dict[str, Any] = {"bounds": api.Bounds(BOUNDS | {"y": Y}), "estimator": "partial"}
    own |= {"aggregation": scene.trust} if scene.sites > 1 else {}
    if "bounds" in given:
        given["bounds"] = replace(given["bounds"], low=given["bounds"].low | {"y": Y})
    model = api.TreatmentEffect("g", outcome="y", **own | scene.asked | given)
    return model.fit(frame.select("x", "z", "g", "y"), **_rows(scene, frame))


def _with_gaps(atom: Atom, rule: str = "complete") -> Atom:
    """Return the fit in which a row whose z is at its upper end or beyond has no z, and is left out."""

    def call(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:
        bounds = api.Bounds(BOUNDS, missing={"z": rule})
        return atom(scene, frame.with_columns(z=pl.when(pl.col("z") < 1).then(pl.col("z"))), bounds=bounds, **given)

    return call


def _unseen(estimator: str) -> Atom:
    """Return the effect of people of whom those with the highest outcomes have none on record: they count all the same."""

    def call(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:
        bounds = api.Bounds(BOUNDS | {"y": Y}, missing={"y": "complete"})
        held = frame.with_columns(y=pl.when(pl.col("y") < Y[1]).then(pl.col("y")))
        return _effect(scene, held, bounds=bounds, estimator=estimator, max_passes=9, **given)

    return call


def _typically(atom: Atom) -> Atom:
    """Return the fit to columns whose values are declared to lie in the lower part of their range, where those of the person need not lie."""

    def call(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:
        return atom(scene, frame, bounds=api.Bounds(BOUNDS, typical={"x": (0.1, 0.05), "z": (0.2, 0.02)}), **given)

    return call


#: What can be fitted to rows, by name.
ATOMS: dict[str, Atom] = {
    "describe": _describe,
    "arms": _by_arm,
    "ranges": _ranges,
    "table": _table,
    "survival": _survival,
    "moments": _regression("moments"),
    "box": _regression("moments", geometry="box", formula="y ~ x + z"),
    "refinement": _regression("refinement", max_passes=4),
    "mean": _regression("mean"),
    "gradient": _regression("gradient", max_passes=4),
    "weights": _regression("refinement", max_passes=4, weights_bounds=(0.0, 1.0)),
    "site effects": _regression("moments", site_effects="fixed"),
    "gaps": _with_gaps(_regression("refinement", max_passes=4)),
    "gaps in moments": _with_gaps(_regression("moments")),
    "gaps of an effect": _with_gaps(_effect),
    "outcomes of an effect": _unseen("aipw"),
    "outcomes of a g-formula": _unseen("g-formula"),
    "typical": _typically(_regression("refinement", max_passes=4)),
    "typical of classes": _typically(_glm("logistic", method="newton")),
    "gaps of classes": _with_gaps(_glm("logistic", method="newton")),
    "modelled gaps": _with_gaps(_glm("logistic", method="newton", covariance="model", max_passes=9), "model"),
    "modelled gaps of a line": _with_gaps(_regression("refinement", covariance="model", max_passes=9), "model"),
    "logistic": _glm("logistic"),
    "newton": _glm("logistic", method="newton"),
    "poisson": _glm("poisson"),
    "pls": _pls,
    "effect": _effect,
}
#: Those that move as far as they state where a person's values go from end to end; drawn more often.
_TIGHT = ("describe", "table", "ranges", "survival", "arms", "describe", "table")
#: Those whose fits have second moments, which later fits may rest on.
_PRODUCERS = ("moments", "refinement", "logistic", "newton", "box")


# --- programs ----------------------------------------------------------------------------------------------------------------------


@dataclass
class Play:
    """A program while it is played: it counts the studies that were run, and collects promises."""

    frame: pl.DataFrame
    runs: int = 0
    claims: list[Promise] = field(default_factory=list)

    def fitted(self, made: Any, rests: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Note the promise of something that one study answered, which rests on these earlier runs too; return all of its runs."""
        runs = (*rests, self.runs)
        self.runs += 1
        plan = made.plan_
        self.claims.append(Promise.of_plan(f"statement of study {self.runs}", plan, runs))
        return runs


def _pick(rng: np.random.Generator, names: Any) -> str:
    return str(names[int(rng.integers(len(names)))])


def _atom(rng: np.random.Generator) -> str:
    return _pick(rng, _TIGHT if rng.random() < 0.6 else list(ATOMS))


def one(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """A single fit."""
    name = _atom(rng)
    return lambda play: void(play.fitted(ATOMS[name](scene, play.frame, epsilon=scene.epsilon)))


def budgeted(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """Several fits under one budget."""
    names = [_atom(rng) for _ in range(int(rng.integers(2, 4)))]

    def play_it(play: Play) -> None:
        total, runs = api.Budget(50.0, 1e-4, scene.unit), list[int]()
        for name in names:
            runs += play.fitted(ATOMS[name](scene, play.frame, epsilon=scene.epsilon, budget=total))
        play.claims.append(Promise.of_budget("the budget", total, runs))

    return play_it


def study(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """Several analyses in one ``Study``."""
    names = dict.fromkeys(_atom(rng) for _ in range(3))
    names = {name: None for name in names if name != "site effects"}

    def play_it(play: Play) -> None:
        analyses = {name: (lambda rows, name=name: ATOMS[name](scene, rows, epsilon=1.0)) for name in names}
        own = {"epsilon": scene.epsilon, "delta": _DELTA, "unit": scene.unit, "adjacency": scene.adjacency}
        play.fitted(api.Study(analyses, **own).fit(play.frame))

    return play_it


def _named(fit: Any, alone: Any) -> dict[str, Any]:
    return dict(zip(fit.moments_.layout.names, alone.coef_, strict=True))


def _saved(fit: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        fit.save(Path(folder) / "fit")
        return api.load(Path(folder) / "fit")


#: Ways by which a fit becomes the prior of a later one.
DOORS: dict[str, Callable[[Any], Any]] = {
    "the fit": lambda fit: fit,
    "as_prior": lambda fit: fit.as_prior(),
    "scaled": lambda fit: {name: 0.5 * value for name, value in fit.as_prior().items()},
    "pickled": lambda fit: pickle.loads(pickle.dumps(fit.as_prior())),
    "from moments": lambda fit: type(fit).from_moments(fit.moments_),
    "ols": lambda fit: _named(fit, fit.moments_.ols()),
    "saved": _saved,
}


def prior(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """A fit that is drawn to one or two earlier ones of the same people, through any door; two draws may be of one plan."""
    name, door, twice = _pick(rng, _PRODUCERS[:2]), _pick(rng, list(DOORS)), rng.random() < 0.5
    family = door in {"the fit", "as_prior", "saved", "pickled", "scaled"} and rng.random() < 0.3
    name = "logistic" if family else name
    door = "the fit" if not family and name == "refinement" and door == "ols" else door
    charged = rng.random() < 0.5

    def play_it(play: Play) -> None:
        total = api.Budget(50.0, 1e-4, scene.unit)
        given: dict[str, Any] = {}
        runs: tuple[int, ...] = ()
        for number in range(1 + twice):
            fit = ATOMS[name](scene, play.frame, epsilon=scene.epsilon)
            runs += play.fitted(fit)
            given[f"earlier {number}"] = DOORS[door](fit)
        more = {"budget": total} if charged else {}
        runs = play.fitted(ATOMS[name](scene, play.frame, epsilon=scene.epsilon, prior=given, **more), runs)
        if charged:
            play.claims.append(Promise.of_budget("the budget", total, runs))

    return play_it


def paid(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """Ranges that were paid for, and a fit that uses them."""
    charged = rng.random() < 0.5

    def play_it(play: Play) -> None:
        total = api.Budget(50.0, 1e-4, scene.unit)
        more = {"budget": total} if charged else {}
        found = _ranges(scene, play.frame, epsilon=scene.epsilon)
        runs = play.fitted(found)
        description = api.describe(
            play.frame.select("x", "z"),
            found.bounds_,
            epsilon=scene.epsilon,
            **scene.asked,
            **more,
            **_rows(scene, play.frame),
        )
        runs = play.fitted(description, runs)
        if charged:
            play.claims.append(Promise.of_budget("the budget", total, runs))

    return play_it


def pooled(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """A model that is fitted at every site by itself."""
    del rng

    def play_it(play: Play) -> None:
        own = scene.asked | {
            "bounds": (0.0, 1.0),
            "y_bounds": Y,
            "epsilon": scene.epsilon,
            "method": "moments",
            "geometry": "box",
        }
        model = api.PrivateLinearRegression(**own)
        rows = {"sites": play.frame["site"].to_numpy()} | {k: v for k, v in _rows(scene, play.frame).items() if k != "sites"}
        play.fitted(
            api.meta_analysis(model, play.frame.select("x", "z").to_numpy(), play.frame["y"].to_numpy(), terms="x0", **rows)
        )

    return play_it


def files(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """A study as its file says it: analyses of all sites, at every site by itself, and of the columns that one site declares alone."""
    which = [name for name in ("all", "apart", "first", "last", "table") if rng.random() < 0.6] or ["apart"]

    def play_it(play: Play) -> None:
        cards, tables = [], {}
        for k, rows in enumerate(scene.rows if scene.unit == "household" else (1,) * scene.sites):
            own = play.frame.filter(pl.col("site") == f"s{k}")
            alone = {scene.sites - 1: "last", 0: "first"}.get(k, "")
            columns = _COLUMNS + ((Column(alone, 0.0, 1.0),) if alone else ())
            held = {c.name: own["x" if c.name == alone else c.name].to_numpy() for c in columns}
            table: Table = Table({name: v.astype(object) if v.dtype.kind in "UO" else v for name, v in held.items()})
            household = None
            if scene.unit == "household":
                table = BoundedTable(table, own["id"].to_numpy(), rows)
                household = Household("id", table.household[0], rows)
            cards.append(Card(f"s{k}", table.n_rows, columns, household=household))
            tables[f"s{k}"] = table
        moments = {"response": "y", "method": "moments"}
        known: dict[str, dict[str, Any]] = {
            "all": {"model": "describe", "columns": ["x", "z"]},
            "apart": {"model": "bayes", "columns": ["x", "z", "y"], "parameters": moments, "apart": True, "pool": ["x"]},
            "first": {"model": "describe", "columns": ["first"]},
            "last": {"model": "describe", "columns": ["last"]},
            "table": {"model": "tables", "columns": ["g", "x"], "parameters": {"columns": ["g", "x"], "cuts": {"x": [0.5]}}},
        }
        analyses = [{"name": name, **known[name]} for name in which if name not in {"apart", "last"} or scene.sites > 1]
        if not analyses:
            raise UsageError("no analysis is left")
        asked: dict[str, Any] = {
            "unit": scene.unit,
            "adjacency": scene.adjacency,
            "derived": (),
            "parameters": {"analyses": analyses},
        }
        plan, _ = run(
            load("analyses"), Study("analyses", tuple(cards), scene.epsilon, _DELTA, **asked), tables, registry=load
        )
        play.fitted(Planned(plan))

    return play_it


@dataclass(frozen=True)
class Planned:
    """A plan that was run."""

    plan_: Plan


def columns(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """Columns of the same people at two or three parties; a helper, where rows travel under masks."""
    kind = _pick(
        rng,
        [
            "pride",
            "gram",
            "joint",
            "joint gaps",
            "joint table",
            "joint odds",
            "joint rates",
            "joint hazards",
            "hidden moments",
            "hidden odds",
            "lasso",
            "stacking",
            "pride glm",
        ],
    )
    two = {"joint gaps", "joint odds", "joint rates", "joint hazards", "hidden moments", "hidden odds"}
    three = rng.random() < 0.3 and kind not in two
    return columns_by(kind, scene, three=three)


def columns_by(kind: str, scene: Scene, *, three: bool = False) -> Callable[[Play], None]:
    """Columns of the same people by one of these ways."""

    def play_it(play: Play) -> None:
        X, y = play.frame.select("x", "z", "w", "t").to_numpy() / [1, 1, 1, 10], play.frame["y"].to_numpy()
        parties = {"a": ["x0"], "b": ["x1", "x2"], "c": ["x3"]} if three else {"a": ["x0", "x1"], "b": ["x2", "x3"]}
        own: dict[str, Any] = {"epsilon": scene.epsilon, "delta": _DELTA, "bounds": (0.0, 1.0), "parties": parties}
        match kind:
            case "pride" | "gram":
                unit = {"unit": "record"} if scene.unit == "household" else {"unit": scene.unit}
                model = api.PrideRegressor(
                    noise_model="plain" if kind == "pride" else "gram", y_bounds=Y, alpha=1.0, **own, **unit
                )
            case "pride glm":
                model = api.PrideGLM("poisson", y_bounds=Y, alpha=1.0, unit="record", **own)
            case "joint" | "joint gaps":
                if (
                    kind == "joint gaps"
                ):  # a row whose z is high has a gap at the first party, one whose t is at its end at the second
                    own["bounds"] = api.Bounds(0.0, 1.0, missing="complete")
                    X[:, [1, 3]] = np.where(X[:, [1, 3]] < (0.8, 1.0), X[:, [1, 3]], np.nan)
                model = api.PrivateLinearRegression(
                    method="moments", y_bounds=Y, unit="record", adjacency=scene.adjacency, **own
                )
            case "joint odds":
                model = api.PrivateGLM("logistic", classes=(0, 1), adjacency=scene.adjacency, **own)
                y = play.frame["c"].to_numpy()
            case "joint rates":  # the column w is the exposure
                own |= {"parties": {"a": ["x0", "x1"], "b": ["x2"]}, "response_at": "b"}
                model = api.PrivateGLM("poisson", y_bounds=Y, exposure_bounds=(0.5, 1.5), adjacency=scene.adjacency, **own)
                play.fitted(model.fit(X[:, [0, 1, 3]], y, exposure=0.5 + X[:, 2]))
                return
            case "joint hazards":  # the column w is the time
                own |= {"parties": {"a": ["x0", "x1"], "b": ["x2"]}, "response_at": "b"}
                model = api.PrivateGLM("survival", y_bounds=(0.0, 1.0), cuts=(0.5,), adjacency=scene.adjacency, **own)
                play.fitted(model.fit(X[:, [0, 1, 3]], np.abs(X[:, 2]), event=play.frame["c"].to_numpy()))
                return
            case "hidden moments" | "hidden odds":  # the first people are at both parties, of the last each lacks a quarter
                play.fitted(_of_hidden_people(play.frame, scene, odds=kind == "hidden odds"))
                return
            case "lasso":
                model = api.PrivateLasso(y_bounds=Y, **own)
            case "stacking":
                model, y = (
                    api.PrivateStackingClassifier(split="features", classes=(0, 1), **own),
                    play.frame["c"].to_numpy(),
                )
            case _:
                found = api.describe(
                    X, (0.0, 1.0), parties=parties, epsilon=scene.epsilon, delta=_DELTA, adjacency=scene.adjacency
                )
                play.fitted(found)
                return
        play.fitted(model.fit(X, y))

    return play_it


def _of_hidden_people(frame: pl.DataFrame, scene: Scene, *, odds: bool) -> Any:
    """Return a fit of two parties over the places of a hidden link, whoever they have in common."""
    people, part = frame.height, frame.height // 4
    where = np.random.default_rng(0).permutation(2 * people)
    name, told = "hidden:" + "ab" * 32, "c" if odds else "y"
    rows = {"a": np.arange(people - part), "b": np.r_[0 : people - 2 * part, people - part : people]}
    places = {
        party: Places(name, 2 * people, where[kept], np.sort(np.r_[where[kept], where[people + 3 * k : people + 3 * k + 3]]))
        for k, (party, kept) in enumerate(rows.items())
    }
    link = HiddenLink(name, ("id",), void, "", (places,))  # type: ignore[arg-type]  # nothing asks for the statement of this link
    held = {"a": ["x", "w"], "b": ["z", "t", told]}
    files = {party: frame[kept].select("id", *held[party]) for party, kept in rows.items()}
    bounds = api.Bounds({"x": (0.0, 1.0), "w": (0.0, 1.0), "z": (0.0, 1.0), "t": (0.0, 10.0)})
    own: dict[str, Any] = {"epsilon": scene.epsilon, "delta": _DELTA, "bounds": bounds, "expected": people // 2}
    own |= {"adjacency": scene.adjacency, "classes": (0, 1)} if odds else {"adjacency": scene.adjacency, "y_bounds": Y}
    model = api.PrivateGLM("logistic", **own) if odds else api.PrivateLinearRegression(method="moments", **own)
    return model.fit(files, told, on=link)


def linked(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """Files of two organisations, each in an order of its own, whose rows are linked first; then columns of the same people."""
    inner, order = columns(scene, rng), rng.permutation(scene.people)

    def play_it(play: Play) -> None:
        if play.frame.height != order.size:
            raise UsageError("an id has one row in linked files")
        names = {"a": ["x", "w"], "b": ["z", "t", "y", "c"]}
        files = {"a": play.frame.select("id", *names["a"]), "b": play.frame[order].select("id", *names["b"])}
        rows = link_rows(files, "id", seed=0).rows
        both = pl.concat([files[name][rows[name]].select(names[name]) for name in names], how="horizontal")
        own = Play(both, play.runs, play.claims)
        inner(own)
        play.runs = own.runs

    return play_it


def domains(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """A calibration that is carried to a second instrument, on which the person's spectrum was measured too."""
    bare = rng.random() < 0.5

    def play_it(play: Play) -> None:
        source, target = (ATOMS["pls"](scene, play.frame, epsilon=scene.epsilon) for _ in range(2))
        runs = (*play.fitted(source), *play.fitted(target))
        model = source.adapted(target.moments_ if bare else target, n_components=1)

        def curve(delta: float) -> float:
            return account(origin.parts(Unit(scene.unit)) for origin in by_draw(model.origins).values()).epsilon(delta)

        play.claims.append(Promise("both domains", Unit(scene.unit), curve, runs))

    return play_it


def predicted(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """A released model, and a diagnosis of it on the same rows, under one budget."""
    name = _pick(rng, ["moments", "mean", "refinement"])

    def play_it(play: Play) -> None:
        total = api.Budget(50.0, 1e-4, scene.unit)
        own = scene.asked | {"bounds": (0.0, 1.0), "y_bounds": Y, "epsilon": scene.epsilon, "method": name, "budget": total}
        X, y = play.frame.select("x", "z").to_numpy(), play.frame["y"].to_numpy()
        model = api.PrivateLinearRegression(**own).fit(X, y, **_rows(scene, play.frame))
        runs = play.fitted(model)
        found = api.diagnose(model, X, y, epsilon=scene.epsilon, budget=total, **scene.asked, **_rows(scene, play.frame))
        runs += play.fitted(found)
        play.claims.append(Promise.of_budget("the budget", total, runs))

    return play_it


def void(_: object) -> None:
    """Return nothing."""


#: Every way to combine fits, with how often it is drawn.
PROGRAMS: dict[str, tuple[Callable[[Scene, np.random.Generator], Callable[[Play], None]], float]] = {
    "one": (one, 3),
    "budget": (budgeted, 2),
    "study": (study, 3),
    "prior": (prior, 3),
    "paid": (paid, 2),
    "pooled": (pooled, 1),
    "files": (files, 3),
    "columns": (columns, 2),
    "linked": (linked, 1),
    "domains": (domains, 1),
    "diagnosed": (predicted, 1),
}
#: Programs whose parties hold columns, and those that need several sites.
_ONE_SITE, _SITES = {"columns", "linked"}, {"pooled"}
#: Programs of which one value of a person may be the unit.
_BY_VALUE = {"one", "budget", "study", "files", "columns"}


@dataclass(frozen=True)
class WholeProgram:
    """A scene with a program."""

    name: str
    scene: Scene
    play: Callable[[Play], None]
    seed: int
    #: Whether the population is read from a file by a query.
    source: bool = False
    #: After how many replies every study is interrupted, and resumed from its transcript by parties that were started anew; None: it is not.
    cut: int | None = None

    def program(self, frame: pl.DataFrame) -> list[Promise]:
        """Play the program on a population; return its promises."""
        play = Play(_from_source(frame) if self.source else frame)
        self.play(play)
        return play.claims


def wholes(count: int, seed: int = 0) -> Iterator[WholeProgram]:
    """Draw this many random whole programs."""
    names, weights = list(PROGRAMS), np.array([weight for _, weight in PROGRAMS.values()])
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        name = str(rng.choice(names, p=weights / weights.sum()))
        sites = 1 if name in _ONE_SITE else int(rng.integers(2, 4)) if name in _SITES else int(rng.integers(1, 4))
        household = name not in _ONE_SITE and rng.random() < 0.4
        alone = _pick(rng, ["x", "z", "y", "g"]) if name in _BY_VALUE and not household and rng.random() < 0.15 else ""
        scene = Scene(
            number,
            "household" if household else "attribute" if alone else "record",
            "zero-out" if rng.random() < 0.25 and not alone else "replace",
            sites,
            tuple(int(k) for k in rng.integers(1, 4, sites)) if household else (1,) * sites,
            _pick(rng, ["distributed", "trusted", "local"]) if sites > 1 else "distributed",
            float(rng.choice([0.3, 1.0, 3.0])),
            int(rng.integers(30, 70)),
            alone,
        )
        cut = int(rng.integers(1, 12)) if rng.random() < 0.2 else None
        yield WholeProgram(name, scene, PROGRAMS[name][0](scene, rng), number, rng.random() < 0.1, cut)


def _from_source(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the population as a query over a file reads it."""
    with tempfile.TemporaryDirectory() as folder:
        frame.with_row_index("row").write_csv(Path(folder) / "people.csv")
        read: pl.DataFrame = api.Source("SELECT * FROM 'people.csv' ORDER BY row", folder=folder).read()
        return read.select(pl.col(name).cast(kind) for name, kind in frame.schema.items())


@dataclass(frozen=True)
class Held:
    """The findings of the oracle about a whole program."""

    whole: WholeProgram
    #: Why nothing was released, in words; empty where something was.
    refused: str
    attained: tuple[Attained, ...] = ()

    @property
    def largest(self) -> float:
        """Return the largest attained part of any promise."""
        return max((one.largest for one in self.attained), default=0.0)

    @property
    def violations(self) -> list[Any]:
        """Return everything that broke a promise."""
        return [violation for one in self.attained for violation in one.violations]


def hold(whole: WholeProgram) -> Held:
    """Play a whole program in two worlds, for every change of its person; a program that is refused before it releases anything says why."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            oracle = Oracle(lambda: whole.program(whole.scene.frame()), cut=whole.cut)
        except UnpooledError as error:
            return Held(whole, str(error))
        rng = np.random.default_rng(whole.seed)
        found = [oracle.attained(partial(whole.program, frame)) for frame in whole.scene.changes(rng)]
    return Held(whole, "" if oracle.releases else "nothing is released", tuple(found))


__all__ = ["ATOMS", "DOORS", "PROGRAMS", "Held", "Planned", "Play", "Scene", "WholeProgram", "hold", "wholes"]
