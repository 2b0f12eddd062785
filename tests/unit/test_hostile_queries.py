"""Queries in which one person moves another person's rows are refused, and the verdict is decided on data: on a world, and on worlds next to it.

A world is a folder of tables about people, and of a code list. Next to it are worlds in which one person has other rows everywhere, or none. Of a
query that is accepted, the results in all of them are compared: only rows of that person may differ.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from pathlib import Path

import duckdb
import polars as pl
import pytest
from world import sized

import unpooled
from unpooled.errors import DataError, SourceError
from unpooled.privacy.bounds import Column
from unpooled.privacy.ledger import Ledger
from unpooled.privacy.unit import Target
from unpooled.study.files import read_party
from unpooled.study.party import create_party, open_party
from unpooled.study.sources import query as looking

PEOPLE, CODES = "'people.parquet'", "'codes.parquet'"
PUBLIC = ("codes.parquet", "codes.csv")
ATTACH = {"lab": "sqlite:lab.sqlite"}
IDS = [f"p{k:02}" for k in range(24)]


def person(name: str, rng: random.Random) -> dict[str, list[dict[str, object]]]:
    """Return the rows of a person in every table."""
    city, age = rng.choice("abcd"), rng.randint(20, 80)
    own = {
        "id": name,
        "city": city,
        "age": age,
        "x": round(rng.uniform(-5, 5), 3),
        "sick": rng.randint(0, 1),
        "born": f"19{rng.randint(30, 99)}-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}",
        "icd": rng.choice(["I10.0", "E11.9", "J45"]),
    }
    visits = [
        {
            "id": name,
            "v": round(rng.uniform(0, 9), 3),
            "seen": f"2024-0{k + 1}-0{rng.randint(1, 9)}",
            "ward": rng.choice("ab"),
        }
        for k in range(rng.randint(1, 4))
    ]
    return {"people": [own], "visits": visits}


def written(folder: Path, everybody: dict[str, dict[str, list[dict[str, object]]]]) -> Path:
    """Write a world."""
    folder.mkdir()
    tables = {name: [row for one in everybody.values() for row in one[name]] for name in ("people", "visits")}
    people, visits = pl.DataFrame(tables["people"]), pl.DataFrame(tables["visits"])
    people.write_parquet(folder / "people.parquet")
    people.write_csv(folder / "people.csv")
    people.rename({"id": "patient"}).write_parquet(folder / "renamed.parquet")
    visits.write_parquet(folder / "visits.parquet")
    for name, site in (("north", people.filter(pl.col("id") < "p12")), ("south", people.filter(pl.col("id") >= "p12"))):
        site.write_parquet(folder / f"site_{name}.parquet")
    codes = pl.DataFrame({"code": list("abcde"), "label": ["A", "B", "C", "D", "E"], "rank": [1, 2, 3, 4, 5]})
    codes.write_parquet(folder / "codes.parquet")
    codes.write_csv(folder / "codes.csv")
    pl.DataFrame({"code": list("aabc"), "label": list("wxyz")}).write_parquet(folder / "doubles.parquet")
    lab = sqlite3.connect(folder / "lab.sqlite")
    for name, frame in (("person", people), ("visit", visits)):
        kinds = ", ".join(f'"{c}" {"TEXT" if t == pl.String else "REAL"}' for c, t in frame.schema.items())
        lab.execute(f"CREATE TABLE {name} ({kinds})")
        lab.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * frame.width)})", frame.rows())
    lab.execute("CREATE VIEW smoothed AS SELECT id, x - (SELECT avg(x) FROM person) AS x FROM person")
    lab.commit()
    lab.close()
    return folder


class Worlds:
    """A world and those next to it, each with an engine that checks nothing."""

    def __init__(self, place: Path) -> None:
        everybody = {name: person(name, random.Random(k)) for k, name in enumerate(IDS)}
        self.here = written(place / "here", everybody)
        self._raw = {"": self._engine(self.here)}
        self.moved = {}
        for name in (IDS[0], IDS[7], IDS[-1]):
            other = person(name, random.Random(900))
            extreme = {
                "people": [other["people"][0] | {"x": 1e6, "age": 119, "city": "d", "sick": 1}],
                "visits": [{**other["visits"][0], "v": 1e6}],
            }
            gone = {key: value for key, value in everybody.items() if key != name}
            for kind, changed in (
                ("other", everybody | {name: other}),
                ("extreme", everybody | {name: extreme}),
                ("gone", gone),
            ):
                self._raw[f"{name} {kind}"] = self._engine(written(place / f"{name}-{kind}", changed))
                self.moved[f"{name} {kind}"] = name

    @staticmethod
    def _engine(folder: Path) -> duckdb.DuckDBPyConnection:
        from unpooled.study.sources.connection import extension

        raw = duckdb.connect(config={"file_search_path": str(folder), "threads": 1})
        raw.execute(f"LOAD '{extension('sqlite_scanner')}'")
        raw.execute(f"ATTACH '{folder}/lab.sqlite' AS lab (TYPE sqlite, READ_ONLY)")
        return raw

    def strangers(self, query: str, ids: str | None) -> str:
        """Return whose rows move where another person's rows are changed; nothing where all is well."""
        results = {}
        for name, raw in self._raw.items():
            try:
                found = raw.execute(query)
            except duckdb.Error:
                continue  # a value that the query does not take: a refusal in that world
            assert found.description is not None
            columns = [column[0] for column in found.description]
            place = None if ids is None else [column.lower() for column in columns].index(ids)
            results[name] = Counter((None if place is None else str(row[place]), repr(row)) for row in found.fetchall())
        for name, mine in self.moved.items():
            if name not in results or "" not in results:
                continue
            gone, come = results[""] - results[name], results[name] - results[""]
            if ids is None and max(sum(gone.values()), sum(come.values())) > 1:
                return f"{name}: {sum(gone.values())} rows"
            if ids is not None and (others := {whose for whose, _ in (*gone, *come)} - {mine}):
                return f"{name}: rows of {sorted(map(str, others))}"
        return ""


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(tmp_path_factory.mktemp("worlds"))


