"""One row per model: a small study and its data. Every contract test runs over every row."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from unpooled.datasets.hospitals import make_hospitals
from unpooled.privacy.bounds import Column
from unpooled.privacy.places import Places
from unpooled.privacy.plan import Card, HelperCard, Household, Study
from unpooled.privacy.table import BoundedTable, HeldPlaces, NoRows, PlacedTable, Table
from unpooled.testing.cases import Case

Tables = dict[str, Table]


HOSPITAL_COLUMNS = (
    Column("age", 18.0, 100.0),
    Column("pressure", 70.0, 230.0, missing="absent"),
    Column("cholesterol", 2.0, 10.0, missing="indicator"),
    Column("smoker", categories=("never", "former", "current")),
)


def describe_case() -> Case:
    tables = {name: Table(columns) for name, columns in make_hospitals((40, 30, 20), seed=1).items()}
    cards = tuple(Card(name, table.n_rows, HOSPITAL_COLUMNS) for name, table in tables.items())
    return Case("describe", Study("describe", cards, 1.0, 1e-5, simulation_seed=7, derived=()), tables)


def describe_arms_case() -> Case:
    """The same hospitals, described apart for every smoking habit."""
    case = describe_case()
    return Case("describe", msgspec.structs.replace(case.study, parameters={"by": "smoker"}), case.tables)


def pride_case() -> Case:
    """Three parties with different columns of the same people: ragged, one of them only sends, one column is public."""
    rng = np.random.default_rng(4)
    n = 24
    clinic = {"age": rng.uniform(20, 90, n), "pressure": np.where(rng.random(n) < 0.2, np.nan, rng.uniform(90, 200, n))}
    laboratory = {f"marker{j}": rng.normal(0, 1, n) for j in range(5)}
    registry = {"smoker": rng.choice(np.array(["no", "yes", None], dtype=object), n), "region": rng.uniform(0, 1, n)}
    response = {"y": clinic["age"] / 50 + laboratory["marker0"] + rng.normal(0, 0.3, n)}
    columns = {
        "clinic": (Column("age", 18.0, 100.0), Column("pressure", 70.0, 230.0, missing="indicator")),
        "laboratory": tuple(Column(f"marker{j}", -3.0, 4.0) for j in range(5)),
        "registry": (Column("region", 0.0, 1.0), Column("smoker", categories=("no", "yes"), missing="absent")),
    }
    tables = {
        "clinic": Table({**clinic, **response}),
        "laboratory": Table({**laboratory, **response}),
        "registry": Table(registry),
    }
    cards = tuple(Card(name, n, columns[name], () if name == "registry" else ("y",)) for name in tables)
    parameters = {"sketch_dim": 2, "public": ["region"]}
    return Case(
        "pride",
        Study("pride", cards, 1.0, 1e-5, unit="attribute", parameters=parameters, simulation_seed=7, derived=()),
        tables,
    )


def pride_family_case(family: str) -> Case:
    """The same parties, whose response is a count, one of three classes, or a censored time."""
    case = pride_case()
    rng = np.random.default_rng(6)
    u = np.asarray(case.tables["clinic"]["y"], dtype=np.float64) - 1.0
    # The contract runs thousands of fits: one of the three chooses its penalty.
    more: dict[str, object] = {"family": family, **({} if family == "cox" else {"alpha": 1.0})}
    response: dict[str, np.ndarray] = {"y": rng.poisson(np.exp(u / 2)).astype(np.float64)}
    if family == "multinomial":
        response = {
            "y": np.array(["low", "middle", "high"], dtype=object)[np.digitize(u + rng.normal(0, 0.3, u.size), [0.0, 0.6])]
        }
        more["classes"] = ["low", "middle", "high"]
    if family == "cox":
        time, censored = rng.exponential(np.exp(-u)), rng.exponential(2.0, u.size)
        response = {"y": np.minimum(time, censored).round(2) + 0.01, "died": (time <= censored).astype(np.float64)}
        more["event"] = "died"
    cards, tables = [], {}
    for card in case.study.parties:
        table = case.tables[card.name]
        own = {column.name: table[column.name] for column in card.columns}
        tables[card.name] = Table(own | (response if card.labels else {}))
        cards.append(msgspec.structs.replace(card, labels=tuple(response) if card.labels else ()))
    parameters = {**case.study.parameters, **more}
    return Case("pride", msgspec.structs.replace(case.study, parties=tuple(cards), parameters=parameters), tables)


def pride_prior_case() -> Case:
    """The same parties, drawn to a model of all columns and to one of the clinic's."""
    case = pride_case()
    coefficients = {"age": 0.02, "marker0": 1.0, "smoker = yes": 0.1, "region": -0.1}
    prior = [
        {"name": "2024", "coefficients": coefficients, "intercept": 0.3},
        {"name": "2023", "coefficients": {"pressure": -0.05}},
    ]
    parameters = {**case.study.parameters, "prior": prior}
    return Case("pride", msgspec.structs.replace(case.study, parameters=parameters), case.tables)


