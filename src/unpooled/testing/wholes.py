"""Random whole programs for the oracle: fits, functions, studies, priors and budgets over one population, and one person who changes everywhere.

A :class:`Scene` is a population with a person (or a household) in the first rows of every site, and a program over it: what somebody writes who
fits several things about the same people. :func:`scenes` draws them from a grammar; :func:`hold` plays one in two worlds
(:mod:`unpooled.audit.oracle`). A new model or way to combine fits is a line in :data:`ATOMS` or :data:`PROGRAMS`.
"""

from __future__ import annotations

import pickle
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import unpooled
from unpooled.audit.oracle import Attained, Claim, Oracle
from unpooled.errors import UnpooledError, UsageError
from unpooled.estimation.running import run
from unpooled.models import load
from unpooled.privacy.bounds import Column
from unpooled.privacy.household import BoundedTable
from unpooled.privacy.plan import Card, Household, Plan
from unpooled.privacy.study import Study
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from unpooled.models.describe.results import Description

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
        where = np.concatenate([np.repeat(site, self.rows)] * (n - 1)) if self.unit == "household" else rng.choice(site, ids.size)
        held = rows or (self.rows if self.unit == "household" else (1,) + (0,) * (self.sites - 1))
        mine = np.repeat(site, held)
        at = np.resize(np.array(ends), mine.size)
        own = {
            "x": at,
            "z": at,
            "y": at,
            "w": np.where(at > 0.5, 1.0, 0.0) if self.alone == "w" else np.ones(mine.size),
            "t": 10 * np.clip(at, 0, 1),
            "e": (at > 0.5).astype(float),
            "c": (at > 0.5).astype(int),
            "g": np.where(at > 0.5, "v", "u"),
        }
        if self.alone:  # one value alone changes
            still = Scene(self.seed, sites=self.sites).frame((0.0,)).head(1) if self.unit == "record" else None
            own = {name: values if name == self.alone else np.resize(_still(name, still), mine.size) for name, values in own.items()}
        columns = {name: np.concatenate([own[name], others[name]]) for name in others}
        return pl.DataFrame({"id": np.concatenate([np.zeros(mine.size, dtype=int), ids]), "site": np.concatenate([mine, where]), **columns})

    def changes(self, rng: np.random.Generator) -> Iterator[pl.DataFrame]:
        """Yield populations in which the person is another one: at the other end, in between, and with rows at other sites."""
        if self.adjacency == "zero-out":
            yield self.frame((1.0,))  # whatever changed is left out
            return
        yield self.frame((1.0,))
        yield self.frame((1.0, 0.0))
        yield self.frame(tuple(rng.uniform(0, 1, 3)))
        yield self.frame((7.0, -3.0))  # beyond every declared range
        if self.unit == "household" and self.sites > 1 and self.together > self.sites:
            for end in (0.0, 1.0):
                moved = [1] * self.sites
                moved[-1] = self.together - self.sites + 1
                yield self.frame((end,), tuple(moved))


def _still(name: str, row: pl.DataFrame | None) -> Any:  # noqa: ANN401 - a value of this column
    if row is not None and name in row.columns:
        return row[name][0]
    return {"g": "u"}.get(name, 0.0)


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