def asked(worlds: Worlds, query: str, ids: str | None, public: tuple[str, ...] = ()) -> pl.DataFrame:
    return unpooled.Source(
        query,
        folder=worlds.here,
        attach=ATTACH if "lab." in query else None,
        id=ids,
        public=public,
        called=CALLED,
        name="ward",
    ).read()


#: What a party declares to be the id in tables that call it otherwise.
CALLED = ("patient", "lower(patient)", "NULLIF(patient, 'p03')", "left(patient, 2)")


def publics(query: str) -> tuple[str, ...]:
    """Return the code lists that a query reads."""
    return tuple(name for name in PUBLIC if f"'{name}'" in query)


# --- what is allowed ---------------------------------------------------------------------------------------------------------

#: Without a person's id: one table, row by row.
BY_ROW = [
    "SELECT * FROM 'people.parquet'",
    "SELECT * FROM 'people.csv' WHERE age > 30",
    "SELECT age, CASE WHEN sick = 1 THEN 'ill' ELSE 'well' END AS state FROM 'people.parquet'",
    "SELECT CAST(born AS DATE) AS born, date_diff('year', CAST(born AS DATE), DATE '2024-01-01') AS years FROM 'people.parquet'",
    "SELECT extract(year FROM born::DATE) AS year, strftime(born::DATE, '%m') AS month FROM 'people.csv'",
    "SELECT COALESCE(NULLIF(city, 'a'), 'other') AS city, age::DOUBLE / 10 AS decades FROM 'people.parquet'",
    "SELECT regexp_matches(icd, '^I1') AS heart, regexp_replace(icd, '\\..*$', '') AS chapter, x FROM 'people.parquet'",
    "SELECT upper(substring(city, 1, 1)) || '-' || lpad(age::VARCHAR, 3, '0') AS tag FROM 'people.parquet' WHERE city LIKE '_'",
    "SELECT x, age BETWEEN 40 AND 60 AS middle FROM 'people.parquet' WHERE city IN ('a', 'b', 'c') AND NOT sick = 1",
    "SELECT greatest(x, 0) AS x, list_max([x, age]) AS most, len([y for y in [1, 2, 3] if y > 1]) AS two FROM 'people.parquet'",
    "SELECT * EXCLUDE (born) REPLACE (age + 1 AS age) FROM 'people.parquet'",
    "SELECT ln(age) AS age, try_cast(icd AS INTEGER) IS NULL AS text, round(x, 1) AS x FROM 'people.parquet'",
    "SELECT x FROM read_parquet(['site_north.parquet', 'site_south.parquet'])",
    "SELECT x, age FROM 'site_*.parquet'",
    "SELECT x FROM read_csv('people.csv', header = true, columns = {'id': 'VARCHAR', 'city': 'VARCHAR', 'age': 'INTEGER', 'x': 'DOUBLE', 'sick': 'INTEGER', 'born': 'DATE', 'icd': 'VARCHAR'})",
    "SELECT p.x, c.label FROM 'people.parquet' p LEFT JOIN 'codes.parquet' c ON p.city = c.code",
    "SELECT x, rank FROM 'people.parquet' JOIN (SELECT code AS city, rank FROM 'codes.csv') USING (city)",
    "WITH a AS (SELECT x, age FROM 'people.parquet' WHERE age > 20) SELECT x * 2 AS x FROM a WHERE x > 0",
    "SELECT p.x FROM lab.person AS p WHERE p.age > 30 ORDER BY x",
    "SELECT x, (SELECT_ME).a AS a FROM (SELECT x, {'a': age} AS SELECT_ME FROM 'people.parquet')",
]
#: With the id of a person: joins and groups by it.
BY_ID = [
    "SELECT * FROM 'people.parquet' ORDER BY id",
    "SELECT id, avg(v) AS v, count(*) AS n FROM 'visits.parquet' GROUP BY id ORDER BY id",
    "SELECT id, max(v) FILTER (WHERE ward = 'a') AS most FROM 'visits.parquet' GROUP BY ALL",
    "SELECT id, arg_max(v, (seen, v)) AS newest, first(v ORDER BY seen, v) AS oldest FROM 'visits.parquet' GROUP BY 1 HAVING count(*) > 1",
    "SELECT p.id, p.age, m.v FROM 'people.parquet' p JOIN (SELECT id, median(v) AS v FROM 'visits.parquet' GROUP BY id) m USING (id)",
    "SELECT p.id, p.age, m.v FROM 'people.parquet' p LEFT JOIN (SELECT id, sum(v) AS v FROM 'visits.parquet' GROUP BY id) m ON m.id = p.id AND p.sick = 1",
    "WITH m AS (SELECT id, sum(v) AS v FROM 'visits.parquet' WHERE ward = 'a' GROUP BY id) SELECT id, age, v FROM 'people.parquet' FULL JOIN m USING (id)",
    "WITH m AS (SELECT id, sum(v) AS v FROM 'visits.parquet' GROUP BY id) SELECT p.id, v FROM m RIGHT JOIN 'people.parquet' p USING (id)",
    "SELECT id, age FROM 'site_north.parquet' UNION ALL SELECT id, age FROM 'site_south.parquet' ORDER BY id",
    "SELECT id, age FROM 'people.parquet' WHERE sick = 1 UNION ALL SELECT id, -age FROM 'people.parquet' WHERE sick = 0",
    "SELECT id, count(DISTINCT ward) AS wards FROM (SELECT id, ward FROM 'visits.parquet' UNION ALL SELECT id, city FROM 'people.parquet') GROUP BY id",
    "SELECT p.id, c.label, sum(v.v) AS v FROM 'people.parquet' p JOIN 'visits.parquet' v USING (id) JOIN 'codes.parquet' c ON c.code = p.city GROUP BY p.id, c.label",
    "SELECT p.id, p.x, v.n FROM lab.person p JOIN (SELECT id, count(*) AS n FROM lab.visit GROUP BY id) v USING (id) ORDER BY id",
    "SELECT patient AS id, x FROM 'renamed.parquet'",
    "WITH r AS (SELECT patient AS id, x FROM 'renamed.parquet'), m AS (SELECT id, min(v) AS v FROM 'visits.parquet' GROUP BY id) SELECT id, x, v FROM r JOIN m USING (id)",
    "SELECT id, list_sum(list_transform(list(v ORDER BY v), lambda k: k + 1)) AS v, list(v ORDER BY seen, v)[1] AS first FROM 'visits.parquet' GROUP BY id",
    "SELECT lower(patient) AS id, max(x) AS x FROM 'renamed.parquet' GROUP BY id",
    "SELECT CAST(id AS VARCHAR) AS id, x FROM 'people.parquet'",
    "WITH w AS (SELECT * REPLACE (x + 1 AS x) FROM 'people.parquet') SELECT id, x FROM w WHERE x > 0",
    "SELECT id, x FROM 'people.parquet' p JOIN 'codes.csv' c ON p.city = c.code AND c.rank < 3",
    "SELECT id, avg(v ORDER BY v) AS v, string_agg(ward, ',' ORDER BY seen, ward) AS path FROM 'visits.parquet' GROUP BY id",
]
ALLOWED = [(query, None) for query in BY_ROW] + [(query, "id") for query in BY_ID]