def bayes_case() -> Case:
    """Three sites with rows of the same columns; one may drop out or collude; ranges are narrowed first."""
    rng = np.random.default_rng(5)
    columns = (
        Column("age", 18.0, 100.0),
        Column("dose", 0.0, 4.0, missing="absent"),
        Column("smoker", categories=("no", "yes"), missing="indicator"),
        Column("pressure", 60.0, 240.0),
    )
    tables = {}
    for name, n in (("harbour", 25), ("hill", 18), ("island", 31)):
        age, dose = rng.uniform(20, 95, n), np.where(rng.random(n) < 0.2, np.nan, rng.uniform(0, 4, n))
        smoker = rng.choice(np.array(["no", "yes", None], dtype=object), n)
        pressure = 90 + 0.6 * age + 5 * np.nan_to_num(dose) + 8 * (smoker == "yes") + rng.normal(0, 5, n)
        tables[name] = Table({"age": age, "dose": dose, "smoker": smoker, "pressure": pressure})
    cards = tuple(Card(name, table.n_rows, columns) for name, table in tables.items())
    parameters = {"response": "pressure", "tolerate": 1, "projection": 0.25, "noise_precision": 0.04}
    return Case("bayes", Study("bayes", cards, 1.0, 1e-5, parameters=parameters, simulation_seed=7, derived=()), tables)


def bayes_rounds_case(**parameters: object) -> Case:
    """The same sites in a study over standardised rows, with one round of gradients or two."""
    case = bayes_case()
    asked = {"response": "pressure", "tolerate": 1, "max_passes": 6, **parameters}
    # So much epsilon that a focus is worth it on the few rows of an audit.
    return Case("bayes", msgspec.structs.replace(case.study, epsilon=4.0, parameters=asked), case.tables)


#: Earlier models of the sites' response: a good one and another.
EARLIER_PRESSURE = (
    {"name": "2024", "coefficients": {"age": 0.6, "smoker = yes": 8.0}, "intercept": 95.0},
    {"name": "elsewhere", "coefficients": {"dose": -3.0}, "intercept": 120.0},
)


def glm_prior_case() -> Case:
    """Two classes at several sites, drawn to an earlier model."""
    case = glm_case()
    number = next(column.name for column in case.study.parties[0].columns if column.categories is None)
    prior = [{"name": "2024", "coefficients": {number: 0.02}, "intercept": -1.0}]
    asked = {"response": case.study.parameters["response"], "method": "gradient", "max_passes": 6, "prior": prior}
    return Case("glm", msgspec.structs.replace(case.study, parameters=asked), case.tables)