def _regression(method: str, **more: Any) -> Atom:  # noqa: ANN401 - parameters
    def call(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:  # noqa: ANN401 - a fit
        own = scene.asked | {"bounds": BOUNDS, "y_bounds": Y, "method": method, "formula": "y ~ x + z + g"}
        own |= {"aggregation": scene.trust} if scene.sites > 1 else {}
        model = unpooled.PrivateLinearRegression(**own | more | given)
        weights = {"weights": frame["w"].to_numpy()} if "weights_bounds" in more else {}
        return model.fit(frame.select("x", "z", "g", "y"), **_rows(scene, frame), **weights)

    return call


def _glm(family: str, **more: Any) -> Atom:  # noqa: ANN401 - parameters
    def call(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:  # noqa: ANN401 - a fit
        own = scene.asked | {"bounds": BOUNDS, "method": "gradient", "max_passes": 4}
        own |= {"classes": (0, 1)} if family == "logistic" else {"y_bounds": Y}
        own |= {"aggregation": scene.trust} if scene.sites > 1 else {}
        model = unpooled.PrivateGLM(family, **own | more | given)
        return model.fit(frame.select("x", "z", "g"), frame["c" if family == "logistic" else "y"].to_numpy(), **_rows(scene, frame))

    return call


def _describe(scene: Scene, frame: pl.DataFrame, **given: Any) -> Description:  # noqa: ANN401 - parameters
    return unpooled.describe(frame.select("x", "z", "g"), BOUNDS, **scene.asked | given, **_rows(scene, frame))


def _by_arm(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:  # noqa: ANN401 - parameters
    return unpooled.describe(frame.select("x", "z", "g"), BOUNDS, by="g", **scene.asked | given, **_rows(scene, frame))


def _ranges(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:  # noqa: ANN401 - parameters
    return unpooled.describe(frame.select("x", "z"), bounds=True, **scene.asked | given, **_rows(scene, frame))


def _table(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:  # noqa: ANN401 - parameters
    own = {"bounds": {"g": ["u", "v"], "x": (0.0, 1.0)}, "cuts": {"x": [0.5]}}
    return unpooled.tabulate(frame, ["g", "x"], **own, **scene.asked | given, **_rows(scene, frame))


def _survival(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:  # noqa: ANN401 - parameters
    own = {"bounds": {"g": ["u", "v"], "t": TIME, "e": (0.0, 1.0)}} | ({"aggregation": scene.trust} if scene.sites > 1 else {})
    return unpooled.survival(frame, "t", "e", "g", **own, **scene.asked | given, **_rows(scene, frame))


def _pls(scene: Scene, frame: pl.DataFrame, **given: Any) -> Any:  # noqa: ANN401 - parameters
    own = {"basis": "none", "bounds": (0.0, 1.0), "y_bounds": Y, "n_components": 1, "method": "moments"}
    own |= {"aggregation": scene.trust} if scene.sites > 1 else {}
    model = unpooled.PrivatePLSRegression(**own, **scene.asked | given)
    return model.fit(frame.select("x", "z").to_numpy(), frame["y"].to_numpy(), **_rows(scene, frame))


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
    "logistic": _glm("logistic"),
    "newton": _glm("logistic", method="newton"),
    "poisson": _glm("poisson"),
    "pls": _pls,
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
    claims: list[Claim] = field(default_factory=list)

    def fitted(self, made: Any, rests: tuple[int, ...] = ()) -> tuple[int, ...]:  # noqa: ANN401 - something with a plan
        """Note the promise of something that one study answered, which rests on these earlier runs too; return all of its runs."""
        runs = (*rests, self.runs)
        self.runs += 1
        plan = made.plan_
        self.claims.append(Claim.of_plan(f"statement of study {self.runs}", plan, runs))
        return runs


def _pick(rng: np.random.Generator, names: Any) -> str:  # noqa: ANN401 - a sequence
    return str(names[int(rng.integers(len(names)))])


def _atom(rng: np.random.Generator) -> str:
    return _pick(rng, _TIGHT if rng.random() < 0.6 else list(ATOMS))


def one(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """A single fit."""
    name = _atom(rng)
    return lambda play: void(play.fitted(ATOMS[name](scene, play.frame, epsilon=scene.epsilon)))


def budget(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """Several fits under one budget."""
    names = [_atom(rng) for _ in range(int(rng.integers(2, 4)))]

    def play_it(play: Play) -> None:
        account, runs = unpooled.Budget(50.0, 1e-4, scene.unit), []
        for name in names:
            runs += play.fitted(ATOMS[name](scene, play.frame, epsilon=scene.epsilon, budget=account))
        play.claims.append(Claim.of_budget("the budget", account, runs))

    return play_it


def study(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """Several analyses in one ``Study``."""
    names = dict.fromkeys(_atom(rng) for _ in range(3))
    names = {name: None for name in names if name != "site effects"}

    def play_it(play: Play) -> None:
        analyses = {name: (lambda rows, name=name: ATOMS[name](scene, rows, epsilon=1.0)) for name in names}
        own = {"epsilon": scene.epsilon, "delta": _DELTA, "unit": scene.unit, "adjacency": scene.adjacency}
        play.fitted(unpooled.Study(analyses, **own).fit(play.frame))

    return play_it


#: Ways by which a fit becomes the prior of a later one.
DOORS: dict[str, Callable[[Any], Any]] = {
    "the fit": lambda fit: fit,
    "as_prior": lambda fit: fit.as_prior(),
    "scaled": lambda fit: {name: 0.5 * value for name, value in fit.as_prior().items()},
    "pickled": lambda fit: pickle.loads(pickle.dumps(fit.as_prior())),  # noqa: S301 - made here
    "from moments": lambda fit: type(fit).from_moments(fit.moments_),
    "ols": lambda fit: _named(fit, fit.moments_.ols()),
    "saved": lambda fit: _saved(fit),
    "to scikit-learn": lambda fit: fit,
}


def _named(fit: Any, alone: Any) -> dict[str, Any]:  # noqa: ANN401 - a fit, and least squares of its moments
    return dict(zip(fit.moments_.layout.names, alone.coef_, strict=True))


def _saved(fit: Any) -> Any:  # noqa: ANN401 - a fit
    with tempfile.TemporaryDirectory() as folder:
        fit.save(Path(folder) / "fit")
        return unpooled.load(Path(folder) / "fit")


def prior(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """A fit that is drawn to one or two earlier ones of the same people, through any door; two draws may be of one plan."""
    name, door, twice = _pick(rng, _PRODUCERS[:2]), _pick(rng, list(DOORS)), rng.random() < 0.5
    family = door in {"the fit", "as_prior", "saved", "pickled", "scaled"} and rng.random() < 0.3
    name = "logistic" if family else name
    door = "the fit" if not family and name == "refinement" and door == "ols" else door
    charged = rng.random() < 0.5

    def play_it(play: Play) -> None:
        account = unpooled.Budget(50.0, 1e-4, scene.unit)
        given, runs = {}, ()
        for number in range(1 + twice):
            fit = ATOMS[name](scene, play.frame, epsilon=scene.epsilon)
            runs += play.fitted(fit)
            given[f"earlier {number}"] = DOORS[door](fit)
        more = {"budget": account} if charged else {}
        runs = play.fitted(ATOMS[name](scene, play.frame, epsilon=scene.epsilon, prior=given, **more), runs)
        if charged:
            play.claims.append(Claim.of_budget("the budget", account, runs))

    return play_it


def paid(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """Ranges that were paid for, and a fit that uses them."""
    charged = rng.random() < 0.5

    def play_it(play: Play) -> None:
        account = unpooled.Budget(50.0, 1e-4, scene.unit)
        more = {"budget": account} if charged else {}
        found = _ranges(scene, play.frame, epsilon=scene.epsilon)
        runs = play.fitted(found)
        description = unpooled.describe(
            play.frame.select("x", "z"), found.bounds_, epsilon=scene.epsilon, **scene.asked, **more, **_rows(scene, play.frame)
        )
        runs = play.fitted(description, runs)
        if charged:
            play.claims.append(Claim.of_budget("the budget", account, runs))

    return play_it


def pooled(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """A model that is fitted at every site by itself."""
    del rng

    def play_it(play: Play) -> None:
        own = scene.asked | {"bounds": (0.0, 1.0), "y_bounds": Y, "epsilon": scene.epsilon, "method": "moments", "geometry": "box"}
        model = unpooled.PrivateLinearRegression(**own)
        rows = {"sites": play.frame["site"].to_numpy()} | {k: v for k, v in _rows(scene, play.frame).items() if k != "sites"}
        play.fitted(unpooled.meta_analysis(model, play.frame.select("x", "z").to_numpy(), play.frame["y"].to_numpy(), terms="x0", **rows))

    return play_it


def files(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """A study as its file says it: analyses of all sites, at every site by itself, and of the columns that one site declares alone."""
    which = [name for name in ("all", "apart", "first", "last") if rng.random() < 0.6] or ["apart"]

    def play_it(play: Play) -> None:
        cards, tables = [], {}
        for k, rows in enumerate(scene.rows if scene.unit == "household" else (1,) * scene.sites):
            own = play.frame.filter(pl.col("site") == f"s{k}")
            alone = {0: "first", scene.sites - 1: "last"}.get(k, "")
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
        known = {
            "all": {"model": "describe", "columns": ["x", "z"]},
            "apart": {"model": "bayes", "columns": ["x", "z", "y"], "parameters": moments, "apart": True, "pool": ["x"]},
            "first": {"model": "describe", "columns": ["first"]},
            "last": {"model": "describe", "columns": ["last"]},
        }
        analyses = [{"name": name, **known[name]} for name in which if not (name == "apart" and scene.sites == 1)]
        if not analyses:
            raise UsageError("no analysis is left")
        asked = {"unit": scene.unit, "adjacency": scene.adjacency, "derived": (), "parameters": {"analyses": analyses}}
        plan, _ = run(load("analyses"), Study("analyses", tuple(cards), scene.epsilon, _DELTA, **asked), tables, registry=load)
        play.fitted(Planned(plan))

    return play_it


@dataclass(frozen=True)
class Planned:
    """A plan that was run."""

    plan_: Plan


def columns(scene: Scene, rng: np.random.Generator) -> Callable[[Play], None]:
    """Columns of the same people at two or three parties; a helper, where rows travel under masks."""
    kind = _pick(rng, ["pride", "gram", "joint", "joint table", "lasso", "stacking", "pride glm"])
    three = rng.random() < 0.3

    def play_it(play: Play) -> None:
        X, y = play.frame.select("x", "z", "w", "t").to_numpy() / [1, 1, 1, 10], play.frame["y"].to_numpy()
        parties = {"a": ["x0"], "b": ["x1", "x2"], "c": ["x3"]} if three else {"a": ["x0", "x1"], "b": ["x2", "x3"]}
        own = {"epsilon": scene.epsilon, "delta": _DELTA, "bounds": (0.0, 1.0), "parties": parties}
        match kind:
            case "pride" | "gram":
                unit = {"unit": "record"} if scene.unit == "household" else {"unit": scene.unit}
                model = unpooled.PrideRegressor(noise_model="plain" if kind == "pride" else "gram", y_bounds=Y, alpha=1.0, **own, **unit)
            case "pride glm":
                model = unpooled.PrideGLM("poisson", y_bounds=Y, alpha=1.0, unit="record", **own)
            case "joint":
                model = unpooled.PrivateLinearRegression(method="moments", y_bounds=Y, unit="record", adjacency=scene.adjacency, **own)
            case "lasso":
                model = unpooled.PrivateLasso(y_bounds=Y, **own)
            case "stacking":
                model, y = unpooled.PrivateStackingClassifier(split="features", classes=(0, 1), **own), play.frame["c"].to_numpy()
            case _:
                found = unpooled.describe(X, (0.0, 1.0), parties=parties, epsilon=scene.epsilon, delta=_DELTA, adjacency=scene.adjacency)
                play.fitted(found)
                return
        play.fitted(model.fit(X, y))

    return play_it


def void(_: object) -> None:
    """Return nothing."""


#: Every way to combine fits, with how often it is drawn.
PROGRAMS: dict[str, tuple[Callable[[Scene, np.random.Generator], Callable[[Play], None]], float]] = {
    "one": (one, 3),
    "budget": (budget, 2),
    "study": (study, 3),
    "prior": (prior, 3),
    "paid": (paid, 2),
    "pooled": (pooled, 1),
    "files": (files, 3),
    "columns": (columns, 2),
}


@dataclass(frozen=True)
class Whole:
    """A scene with a program."""

    name: str
    scene: Scene
    play: Callable[[Play], None]
    seed: int

    def program(self, frame: pl.DataFrame) -> list[Claim]:
        """Play the program on a population; return its promises."""
        play = Play(frame)
        self.play(play)
        return play.claims


def wholes(count: int, seed: int = 0) -> Iterator[Whole]:
    """Draw this many random whole programs."""
    names, weights = list(PROGRAMS), np.array([weight for _, weight in PROGRAMS.values()])
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        name = str(rng.choice(names, p=weights / weights.sum()))
        sites = int(rng.integers(1, 4)) if name not in {"pooled", "columns"} else int(rng.integers(2, 4)) if name == "pooled" else 1
        household = name != "columns" and rng.random() < 0.4
        scene = Scene(
            number,
            "household" if household else "record",
            "zero-out" if rng.random() < 0.25 else "replace",
            sites,
            tuple(int(k) for k in rng.integers(1, 4, sites)) if household else (1,) * sites,
            _pick(rng, ["distributed", "trusted", "local"]) if sites > 1 else "distributed",
            float(rng.choice([0.3, 1.0, 3.0])),
            int(rng.integers(30, 70)),
        )
        yield Whole(name, scene, PROGRAMS[name][0](scene, rng), number)


@dataclass(frozen=True)
class Held:
    """What the oracle found of a whole program."""

    whole: Whole
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


def hold(whole: Whole) -> Held:
    """Play a whole program in two worlds, for every change of its person; a program that is refused before it releases anything says why."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            oracle = Oracle(lambda: whole.program(whole.scene.frame()))
        except UnpooledError as error:
            return Held(whole, str(error))
        rng = np.random.default_rng(whole.seed)
        found = [oracle.attained(lambda frame=frame: whole.program(frame)) for frame in whole.scene.changes(rng)]
    return Held(whole, "" if oracle.releases else "nothing is released", tuple(found))


__all__ = ["ATOMS", "DOORS", "PROGRAMS", "Held", "Planned", "Play", "Scene", "Whole", "hold", "wholes"]