@pytest.mark.parametrize(("query", "ids"), ALLOWED)
def test_an_ordinary_query_is_read_and_moves_nobody_else(worlds: Worlds, query: str, ids: str | None) -> None:
    assert len(asked(worlds, query, ids, publics(query))) >= 2
    assert worlds.strangers(query, ids) == ""


def test_a_query_by_row_is_read_where_an_id_is_named_too(worlds: Worlds) -> None:
    for query in BY_ROW[:2]:
        assert len(asked(worlds, query, "id")) >= 2


# --- what is refused ---------------------------------------------------------------------------------------------------------

P, V, C = PEOPLE, "'visits.parquet'", CODES
#: Expressions that stand where a number does: none is made of the row alone.
EXPRESSIONS = [
    f"(SELECT avg(x) FROM {P})",
    f"(SELECT count(*) FROM {P} q WHERE q.city = p.city)",
    f"(CASE WHEN p.city IN (SELECT city FROM {P} WHERE sick = 1) THEN 1 ELSE 0 END)",
    f"(CASE WHEN p.age >= ALL (SELECT age FROM {P}) THEN 1 ELSE 0 END)",
    f"(CASE WHEN p.age = ANY (SELECT age + 1 FROM {P}) THEN 1 ELSE 0 END)",
    f"(CASE WHEN EXISTS (SELECT 1 FROM {P} q WHERE q.age > p.age) THEN 1 ELSE 0 END)",
    f"len(ARRAY(SELECT 1 FROM {P} q WHERE q.sick = 1))",
    f"list_sum([1, (SELECT max(x) FROM {P})])",
    "avg(p.x) OVER ()",
    "row_number() OVER (ORDER BY p.x)",
    "lag(p.x, 1, 0) OVER (PARTITION BY p.city ORDER BY p.id)",
    "count(*) OVER (PARTITION BY p.city)",
    "ntile(4) OVER (ORDER BY p.age)",
    "p.file_row_number",
    "file_row_number",
    "unnest([1, 2, 3])",
    "unnest(range(5))",
    "generate_subscripts([1, 2], 1)",
    "random()",
    "nextval('s')",
    "epoch(now())",
    "epoch(current_timestamp)",
    "length(current_setting('threads'))",
    "txid_current()",
    "hash(uuid())",
    "getvariable('x')",
    "length(error('x'))",
    "stats(p.x)",
    "length((SELECT content FROM read_text('people.csv')))",
    "length(query('SELECT 1'))",
]
#: Places of allowed queries where one of those may stand.
PLACES = [
    "SELECT p.id, {0} AS x FROM 'people.parquet' p",
    "SELECT p.id, p.age FROM 'people.parquet' p WHERE {0} > 2",
    "SELECT p.id, CASE WHEN p.sick = 1 THEN {0} ELSE p.x END AS x FROM 'people.parquet' p",
    "SELECT p.id, COALESCE(NULL, {0}) AS x FROM 'people.parquet' p",
    "SELECT p.* REPLACE ({0} AS x) FROM 'people.parquet' p",
    "SELECT p.id, v.v FROM 'people.parquet' p JOIN (SELECT id, sum(v) AS v FROM 'visits.parquet' GROUP BY id) v ON v.id = p.id AND {0} > 2",
    "SELECT p.id, max({0}) AS x FROM 'people.parquet' p GROUP BY p.id",
    "SELECT p.id, sum(p.x) FILTER (WHERE {0} > 2) AS x FROM 'people.parquet' p GROUP BY p.id",
    "SELECT p.id, first(p.x ORDER BY {0}) AS x FROM 'people.parquet' p GROUP BY p.id",
    "SELECT p.id FROM 'people.parquet' p GROUP BY p.id, {0}",
    "SELECT p.id, sum(p.x) AS x FROM 'people.parquet' p GROUP BY p.id HAVING max(p.age) > {0}",
    "WITH w AS (SELECT p.id, {0} AS x FROM 'people.parquet' p) SELECT id, x FROM w",
    "SELECT id, x FROM (SELECT p.id, {0} AS x FROM 'people.parquet' p) AS w",
    "SELECT p.id, p.x FROM 'site_north.parquet' p UNION ALL SELECT p.id, {0} FROM 'site_south.parquet' p",
    "SELECT p.id, list_transform([1, 2], lambda k: k + {0})[1] AS x FROM 'people.parquet' p",
    "SELECT p.id, c.label FROM 'people.parquet' p JOIN 'codes.parquet' c ON c.code = p.city AND c.rank > {0}",
]
#: Whole queries.
WHOLE = {
    f"SELECT id, x FROM {P} WHERE city IN (SELECT city FROM {P} WHERE sick = 1)": "a subquery in a comparison",
    f"SELECT id, x FROM {P} WHERE city NOT IN (SELECT city FROM {P} WHERE sick = 1)": "a subquery in a comparison",
    f"SELECT id, x FROM {P} WHERE id IN (SELECT id FROM {V} WHERE v > 3)": "a subquery in a comparison",
    f"SELECT a.* FROM {P} a SEMI JOIN (SELECT * FROM {P} WHERE sick = 1) b USING (city)": "a semi join",
    f"SELECT a.* FROM {P} a ANTI JOIN (SELECT * FROM {P} WHERE sick = 1) b USING (city)": "an? anti join",
    f"SELECT a.id, a.x FROM {P} a SEMI JOIN (SELECT id FROM {V}) b USING (id)": "a semi join",
    f"SELECT a.id, b.age AS other FROM {P} a JOIN {P} b ON a.city = b.city": "something else than their id",
    f"SELECT a.id, b.x FROM {P} a JOIN {P} b ON a.age < b.age": "something else than their id",
    f"SELECT a.id, b.x FROM {P} a JOIN {P} b ON a.id = b.id OR a.city = b.city": "something else than their id",
    f"SELECT a.id, b.x FROM {P} a JOIN {P} b ON a.id <> b.id": "something else than their id",
    f"SELECT a.id, b.x FROM {P} a JOIN {P} b ON a.id = b.city": "something else than their id",
    f"SELECT a.id, b.x FROM {P} a JOIN {P} b ON lower(a.id) = b.id": "something else than their id",
    f"SELECT a.id, b.x FROM {P} a JOIN {P} b ON a.id IS NOT DISTINCT FROM b.id": "something else than their id",
    f"SELECT a.id, b.x FROM {P} a JOIN {P} b ON NOT a.id = b.id": "something else than their id",
    f"SELECT a.id, b.x FROM {P} a JOIN {P} b ON a.id = a.id": "something else than their id",
    f"SELECT a.id, b.x FROM {P} a JOIN {P} b ON b.id = 'p03'": "something else than their id",
    f"SELECT a.id, b.x FROM {P} a JOIN {P} b USING (city)": "something else than their id",
    f"SELECT a.id, b.x FROM {P} a JOIN {P} b ON true": "something else than their id",
    f"SELECT a.id, b.x FROM {P} a, {P} b WHERE a.city = b.city": "without a condition",
    f"SELECT a.id, b.x FROM {P} a CROSS JOIN {P} b": "without a condition",
    f"SELECT x.id, x.age FROM {P} x NATURAL JOIN {V}": "a NATURAL join",
    f"SELECT a.id, b.x FROM {P} a POSITIONAL JOIN {P} b": "a positional join",
    f"SELECT a.id, b.x FROM {P} a ASOF JOIN {P} b ON a.age >= b.age": "an ASOF join",
    f"SELECT p.id, t.m FROM {P} p, LATERAL (SELECT max(q.age) AS m FROM {P} q WHERE q.city = p.city GROUP BY q.id) t": "LATERAL|no column of the tables",
    f"SELECT p.id, t.m FROM {P} p JOIN (SELECT q.id, max(q.age) AS m FROM {P} q WHERE q.city = p.city GROUP BY q.id) t ON t.m > 3": "no column of the tables",
    f"SELECT id, city FROM {P} EXCEPT SELECT id, city FROM {P} WHERE sick = 1": "EXCEPT",
    f"SELECT city, age FROM {P} INTERSECT ALL SELECT city, age FROM {P} WHERE age > 30": "INTERSECT",
    f"SELECT id, x FROM {P} UNION SELECT id, x FROM {P}": "UNION",
    f"SELECT id, x FROM {P} UNION ALL BY NAME SELECT x, id FROM {P}": "UNION BY NAME",
    f"SELECT id, x FROM {P} UNION ALL SELECT id, x FROM {P}": "has several rows",
    f"SELECT id, city FROM {P} UNION ALL SELECT city, id FROM {P}": "no column 'id'",
    f"SELECT id, label FROM (SELECT id, icd AS label FROM {P} UNION ALL SELECT code, label FROM {C})": "UNION ALL of people and of a public table",
    f"SELECT DISTINCT id, x FROM {P}": "DISTINCT",
    f"SELECT DISTINCT ON (city) id, x FROM {P}": "DISTINCT",
    f"SELECT id, m FROM {P} JOIN (SELECT DISTINCT city AS m, id FROM {P}) USING (id)": "DISTINCT",
    f"SELECT id, x FROM {P} ORDER BY x LIMIT 5": "LIMIT",
    f"SELECT id, x FROM {P} ORDER BY id OFFSET 1": "LIMIT",
    f"SELECT id, x FROM {P} LIMIT 50%": "LIMIT",
    f"SELECT id, x FROM (SELECT id, x FROM {P} ORDER BY x LIMIT 9)": "LIMIT",
    f"SELECT id, x FROM (SELECT id, x FROM {P} ORDER BY x)": "ORDER BY inside",
    f"SELECT id, x FROM {P} USING SAMPLE 5": "a sample",
    f"SELECT id, x FROM {P} TABLESAMPLE 50%": "a sample",
    f"SELECT id, x FROM (SELECT * FROM {P}) TABLESAMPLE 5 ROWS": "a sample",
    f"SELECT id, x FROM {P} QUALIFY row_number() OVER (ORDER BY x) < 9": "window function",
    f"SELECT id, x, k FROM {P} CROSS JOIN range(50) AS r(k)": "without a condition",
    f"SELECT id, x FROM {P}, range(50)": "without a condition",
    f"SELECT id, x FROM {P} p JOIN range(50) AS r(k) ON r.k < p.age": "without an equality",
    f"SELECT id, x FROM {P} p JOIN range(50) AS r(k) ON r.k <> p.age": "without an equality",
    f"SELECT id, x FROM {P} p JOIN (VALUES (1), (1)) AS r(k) ON r.k = p.sick": "a key twice",
    f"SELECT id, label FROM {P} p JOIN (SELECT code, label FROM {C} UNION ALL SELECT code, label FROM {C}) c ON c.code = p.city": "a key twice",
    f"SELECT id, label FROM {P} p JOIN {C} c ON c.rank > p.age": "without an equality",
    f"SELECT id, label FROM {P} p JOIN {C} c ON true": "without an equality",
    f"SELECT id, label FROM {P} p RIGHT JOIN {C} c ON c.code = p.city": "keeps rows of a public table",
    f"SELECT id, label FROM {P} p FULL JOIN {C} c ON c.code = p.city": "keeps rows of a public table",
    f"SELECT p.id, label FROM {P} p SEMI JOIN {C} c ON c.code = p.city": "a semi join|not there",
    f"SELECT id, label FROM {P} p JOIN {C} c ON c.rank = p.city": "two types",
    f"SELECT code AS id, rank FROM {C}": "only public tables",
    f"SELECT city, avg(x) AS x FROM {P} GROUP BY city": "several people together",
    f"SELECT max(id) AS id, avg(x) AS x FROM {P} GROUP BY city": "several people together|not the id",
    f"SELECT id, avg(x) AS x FROM {P} GROUP BY ROLLUP (id)": "GROUPING SETS",
    f"SELECT id, avg(x) AS x FROM {P} GROUP BY CUBE (id, city)": "GROUPING SETS",
    f"SELECT id, avg(x) AS x FROM {P} GROUP BY GROUPING SETS ((id), ())": "GROUPING SETS",
    f"SELECT any_value(id ORDER BY id) AS id, avg(x) AS x FROM {P} GROUP BY 'a'": "several people together|not the id",
    f"SELECT city AS id, avg(x) AS x FROM {P} GROUP BY city": "not the id",
    f"SELECT city AS id, avg(x) AS x FROM {P} GROUP BY 1": "not the id",
    f"SELECT id || 'x' AS id, x FROM {P}": "not the id",
    f"SELECT id, x FROM (SELECT * REPLACE (city AS id) FROM {P})": "not the id",
    f"SELECT * RENAME (id AS who, city AS id) FROM {P}": "the option",
    f"SELECT id, x FROM {P} AS p(city, id, age, x, sick, born, icd)": "not the id",
    f"WITH w(x, id) AS (SELECT id, city FROM {P}) SELECT id, x FROM w": "not the id",
    f"SELECT id, m FROM {P} JOIN (SELECT city, avg(x) AS m FROM {P} GROUP BY city) USING (city)": "several people together",
    f"SELECT id, m FROM {P} JOIN (SELECT city AS id, avg(x) AS m FROM {P} GROUP BY city) q USING (id)": "not the id",
    f"WITH h AS (SELECT city FROM {P} WHERE sick = 1) SELECT p.id, p.x FROM {P} p JOIN h USING (city)": "something else than their id",
    f"WITH h AS (SELECT DISTINCT city FROM {P}) SELECT p.id, h.city AS hot FROM {P} p LEFT JOIN h USING (city)": "DISTINCT",
    "WITH r AS (SELECT city AS id, x FROM 'renamed.parquet'), q AS (SELECT patient AS id, age FROM 'renamed.parquet') SELECT id, x, age FROM r JOIN q USING (id)": "two ids of one table|another column",
    "SELECT q.id, r.x FROM (SELECT patient AS id, city FROM 'renamed.parquet') q JOIN 'renamed.parquet' r ON q.city = r.city": "something else than their id",
    f"SELECT city AS id, count(*) AS n FROM (SELECT city, x FROM {P}) GROUP BY city": "two ids of one table|another column",
    f"SELECT s.id AS id, 1 AS n FROM (SELECT {{'id': city}} AS s FROM {P}) GROUP BY 1": "two ids of one table|another column",
    f"WITH w AS (SELECT city, x FROM {P}) SELECT city AS id, max(x) AS x FROM w GROUP BY 1": "two ids of one table|another column",
    "SELECT b AS id, count(*) AS n FROM read_csv('people.csv', header = true, names = ['a', 'b', 'c', 'd', 'e', 'f', 'g']) GROUP BY b": "another column as 'id'",
    "WITH RECURSIVE r AS (SELECT id, x FROM 'people.parquet' UNION ALL SELECT id, x + 1 FROM r WHERE x < 3) SELECT id, x FROM r": "a recursive query|RECURSIVE",
    f"WITH a AS (SELECT id, x FROM {P}), b AS (WITH a AS (SELECT id, city AS x FROM {P}) SELECT * FROM a) SELECT a.id, b.x FROM a JOIN b USING (id)": "two tables 'a' in WITH",
    f"SELECT avg(x) AS x FROM {P}": "an aggregate over the whole table",
    f"SELECT min(id) AS id, max(x) AS x FROM {P}": "an aggregate over the whole table",
    f"SELECT 1 AS id FROM {P} HAVING max(x) > 3": "an aggregate over the whole table",
    f"SELECT id, x - m AS x FROM {P} JOIN (SELECT avg(x) AS m FROM {P}) ON true": "an aggregate over the whole table",
    f"SELECT id, x - m AS x FROM {P} JOIN (SELECT geomean(x) AS m FROM {P}) ON true": "the function 'geomean'",
    f"SELECT id, weighted_avg(v, v) AS x FROM {V} GROUP BY id": "the function 'weighted_avg'",
    f"SELECT id, first(v) AS v FROM {V} GROUP BY id": "without an order",
    f"SELECT id, list(v) AS v FROM {V} GROUP BY id": "without an order",
    f"SELECT id, any_value(v) AS v FROM {V} GROUP BY id": "without an order",
    f"SELECT id, arg_max(v, ward) AS v FROM {V} GROUP BY id": "ties that nothing breaks",
    f"SELECT id, reservoir_quantile(v, .5) AS v FROM {V} GROUP BY id": "the function 'reservoir_quantile'",
    f"SELECT id, approx_quantile(v, .5) AS v FROM {V} GROUP BY id": "the function 'approx_quantile'",
    f"SELECT id, max(max(v)) AS v FROM {V} GROUP BY id": "reads|aggregate|the query",
    f"PIVOT {P} ON city USING avg(x)": "one SELECT",
    f"SELECT * FROM (PIVOT {P} ON city USING avg(x))": "one SELECT",
    f"UNPIVOT (SELECT id, x, age FROM {P}) ON x, age INTO NAME n VALUE v": "PIVOT",
    f"SELECT * FROM (SUMMARIZE {P})": "SUMMARIZE",
    f"SELECT * FROM (DESCRIBE {P})": "SUMMARIZE",
    "SELECT * FROM query('SELECT * FROM ''people.parquet''')": "the table function 'query'",
    "SELECT * FROM parquet_metadata('people.parquet')": "the table function 'parquet_metadata'",
    "SELECT * FROM parquet_schema('people.parquet')": "the table function 'parquet_schema'",
    "SELECT * FROM read_text('people.csv')": "the table function 'read_text'",
    "SELECT * FROM read_blob('people.csv')": "the table function 'read_blob'",
    "SELECT * FROM sniff_csv('people.csv')": "the table function 'sniff_csv'",
    "SELECT * FROM glob('*.parquet')": "the table function 'glob'",
    "SELECT * FROM duckdb_settings()": "the table function 'duckdb_settings'",
    "SELECT * FROM duckdb_tables": "a table 'duckdb_tables' of the engine",
    "SELECT * FROM lab.sqlite_master": "of no attached database|not there",
    "SELECT * FROM lab.smoothed": "a view",
    "SELECT * FROM information_schema.tables": "of no attached database",
    "SELECT k FROM unnest([1, 2, 3]) AS t(k)": "the table function 'unnest'",
    "SELECT id, file_row_number FROM read_parquet('people.parquet', file_row_number = true)": "the option 'file_row_number of read_parquet'",
    "SELECT * FROM read_csv('people.csv', skip = 3)": "the option 'skip of read_csv'",
    "SELECT * FROM read_csv('people.csv', ignore_errors = true)": "the option 'ignore_errors of read_csv'",
    "SELECT * FROM read_csv('people.csv', store_rejects = true)": "the option 'store_rejects of read_csv'",
    "SELECT id, x FROM read_csv('people.csv', header = true, names = ['city', 'id', 'age', 'x', 'sick', 'born', 'icd'])": "another column as 'id'",
    "SELECT id, x FROM read_parquet(['people.parquet', 'people.parquet'])": "the same file twice",
    "SELECT id, x FROM read_parquet(['people.parquet', './people.parquet'])": "the same file twice",
    "SELECT id, x FROM read_parquet(['people.parquet', '*ople.parquet'])": "the same file twice",
    "SELECT * FROM read_parquet(['codes.parquet', 'people.parquet'], union_by_name = true)": "public files in one table",
    f"SELECT id, COLUMNS('x|age') FROM {P}": "a star inside an expression",
    f"SELECT id, max(COLUMNS(* EXCLUDE (id))) FROM {P} GROUP BY id": "a star inside an expression",
    f"SELECT id, list_value(*COLUMNS(*)) IS NULL AS k FROM {P}": "a star|not there",
    f"SELECT id, x COLLATE NOCASE AS x FROM (SELECT id, city AS x FROM {P})": "COLLATE",
    f"SELECT #1 AS id FROM {P}": "a column by its number",
    f"SELECT id, current_date AS d FROM {P}": "another value whenever the query runs",
    f"SELECT id, age(born::TIMESTAMP) AS a FROM {P}": "the function 'age'",
    f"SELECT id, grouping(id) AS g FROM {P} GROUP BY id": "GROUPING",
    f"SELECT p AS whole, p.id FROM {P} p": "no column of the tables",
    "SELECT rowid, * FROM lab.person": "no column of the tables",
    f"SELECT id, filename FROM {P}": "no column of the tables",
    f"SELECT id, x FROM {P} AT (VERSION => 1)": "not there",
}