def with_households(case: Case, most: dict[str, int]) -> Case:
    """The same rows of ids with several rows each: some ids are at every site, some have more rows than count there, some have one."""
    rng = np.random.default_rng(41)
    cards, tables = [], {}
    for card in case.study.parties:
        table, rows = case.tables[card.name], most[card.name]
        ids = [f"p{k}" for k in rng.integers(0, 2 * card.rows // 5, card.rows - 2)] + [f"alone at {card.name}", "p0"]
        bounded = tables[card.name] = BoundedTable(table, ids, rows)
        together = Household("person", bounded.household[0], rows)
        cards.append(msgspec.structs.replace(card, rows=bounded.n_rows, household=together))
    study = msgspec.structs.replace(case.study, parties=tuple(cards), unit="household")
    return Case(case.name, study, dict(tables))


def bayes_cluster_case() -> Case:
    """Three sites, of which each counts up to three rows of a person, six in all; the sums stay at a trusted aggregator."""
    case = with_households(
        bayes_rounds_case(method="refinement", covariance="cluster", tolerate=0), {"harbour": 2, "hill": 1, "island": 3}
    )
    return Case("bayes", msgspec.structs.replace(case.study, trust={"aggregation": "trusted"}), case.tables)


def bayes_columns_case(method: str = "moments") -> Case:
    """Two hospitals with different columns of the same people, and a registry that knows the masks and has no rows."""
    rng = np.random.default_rng(51)
    n = 12
    age, dose = rng.uniform(20, 95, n), np.where(rng.random(n) < 0.2, np.nan, rng.uniform(0, 4, n))
    smoker = rng.choice(np.array(["no", "yes", None], dtype=object), n)
    pressure = 90 + 0.6 * age + 8 * (smoker == "yes") + rng.normal(0, 5, n)
    first = Column("age", 18.0, 100.0), Column("smoker", categories=("no", "yes"), missing="indicator")
    second = Column("dose", 0.0, 4.0, missing="absent"), Column("pressure", 60.0, 240.0)
    cards = Card("east", n, first), Card("west", n, second)
    tables = {
        "east": Table({"age": age, "smoker": smoker}),
        "west": Table({"dose": dose, "pressure": pressure}),
        "registry": NoRows(),
    }
    parameters = {"response": "pressure", "split": "columns", "method": method}
    return Case(
        "bayes",
        Study(
            "bayes",
            cards,
            4.0,
            1e-5,
            parameters=parameters,
            simulation_seed=7,
            derived=(),
            helpers=(HelperCard("registry"),),
        ),
        tables,
    )


def describe_columns_case() -> Case:
    """Two hospitals and a registry; the correlations of three columns are asked for."""
    rng = np.random.default_rng(52)
    n = 12
    first, second = (
        (Column("age", 18.0, 100.0), Column("smoker", categories=("no", "yes"))),
        (Column("pressure", 60.0, 240.0),),
    )
    tables = {
        "east": Table({"age": rng.uniform(20, 95, n), "smoker": rng.choice(np.array(["no", "yes"], dtype=object), n)}),
        "west": Table({"pressure": rng.uniform(70, 200, n)}),
        "registry": NoRows(),
    }
    cards, helpers = (Card("east", n, first), Card("west", n, second)), (HelperCard("registry"),)
    asked = {"split": "columns"}
    study = Study("describe", cards, 4.0, 1e-5, parameters=asked, simulation_seed=7, derived=(), helpers=helpers)
    return Case("describe", study, tables)


def lasso_joint_case() -> Case:
    """The same two hospitals and their registry; few columns are to matter."""
    case = bayes_columns_case()
    parameters = {"response": "pressure", "method": "joint"}
    return Case("lasso", msgspec.structs.replace(case.study, model="lasso", parameters=parameters), case.tables)


def glm_columns_case(epsilon: float = 4.0) -> Case:
    """A clinic that knows who is ill, and a laboratory."""
    rng = np.random.default_rng(61)
    n = 14
    clinic = (Column("age", 18.0, 100.0), Column("ill", categories=("no", "yes")))
    laboratory = (Column("marker", 0.0, 8.0), Column("blood", categories=("a", "b")))
    age, marker = rng.uniform(20, 95, n), rng.uniform(1, 7, n)
    ill = np.where(age / 20 + marker - 7 + rng.logistic(size=n) > 0, "yes", "no").astype(object)
    tables = {
        "clinic": Table({"age": age, "ill": ill}),
        "laboratory": Table({"marker": marker, "blood": rng.choice(np.array(["a", "b"], dtype=object), n)}),
        "registry": NoRows(),
    }
    cards, helpers = (Card("clinic", n, clinic), Card("laboratory", n, laboratory)), (HelperCard("registry"),)
    asked = {"response": "ill", "split": "columns"}
    study = Study("glm", cards, epsilon, 1e-5, parameters=asked, simulation_seed=7, derived=(), helpers=helpers)
    return Case("glm", study, tables)


def of_hidden_people(case: Case, name: str = "hidden:" + "ab" * 32) -> Case:
    """The same two parties, of whom each lacks two of the people, at the places of a hidden link; the first twelve are in common."""
    places, given, tables = 24, {}, {}
    where = np.random.default_rng(63).permutation(places)
    for number, card in enumerate(case.study.parties):
        table = case.tables[card.name]
        kept = np.delete(np.arange(table.n_rows), table.n_rows - 1 - number)
        given[card.name] = np.sort(np.concatenate([where[kept], where[16 + 3 * number : 19 + 3 * number]]))
        tables[card.name] = PlacedTable(table.take(kept), Places(name, places, where[kept], given[card.name]))
    tables |= {
        helper.name: HeldPlaces(name, {pair: given[pair[0]] for pair in itertools.permutations(given, 2)})
        for helper in case.study.helpers
    }
    cards = tuple(msgspec.structs.replace(card, rows=places, linked=name, capped=True) for card in case.study.parties)
    asked = case.study.parameters | {"expected": 12}
    return Case(case.name, msgspec.structs.replace(case.study, parties=cards, ids=name, parameters=asked), tables)


def glm_count_columns_case(epsilon: float = 4.0) -> Case:
    """A clinic that counts falls, with the days that it watched, and a registry."""
    case = glm_columns_case(epsilon)
    rng = np.random.default_rng(62)
    falls, days = rng.poisson(2.0, 14).astype(float), rng.uniform(30, 360, 14)
    clinic = (Column("age", 18.0, 100.0), Column("days", 10.0, 366.0), Column("falls", 0.0, 12.0))
    tables = case.tables | {"clinic": Table({"age": case.tables["clinic"]["age"], "days": days, "falls": falls})}
    cards = (Card("clinic", 14, clinic), case.study.parties[1])
    asked = {"response": "falls", "family": "poisson", "exposure": "days", "split": "columns"}
    return Case("glm", msgspec.structs.replace(case.study, parties=cards, parameters=asked), tables)


def glm_time_columns_case(epsilon: float = 4.0) -> Case:
    """A clinic with the years until a fall and one cut, and a registry."""
    case = glm_columns_case(epsilon)
    rng = np.random.default_rng(63)
    years, fell = rng.uniform(0.0, 3.0, 14), rng.choice(2, 14).astype(float)
    clinic = (Column("age", 18.0, 100.0), Column("fell", 0.0, 1.0), Column("years", 0.0, 3.0))
    tables = case.tables | {"clinic": Table({"age": case.tables["clinic"]["age"], "fell": fell, "years": years})}
    cards = (Card("clinic", 14, clinic), case.study.parties[1])
    asked = {"response": "years", "family": "survival", "event": "fell", "cuts": [1.0], "split": "columns"}
    return Case("glm", msgspec.structs.replace(case.study, parties=cards, parameters=asked), tables)


def glm_case() -> Case:
    """Three sites with two classes and a public offset; one may drop out or collude; one Newton step."""
    rng = np.random.default_rng(15)
    columns = (
        Column("age", 18.0, 100.0),
        Column("dose", 0.0, 4.0, missing="absent"),
        Column("smoker", categories=("no", "yes"), missing="indicator"),
        Column("known", -1.0, 1.0),
        Column("ill", categories=("no", "yes")),
    )
    tables = {}
    for name, n in (("harbour", 25), ("hill", 18), ("island", 31)):
        age, dose = rng.uniform(20, 95, n), np.where(rng.random(n) < 0.2, np.nan, rng.uniform(0, 4, n))
        smoker, known = rng.choice(np.array(["no", "yes", None], dtype=object), n), rng.uniform(-1, 1, n)
        ill = np.where(age / 20 - 3 + np.nan_to_num(dose) / 4 + known + rng.logistic(size=n) > 0, "yes", "no").astype(object)
        tables[name] = Table({"age": age, "dose": dose, "smoker": smoker, "known": known, "ill": ill})
    cards = tuple(Card(name, table.n_rows, columns) for name, table in tables.items())
    parameters = {"response": "ill", "offset": "known", "tolerate": 1, "method": "newton", "max_passes": 5}
    return Case("glm", Study("glm", cards, 1.0, 1e-5, parameters=parameters, simulation_seed=7, derived=()), tables)


def glm_counts_case() -> Case:
    """The same sites with counts and what they are exposed to; the dispersion is estimated, and standard errors are robust."""
    two = glm_case()
    rng = np.random.default_rng(18)
    columns = (*two.study.parties[0].columns[:3], Column("years", 0.5, 8.0), Column("visits", 0.0, 12.0))
    tables = {}
    for name, held in two.tables.items():
        years = rng.uniform(0.5, 8, held.n_rows)
        visits = rng.poisson(years * np.exp(held["age"] / 60 - 1.5) * rng.gamma(2.0, 0.5, held.n_rows)).astype(np.float64)
        tables[name] = Table({**{c.name: held[c.name] for c in columns[:3]}, "years": years, "visits": visits})
    cards = tuple(msgspec.structs.replace(card, columns=columns) for card in two.study.parties)
    parameters = {
        "response": "visits",
        "exposure": "years",
        "family": "poisson",
        "covariance": "robust",
        "tolerate": 1,
        "method": "newton",
        "max_passes": 7,
    }
    return Case("glm", msgspec.structs.replace(two.study, parties=cards, parameters=parameters), tables)


def glm_direction_case() -> Case:
    """The same sites without the offset; a few rounds for the direction of the slopes, and a histogram for their length."""
    case = glm_case()
    parameters = {"response": "ill", "tolerate": 1, "method": "direction", "max_passes": 6}
    return Case("glm", msgspec.structs.replace(case.study, parameters=parameters), case.tables)


def glm_cluster_case() -> Case:
    """The sites with two classes, of which each counts up to two rows of a person, six in all; one may drop out or collude."""
    case = glm_case()
    study = msgspec.structs.replace(
        case.study, parameters={**case.study.parameters, "covariance": "cluster", "max_passes": 7}
    )
    return with_households(Case("glm", study, case.tables), dict.fromkeys(case.tables, 2))


def glm_sites_case() -> Case:
    """The same sites, each with a constant of its own, and a product of a column with them."""
    case = glm_case()
    parameters = {**case.study.parameters, "site_effects": "fixed", "formula": "ill ~ age * site + smoker"}
    del parameters["offset"]
    return Case("glm", msgspec.structs.replace(case.study, parameters=parameters), case.tables)


def glm_classes_case() -> Case:
    """The same sites with three classes, and no offset."""
    two = glm_case()
    rng = np.random.default_rng(16)
    columns = (*two.study.parties[0].columns[:3], Column("outcome", categories=("home", "ward", "died")))
    tables = {}
    for name, held in two.tables.items():
        u = np.column_stack([np.zeros(held.n_rows), held["age"] / 40 - 1, held["age"] / 30 - 2])
        outcome = np.array(["home", "ward", "died"], dtype=object)[(u + rng.gumbel(size=u.shape)).argmax(axis=1)]
        tables[name] = Table({**{c.name: held[c.name] for c in columns[:3]}, "outcome": outcome})
    cards = tuple(msgspec.structs.replace(card, columns=columns) for card in two.study.parties)
    parameters = {"response": "outcome", "family": "multinomial", "tolerate": 1, "method": "newton", "max_passes": 5}
    return Case("glm", msgspec.structs.replace(two.study, parties=cards, parameters=parameters), tables)


def glm_survival_case() -> Case:
    """The same sites with times to an event."""
    two = glm_case()
    rng = np.random.default_rng(17)
    columns = (
        *two.study.parties[0].columns[:3],
        Column("days", 0.0, 90.0),
        Column("died", categories=("no", "yes")),
    )
    tables = {}
    for name, held in two.tables.items():
        until = rng.exponential(np.exp(6 - held["age"] / 30))
        leaves = rng.uniform(10, 120, held.n_rows)
        died = np.where(until <= leaves, "yes", "no").astype(object)
        tables[name] = Table(
            {**{c.name: held[c.name] for c in columns[:3]}, "days": np.minimum(until, leaves), "died": died}
        )
    cards = tuple(msgspec.structs.replace(card, columns=columns) for card in two.study.parties)
    parameters = {
        "response": "days",
        "event": "died",
        "cuts": [7.0, 30.0],
        "family": "survival",
        "tolerate": 1,
        "method": "newton",
        "max_passes": 5,
    }
    return Case("glm", msgspec.structs.replace(two.study, parties=cards, parameters=parameters), tables)


def stacking_case() -> Case:
    """Three parties with different columns of the same people; a trusted high level learns on rows of its own."""
    rng = np.random.default_rng(6)
    n = 40
    clinic = {"age": rng.uniform(20, 90, n), "smoker": rng.choice(np.array(["no", "yes"], dtype=object), n)}
    laboratory = {f"marker{j}": rng.normal(0, 1, n) for j in range(3)}
    registry = {"region": np.where(rng.random(n) < 0.2, np.nan, rng.uniform(0, 1, n))}
    response = {"y": np.where(clinic["age"] / 40 + laboratory["marker0"] + rng.normal(0, 0.3, n) > 1.4, 1.0, -1.0)}
    columns = {
        "clinic": (Column("age", 18.0, 100.0), Column("smoker", categories=("no", "yes"))),
        "laboratory": tuple(Column(f"marker{j}", -3.0, 4.0) for j in range(3)),
        "registry": (Column("region", 0.0, 1.0, missing="indicator"),),
    }
    held = {"clinic": clinic, "laboratory": laboratory, "registry": registry}
    tables = {name: Table({**values, **response}) for name, values in held.items()}
    cards = tuple(Card(name, n, columns[name], ("y",)) for name in tables)
    parameters = {"importance": {"clinic": 2.0}, "high_share": 0.3, "holder": "laboratory"}
    study = Study(
        "stacking", cards, 2.0, 1e-5, parameters=parameters, trust={"meta": "trusted"}, simulation_seed=7, derived=()
    )
    return Case("stacking", study, tables)


def stacking_classes_case() -> Case:
    """Two parties and three classes, by normal noise that composes; predictions of the high-level rows are released with noise."""
    binary = stacking_case()
    rng, n = np.random.default_rng(8), 40
    tables = {}
    for name in ("clinic", "registry"):
        table = binary.tables[name]
        tables[name] = Table(
            {
                **{c: table[c] for c in table.names if c != "y"},
                "y": np.array(["low", "middle", "high"], dtype=object)[rng.integers(0, 3, n)],
            }
        )
        rng = np.random.default_rng(8)
    cards = tuple(card for card in binary.study.parties if card.name in tables)
    parameters = {"classes": ["low", "middle", "high"], "noise": "gaussian", "rates": [0.3, 0.3, 0.4]}
    study = Study(
        "stacking", cards, 3.0, 1e-5, parameters=parameters, trust={"meta": "perturbed"}, simulation_seed=7, derived=()
    )
    return Case("stacking", study, tables)


def stacking_probabilities_case() -> Case:
    """Three parties with public weights: a base rate, and counts of classes along the score of every party."""
    binary = stacking_case()
    study = Study("stacking", binary.study.parties, 2.0, 1e-5, parameters={}, simulation_seed=7, derived=())
    return Case("stacking", study, binary.tables)


def stacking_ranked_case() -> Case:
    """Three parties that are ranked by noisy scores; shares of the sensitivity by rank; classes against the rest of them."""
    binary = stacking_case()
    parameters = {"ranks": [3.0, 2.0, 1.0], "noise": "gaussian", "multi_class": "one-vs-rest"}
    study = Study("stacking", binary.study.parties, 2.0, 1e-5, parameters=parameters, simulation_seed=7, derived=())
    return Case("stacking", study, binary.tables)


def lasso_case() -> Case:
    """Three parties with different columns, picking in turn; per value, with categories and missing values."""
    rng = np.random.default_rng(9)
    n = 30
    clinic = {"age": rng.uniform(20, 90, n), "smoker": rng.choice(np.array(["no", "yes"], dtype=object), n)}
    laboratory = {f"marker{j}": rng.normal(0, 1, n) for j in range(4)}
    registry = {"region": np.where(rng.random(n) < 0.2, np.nan, rng.uniform(0, 1, n))}
    response = {"y": np.clip(clinic["age"] / 50 - 1 + laboratory["marker0"] + rng.normal(0, 0.3, n), -2, 2)}
    columns = {
        "clinic": (Column("age", 18.0, 100.0), Column("smoker", categories=("no", "yes"))),
        "laboratory": tuple(Column(f"marker{j}", -3.0, 4.0) for j in range(4)),
        "registry": (Column("region", 0.0, 1.0, missing="indicator"),),
    }
    held = {"clinic": clinic, "laboratory": laboratory, "registry": registry}
    tables = {name: Table({**values, **response}) for name, values in held.items()}
    cards = tuple(Card(name, n, columns[name], ("y",)) for name in tables)
    parameters = {"radius_in_half_ranges": 1.5, "response_bound": 2.0, "rounds": 4, "sampled": 2}
    return Case(
        "lasso",
        Study("lasso", cards, 2.0, 1e-5, unit="attribute", parameters=parameters, simulation_seed=7, derived=()),
        tables,
    )


def lasso_moments_case() -> Case:
    """The default form: three parties, of which one picks among its columns; whole rows, so much epsilon that there is more than a mean."""
    rng = np.random.default_rng(19)
    n = 30
    held = {
        "clinic": {"age": rng.uniform(20, 90, n), "smoker": rng.choice(np.array(["no", "yes"], dtype=object), n)},
        "laboratory": {f"marker{j}": rng.normal(0, 1, n) for j in range(6)},
        "registry": {"region": np.where(rng.random(n) < 0.2, np.nan, rng.uniform(0, 1, n))},
    }
    columns = {
        "clinic": (Column("age", 18.0, 100.0), Column("smoker", categories=("no", "yes"))),
        "laboratory": tuple(Column(f"marker{j}", -3.0, 4.0) for j in range(6)),
        "registry": (Column("region", 0.0, 1.0, missing="indicator"),),
    }
    response = {"y": np.clip(held["clinic"]["age"] / 50 - 1 + held["laboratory"]["marker0"], -2, 2)}
    tables = {name: Table({**values, **response}) for name, values in held.items()}
    cards = tuple(Card(name, n, columns[name], ("y",)) for name in tables)
    parameters = {"radius_in_half_ranges": 1.5, "response_bound": 2.0}  # with so much epsilon: axes twice
    study = Study("lasso", cards, 300.0, 1e-5, parameters=parameters, simulation_seed=7, derived=())
    return Case("lasso", study, tables)


def lasso_logistic_case() -> Case:
    """The same parties with two classes."""
    squared = lasso_moments_case()
    tables = {
        name: Table({c: np.where(table[c] > 0, 1.0, -1.0) if c == "y" else table[c] for c in table.names})
        for name, table in squared.tables.items()
    }
    # One stage of axes.
    study = msgspec.structs.replace(
        squared.study, epsilon=90.0, parameters={"radius_in_half_ranges": 3.0, "loss": "logistic"}
    )
    return Case("lasso", study, tables)


def pls_case() -> Case:
    """Three laboratories with spectra of twelve channels; their own public loadings; one may drop out or collude."""
    rng = np.random.default_rng(8)
    axis = np.linspace(0, 1, 12)
    columns = (*(Column(f"nm{1100 + 10 * j}", -0.5, 1.5) for j in range(12)), Column("moisture", 6.0, 14.0))
    tables = {}
    for name, n in (("mill", 20), ("silo", 15), ("port", 24)):
        amounts = rng.uniform(0, 1, (n, 2))
        spectra = amounts @ np.array([np.sin(3 * axis), axis**2]) + rng.normal(0, 0.02, (n, 12))
        moisture = 8 + 4 * amounts[:, 0] + rng.normal(0, 0.2, n)
        tables[name] = Table({column.name: values for column, values in zip(columns, [*spectra.T, moisture], strict=True)})
    cards = tuple(Card(name, table.n_rows, columns) for name, table in tables.items())
    matrix = np.column_stack([np.ones(12), axis, axis**2, axis**3]).tolist()
    parameters = {"response": "moisture", "basis": "matrix", "matrix": matrix, "norm": 1.5, "tolerate": 1}
    return Case("pls", Study("pls", cards, 1.0, 1e-5, parameters=parameters, simulation_seed=7, derived=()), tables)


def pls_several_case() -> Case:
    """The same laboratories with a second response, which shares the components."""
    alone = pls_case()
    rng = np.random.default_rng(9)
    columns = (*alone.study.parties[0].columns, Column("protein", 0.0, 5.0))
    tables = {
        name: Table(
            {**{c: table[c] for c in table.names}, "protein": 0.3 * table["nm1200"] + rng.uniform(0, 4, table.n_rows)}
        )
        for name, table in alone.tables.items()
    }
    cards = tuple(msgspec.structs.replace(card, columns=columns) for card in alone.study.parties)
    parameters = alone.study.parameters | {"response": ["moisture", "protein"]}
    return Case("pls", msgspec.structs.replace(alone.study, parties=cards, parameters=parameters), tables)


def pls_several_rounds_case() -> Case:
    """Two of them, each with all the noise it needs, and gradients of both responses."""
    case = pls_several_case()
    parameters = case.study.parameters | {"method": "gradient", "tolerate": 0}
    changes = {"parties": case.study.parties[:2], "parameters": parameters, "trust": {"aggregation": "local"}}
    tables = {card.name: case.tables[card.name] for card in case.study.parties[:2]}
    return Case("pls", msgspec.structs.replace(case.study, **changes), tables)


def diagnose_case() -> Case:
    """Two clinics hold rows; a model of two columns is given, one of them with categories, and its residuals are looked at."""
    rng = np.random.default_rng(23)
    columns = (Column("dose", 0.0, 4.0), Column("arm", categories=("a", "b"), missing="absent"), Column("days", 0.0, 20.0))
    tables = {}
    for name, n in (("clinic", 30), ("ward", 25)):
        dose, arm = rng.uniform(0, 4, n), rng.choice(np.array(["a", "b"], dtype=object), n)
        tables[name] = Table({"dose": dose, "arm": arm, "days": np.clip(10 - 2 * dose + rng.normal(0, 3, n), 0, 20)})
    cards = tuple(Card(name, table.n_rows, columns) for name, table in tables.items())
    parameters = {
        "response": "days",
        "coefficients": {"dose": -2.0, "arm = a": 0.0, "arm = b": 1.0},
        "intercept": 10.0,
        "cuts": [4.0, 8.0],
        "residual_cuts": [-3.0, 0.0, 3.0],
    }
    return Case(
        "diagnose", Study("diagnose", cards, 1.0, 1e-5, parameters=parameters, simulation_seed=7, derived=()), tables
    )


def diagnose_classes_case() -> Case:
    """The same clinics; two classes."""
    numbers = diagnose_case()
    tables = {
        name: Table(
            {c: (np.where(table[c] > 6, "long", "short").astype(object) if c == "days" else table[c]) for c in table.names}
        )
        for name, table in numbers.tables.items()
    }
    columns = (*numbers.study.parties[0].columns[:2], Column("days", categories=("long", "short")))
    cards = tuple(msgspec.structs.replace(card, columns=columns) for card in numbers.study.parties)
    changed = {
        "link": "logistic",
        "cuts": [-1.0, 0.0, 1.0],
        "coefficients": {"dose": 1.0, "arm = a": 0.0, "arm = b": 1.0},
        "intercept": -2.0,
    }
    parameters = {k: v for k, v in (numbers.study.parameters | changed).items() if k != "residual_cuts"}
    return Case("diagnose", msgspec.structs.replace(numbers.study, parties=cards, parameters=parameters), tables)


def survival_case() -> Case:
    """Three sites, two arms in two strata, a stratum that may be missing."""
    rng = np.random.default_rng(29)
    columns = (
        Column("days", 0.0, 30.0),
        Column("died", categories=("no", "yes")),
        Column("arm", categories=("usual", "new")),
        Column("stage", categories=("one", "two"), missing="absent"),
    )
    tables = {}
    for name, n in (("harbour", 25), ("hill", 18), ("island", 31)):
        until = rng.exponential(25, n)
        tables[name] = Table(
            {
                "days": np.minimum(until, 30.0),
                "died": np.where(until <= 30, "yes", "no").astype(object),
                "arm": rng.choice(np.array(["usual", "new"], dtype=object), n),
                "stage": rng.choice(np.array(["one", "two", None], dtype=object), n, p=[0.5, 0.4, 0.1]),
            }
        )
    cards = tuple(Card(name, table.n_rows, columns) for name, table in tables.items())
    parameters = {"time": "days", "event": "died", "by": "arm", "strata": "stage", "tolerate": 1}
    return Case(
        "survival", Study("survival", cards, 1.0, 1e-5, parameters=parameters, simulation_seed=7, derived=()), tables
    )


def effects_case(**parameters: Any) -> Case:
    """Two sites, a treatment of two levels, an outcome that is a number."""
    rng = np.random.default_rng(31)
    columns = (
        Column("age", 18.0, 100.0, missing="absent"),
        Column("smoker", categories=("no", "yes")),
        Column("arm", categories=("usual", "new")),
        Column("stay", 0.0, 30.0),
        Column("died", 0.0, 1.0),
    )
    tables = {}
    for name, n in (("harbour", 45), ("hill", 38)):
        age = rng.uniform(18, 100, n)
        arm = rng.choice(np.array(["usual", "new"], dtype=object), n)
        stay = np.clip(5 + age / 10 - 2 * (arm == "new") + rng.normal(0, 3, n), 0, 30)
        tables[name] = Table(
            {
                "age": np.where(rng.uniform(size=n) < 0.1, np.nan, age),
                "smoker": rng.choice(np.array(["no", "yes"], dtype=object), n),
                "arm": arm,
                "stay": stay,
                "died": rng.integers(0, 2, n).astype(float),
            }
        )
    cards = tuple(Card(name, table.n_rows, columns) for name, table in tables.items())
    asked = {
        "response": "stay",
        "treatment": "arm",
        "covariates": "age + smoker",
        "estimator": "aipw",
        "max_passes": 5,
    } | parameters
    return Case("effects", Study("effects", cards, 1.0, 1e-5, parameters=asked, simulation_seed=7, derived=()), tables)


def analyses_case() -> Case:
    """Three sites with rows of the same columns: what they are like, and a regression on some of them."""
    rows = bayes_case()
    listed = [
        {"name": "baseline", "model": "describe", "share": 0.3, "columns": ["age", "smoker"]},
        {"name": "pressure", "model": "bayes", "share": 0.7, "parameters": {"response": "pressure", "method": "moments"}},
    ]
    return Case(
        "analyses", msgspec.structs.replace(rows.study, model="analyses", parameters={"analyses": listed}), rows.tables
    )


def analyses_apart_case() -> Case:
    """Three sites with rows of the same columns: what they are like together, and a regression at each of them, pooled afterwards."""
    rows = bayes_case()
    fit = {"response": "pressure", "method": "refinement", "max_passes": 6}
    listed = [
        {"name": "baseline", "model": "describe", "share": 0.3, "columns": ["age", "smoker"]},
        {"name": "fit", "model": "bayes", "share": 0.7, "parameters": fit, "apart": True, "pool": ["age", "smoker"]},
    ]
    asked = msgspec.structs.replace(rows.study, model="analyses", parameters={"analyses": listed})
    return Case("analyses", asked, rows.tables)


def analyses_columns_case() -> Case:
    """Three parties with columns of the same people: two stacks, whose high levels learn on different parts of the rows."""
    columns = stacking_case()
    listed = [
        {"name": "one", "model": "stacking", "parameters": {"high_share": 0.3}, "trust": {"meta": "trusted"}},
        {"name": "two", "model": "stacking", "parameters": {"high_share": 0.5}, "trust": {"meta": "trusted"}},
    ]
    asked = msgspec.structs.replace(
        columns.study, model="analyses", epsilon=4.0, delta=0.0, parameters={"analyses": listed}, trust={}
    )
    return Case("analyses", asked, columns.tables)


def tables_case() -> Case:
    """Three clinics cross two arms with an outcome, below and above 50 years; the size of one arm is public."""
    rng = np.random.default_rng(61)
    columns = (
        Column("age", 18.0, 100.0),
        Column("arm", categories=("control", "treated")),
        Column("outcome", categories=("home", "ward"), missing="absent"),
    )
    tables = {}
    for name, n in (("clinic", 30), ("ward", 25), ("practice", 20)):
        arm = np.array(["control", "treated"], dtype=object)[np.arange(n) % 2]
        outcome = rng.choice(np.array(["home", "ward", None], dtype=object), n)
        tables[name] = Table({"arm": arm, "age": rng.uniform(52, 95, n) * np.tile([1, 0.6], n)[:n], "outcome": outcome})
    cards = tuple(Card(name, table.n_rows, columns) for name, table in tables.items())
    parameters = {"columns": ["arm", "age", "outcome"], "cuts": {"age": [50.0]}, "totals": {"arm": {"control": 38}}}
    return Case("tables", Study("tables", cards, 1.0, 1e-5, parameters=parameters, simulation_seed=7, derived=()), tables)


def tables_numbers_case() -> Case:
    """The same clinics: a number by arm, with sex in between."""
    rng = np.random.default_rng(62)
    columns = (
        Column("age", 18.0, 100.0),
        Column("arm", categories=("control", "treated")),
        Column("sex", categories=("f", "m"), missing="indicator"),
    )
    tables = {}
    for name, n in (("clinic", 30), ("ward", 25)):
        sex, arm = (rng.choice(np.array(words, dtype=object), n) for words in (["f", "m", None], ["control", "treated"]))
        tables[name] = Table({"arm": arm, "sex": sex, "age": rng.uniform(45, 95, n)})
    cards = tuple(Card(name, table.n_rows, columns) for name, table in tables.items())
    parameters = {"columns": ["arm", "sex", "age"], "cuts": {"age": [40.0, 60.0, 80.0]}}
    return Case("tables", Study("tables", cards, 1.0, 1e-5, parameters=parameters, simulation_seed=7, derived=()), tables)


CASES: dict[str, Callable[[], Case]] = {
    "describe": describe_case,
    "describe, columns": describe_columns_case,
    "describe, arms": describe_arms_case,
    "tables": tables_case,
    "tables, numbers": tables_numbers_case,
    "pride": pride_case,
    "pride, poisson": lambda: pride_family_case("poisson"),
    "pride, multinomial": lambda: pride_family_case("multinomial"),
    "pride, cox": lambda: pride_family_case("cox"),
    "pride, prior": pride_prior_case,
    "bayes": bayes_case,
    "bayes, robust": lambda: bayes_rounds_case(method="refinement", covariance="robust"),
    "bayes, cluster": bayes_cluster_case,
    "bayes, sites": lambda: bayes_rounds_case(method="refinement", site_effects="random"),
    "bayes, focus": lambda: bayes_rounds_case(method="focus", focus=["age"], covariance="robust"),
    "bayes, prior": lambda: bayes_rounds_case(method="weights", max_passes=4, prior=EARLIER_PRESSURE),
    "bayes, columns": bayes_columns_case,
    "bayes, hidden": lambda: of_hidden_people(bayes_columns_case()),
    "bayes, sines": lambda: bayes_columns_case("sines"),
    "glm": glm_case,
    "glm, poisson robust": glm_counts_case,
    "glm, cluster": glm_cluster_case,
    "glm, sites": glm_sites_case,
    "glm, direction": glm_direction_case,
    "glm, prior": glm_prior_case,
    "glm, multinomial": glm_classes_case,
    "glm, survival": glm_survival_case,
    "glm, columns": glm_columns_case,
    "glm, columns of counts": glm_count_columns_case,
    "glm, columns of times": glm_time_columns_case,
    "stacking": stacking_case,
    "stacking, classes": stacking_classes_case,
    "stacking, ranked": stacking_ranked_case,
    "stacking, probabilities": stacking_probabilities_case,
    "lasso": lasso_case,
    "lasso, moments": lasso_moments_case,
    "lasso, logistic": lasso_logistic_case,
    "lasso, joint": lasso_joint_case,
    "pls": pls_case,
    "pls, two responses": pls_several_case,
    "pls, two responses by rounds": pls_several_rounds_case,
    "diagnose": diagnose_case,
    "diagnose, classes": diagnose_classes_case,
    "survival": survival_case,
    "effects": effects_case,
    "effects, partial": lambda: effects_case(estimator="partial"),
    "effects, survival": lambda: effects_case(
        estimator="iptw", estimand="ATT", family="survival", event="died", horizon=20.0
    ),
    "analyses": analyses_case,
    "analyses, columns": analyses_columns_case,
    "analyses, apart": analyses_apart_case,
}

#: The first case of every model, where one of each is enough.
FIRST = {name.partition(",")[0]: name for name in reversed(CASES)}