def test_there_are_two_hundred_hostile_queries_of_different_kinds() -> None:
    assert len(WHOLE) + len(EXPRESSIONS) * len(PLACES) >= 200
    assert len(WHOLE) >= 100


@pytest.mark.parametrize("query", WHOLE)
def test_a_hostile_query_is_refused_by_name_and_with_a_remedy(worlds: Worlds, query: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in worlds.here.iterdir()}
    with pytest.raises(SourceError, match=WHOLE[query]) as error:
        asked(worlds, query, "id", publics(query))
    assert "source 'ward'" in str(error.value)
    assert {path: path.stat().st_mtime_ns for path in worlds.here.iterdir()} == before


@pytest.mark.long_for(
    "SELECT p.id, p.age FROM 'people.parquet' p WHERE {0} > 2",
    "SELECT p.id, COALESCE(NULL, {0}) AS x FROM 'people.parquet' p",
)
@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_a_hostile_expression_is_refused_at_every_place_of_an_allowed_query(worlds: Worlds, place: str) -> None:
    assert len(asked(worlds, place.format("abs(3)"), "id", publics(place))) >= 2, "the place itself is allowed"
    for hostile in EXPRESSIONS:
        query = place.format(hostile)
        with pytest.raises(SourceError):
            asked(worlds, query, "id", publics(query))


@pytest.mark.parametrize("query", [query for query in BY_ID if "GROUP BY" in query or "UNION" in query])
def test_nobody_is_joined_grouped_or_put_together_without_an_id(worlds: Worlds, query: str) -> None:
    with pytest.raises(SourceError, match=r"id= of a Source|the person's id"):
        asked(worlds, query, None, publics(query))


@pytest.mark.long
@pytest.mark.slow
def test_hostile_queries_move_other_people_where_nothing_refuses_them(worlds: Worlds) -> None:
    """The verdict has power: of hostile queries that the engine runs and that keep an id, data show that others' rows move."""
    queries = [place.format(hostile) for place in PLACES[:2] for hostile in EXPRESSIONS[:13]]
    queries += [query for query in WHOLE if query.startswith(("SELECT a.id", "SELECT id", "SELECT p.id"))]
    moved = [query for query in queries if worlds.strangers(query, "id")]
    assert len(moved) >= 40


def test_a_check_that_refuses_nothing_is_caught_by_the_data(worlds: Worlds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "must_be_rowwise", lambda *_: None)
    query = f"SELECT id, x - avg(x) OVER () AS x FROM {P}"
    assert len(asked(worlds, query, "id")) == len(IDS)
    assert "rows of" in worlds.strangers(query, "id")


# --- parties -----------------------------------------------------------------------------------------------------------------


def party(
    worlds: Worlds, folder: Path, query: str, ids: str | None, household: str | None = None, public: tuple[str, ...] = ()
) -> Path:
    data = unpooled.Source(query, folder=worlds.here, public=public, called=CALLED, name="ward")
    columns = (Column("x", -10.0, 10.0),)
    config, _ = create_party(
        folder, "ward", data, columns, Target(1.0, 1e-6), ids, household=household, household_rows=2, new_budget=True
    )
    return config


@pytest.mark.parametrize(
    "query",
    [
        "SELECT city AS id, avg(x) AS x FROM 'renamed.parquet' GROUP BY city",
        "WITH r AS (SELECT city AS id, x FROM 'renamed.parquet') SELECT id, max(x) AS x FROM r GROUP BY id",
        "SELECT upper(patient) AS id, x FROM 'renamed.parquet'",
        "SELECT p.id, r.x FROM 'people.parquet' p JOIN (SELECT city AS id, max(x) AS x FROM 'renamed.parquet' GROUP BY 1) r USING (id)",
    ],
)
def test_a_column_that_nobody_declared_takes_the_name_of_no_id(worlds: Worlds, query: str) -> None:
    """A city under the name of the id groups people together: one person who moves changes the rows of two cities."""
    with pytest.raises(SourceError, match=r"called = \["):
        asked(worlds, query, "id")
    assert worlds.strangers(query, "id") or "FROM r GROUP BY" not in query


def test_what_is_declared_as_an_id_is_one_expression(worlds: Worlds) -> None:
    with pytest.raises(SourceError, match="no expression 'a, b'"):
        unpooled.Source(
            "SELECT patient AS id, x FROM 'renamed.parquet'", folder=worlds.here, id="id", called=["a, b"]
        ).read()


def test_a_party_file_says_whose_rows_are_joined_and_which_tables_are_public(worlds: Worlds, tmp_path: Path) -> None:
    query = f"SELECT p.id, rank + v AS x FROM {P} p JOIN (SELECT id, avg(v) AS v FROM {V} GROUP BY id) v USING (id) JOIN {C} c ON c.code = p.city"
    config = party(worlds, tmp_path / "p", query, "id", public=("codes.parquet",))
    assert read_party(config).source.public == ("codes.parquet",)
    with open_party(config) as opened:
        assert opened.table.n_rows == len(IDS)
    config.write_text(config.read_text().replace('"codes.parquet"', '"doubles.parquet"'))
    with pytest.raises(SourceError, match="something else than their id"), open_party(config):
        pass


@pytest.mark.parametrize(
    ("query", "ids", "words"),
    [
        (f"SELECT city, avg(x) AS x FROM {P} GROUP BY city", "id", "Group by 'id'"),
        (f"SELECT max(x) AS x FROM {P} GROUP BY id", None, "which the party file has to name"),
        (f"SELECT id, v AS x FROM {V}", "id", "an id has several rows"),
        (f"SELECT CASE WHEN age > 30 THEN id END AS id, x FROM {P}", "id", "not the id of its table"),
        (f"SELECT p.id, v.v AS x FROM {P} p JOIN {V} v USING (id)", "id", "an id has several rows"),
        ("SELECT NULLIF(patient, 'p03') AS id, x FROM 'renamed.parquet'", "id", "a row has no id"),
        ("SELECT left(patient, 2) AS id, x FROM 'renamed.parquet'", "id", "an id has several rows"),
    ],
)
def test_a_party_of_a_hostile_query_is_not_made(
    worlds: Worlds, tmp_path: Path, query: str, ids: str | None, words: str
) -> None:
    with pytest.raises(SourceError, match=words):
        party(worlds, tmp_path / "p", query, ids)
    assert not (tmp_path / "p").exists(), "a refusal makes nothing"


@pytest.mark.guarantee
def test_rows_of_a_household_are_counted_against_its_declared_rows(worlds: Worlds, tmp_path: Path) -> None:
    config = party(worlds, tmp_path / "p", f"SELECT id, v AS x FROM {V}", None, household="id")
    with open_party(config) as opened:
        assert opened.table.household == (len(IDS), 2)
        assert len(opened.table["x"]) <= 2 * len(IDS)
    with pytest.raises(SourceError, match="Group by 'id'"):
        party(worlds, tmp_path / "q", f"SELECT ward, avg(v) AS x FROM {V} GROUP BY ward", None, household="id")


def test_an_id_that_comes_twice_later_is_refused_before_anything_is_debited(worlds: Worlds, tmp_path: Path) -> None:
    rows = pl.DataFrame({"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]})
    rows.write_parquet(tmp_path / "t.parquet")
    data = unpooled.Source("SELECT id, x FROM 't.parquet'", folder=tmp_path, name="ward")
    config, _ = create_party(tmp_path / "p", "ward", data, (Column("x", 0.0, 9.0),), Target(1.0, 1e-6), "id")
    pl.concat([rows, rows[:1]]).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(SourceError, match="an id has several rows"), open_party(config):
        pass
    with Ledger.open(tmp_path / "p/ward.ledger") as ledger:
        assert not ledger.entries()


@pytest.mark.guarantee
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_id_of_a_file_has_one_row_unless_it_is_a_household(tmp_path: Path, kind: str) -> None:
    frame = pl.DataFrame({"id": ["a", "b", " a", None, None], "x": [1.0, 2.0, 3.0, 4.0, 5.0]})
    path = tmp_path / f"t.{kind}"
    frame.write_csv(path) if kind == "csv" else frame.write_parquet(path)
    columns, total = (Column("x", 0.0, 9.0),), Target(1.0, 1e-6)
    with pytest.raises(DataError, match="an id has several rows"):
        create_party(tmp_path / "p", "ward", path, columns, total, "id")
    assert not (tmp_path / "p").exists()
    whole = frame.with_columns(id=pl.Series(["a", "b", "a", "c", "c"]))
    whole.write_csv(path) if kind == "csv" else whole.write_parquet(path)
    create_party(tmp_path / "q", "ward", path, columns, total, None, household="id", household_rows=2)
    one = frame.with_columns(id=pl.Series(["a", "b", "c", None, None]))  # blank ids are nobody's
    one.write_csv(path) if kind == "csv" else one.write_parquet(path)
    create_party(tmp_path / "r", "ward", path, columns, total, "id", new_budget=True)


def test_a_declaration_of_a_public_table_that_means_nothing_is_refused(worlds: Worlds) -> None:
    for name, words in (
        ("codes.parquet", "which `public` declares"),
        ("*.parquet", "not one file"),
        ("none.csv", "not one file"),
    ):
        with pytest.raises(SourceError, match=words):
            asked(worlds, f"SELECT id, x FROM {P}", "id", (name,))


def test_a_file_is_the_same_whatever_the_way_to_it(worlds: Worlds) -> None:
    """A link to the people's own table is no code list, and no second table of people."""
    link, hard = worlds.here / "link.parquet", worlds.here / "hard.parquet"
    link.symlink_to(worlds.here / "people.parquet")
    hard.hardlink_to(worlds.here / "people.parquet")
    try:
        for name in ("link.parquet", "hard.parquet"):
            with pytest.raises(SourceError, match="the same file twice"):
                asked(worlds, f"SELECT id, x FROM read_parquet(['people.parquet', '{name}'])", "id")
            with pytest.raises(SourceError, match="only public tables"):
                asked(worlds, f"SELECT a.id, b.x FROM {P} a JOIN '{name}' b ON a.city = b.city", "id", (name,))
    finally:
        link.unlink()
        hard.unlink()


# --- a random grammar --------------------------------------------------------------------------------------------------------


class Grammar:
    """Random queries, most of whose parts are harmless; some are not."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.hostile = self.rng.random() < 0.4
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"t{self.names}"

    def number(self, table: str, depth: int = 2) -> str:
        pick = self.rng.randrange(7) if depth else 0
        inner = [self.number(table, depth - 1) for _ in range(2)] if pick else []
        if self.hostile and self.rng.random() < 0.15:
            return self.rng.choice(EXPRESSIONS).replace("p.", f"{table}.")
        return [
            f"{table}.x",
            "({} + {})",
            "coalesce({}, {})",
            "(CASE WHEN {} > {} THEN 1 ELSE 0 END)",
            "greatest({}, {})",
            "abs({} * 2 - {})",
            "list_max([{}, {}])",
        ][pick].format(*inner)

    def table(self, depth: int) -> str:
        """Return a SELECT of the columns id and x."""
        pick = self.rng.randrange(6) if depth else 0
        one, two = self.name(), self.name()
        if pick == 0:
            file, value = self.rng.choice(
                [("people.parquet", "x"), ("visits.parquet", "v"), ("people.csv", "age"), ("site_*.parquet", "sick")]
            )
            where = self.rng.choice(["", f" WHERE {value} > 1", f" WHERE {value} IS NOT NULL"])
            return f"SELECT id, {value} AS x FROM '{file}'{where}"
        if pick == 1:
            key = self.rng.choice(["id", "id", "x"]) if self.hostile else "id"
            column = "id" if key == "id" else "min(id)"
            aggregate = self.rng.choice(["sum", "max", "count", "median", "avg"])
            return f"SELECT {column} AS id, {aggregate}({self.number(one, 1)}) AS x FROM ({self.table(depth - 1)}) AS {one} GROUP BY {key}"
        if pick == 2:
            how = self.rng.choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "SEMI JOIN" if self.hostile else "JOIN"])
            on = self.rng.choice(
                [f"{one}.id = {two}.id", f"{one}.id = {two}.id AND {one}.x > {two}.x"]
                + [f"{one}.x = {two}.x"] * self.hostile
            )
            side = two if how == "RIGHT JOIN" else one
            return f"SELECT {side}.id, {self.number(one, 1)} AS x FROM ({self.table(depth - 1)}) AS {one} {how} ({self.table(depth - 1)}) AS {two} ON {on}"
        if pick == 3:
            how = self.rng.choice(["UNION ALL", "UNION ALL", "UNION", "EXCEPT"]) if self.hostile else "UNION ALL"
            return f"{self.table(depth - 1)} {how} {self.table(depth - 1)}"
        if pick == 4:
            return f"SELECT {one}.id, {self.number(one)} AS x FROM ({self.table(depth - 1)}) AS {one} WHERE {self.number(one)} > 0"
        return f"SELECT {one}.id, {two}.rank + {one}.x AS x FROM ({self.table(depth - 1)}) AS {one} LEFT JOIN 'codes.parquet' AS {two} ON {two}.rank = {one}.x::BIGINT"

    def query(self) -> str:
        name = self.name()
        inner = self.table(self.rng.randint(0, 3))
        if self.hostile and self.rng.random() < 0.2:
            return f"SELECT id, x FROM ({inner}) ORDER BY x LIMIT 9"
        if self.rng.random() < 0.5:
            return f"SELECT {name}.id, sum({name}.x) AS x FROM ({inner}) AS {name} GROUP BY {name}.id"
        return f"WITH w AS ({inner}) SELECT w.id, {self.number('w')} AS x FROM w"


@pytest.mark.long
@pytest.mark.slow
def test_no_query_of_a_random_grammar_moves_another_person(worlds: Worlds) -> None:
    accepted = refused = 0
    for seed in range(sized(4000, 160)):
        query = Grammar(seed).query()
        try:
            asked(worlds, query, "id", publics(query))
        except SourceError:
            refused += 1
            continue
        accepted += 1
        assert worlds.strangers(query, "id") == "", query
    assert accepted > 0.25 * (accepted + refused)
    assert refused > 0.1 * (accepted + refused)
