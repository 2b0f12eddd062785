"""Workers of Dask in processes of their own, over TLS on loopback: the same bits with one to four of them, one of which is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from asked import bits
from clusters import COLUMNS, NAMES, agreed, party_of, rows_file, spent
from servers import PASSWORD, Postgres, postgres, why_not
from world import sized

from unpooled.errors import ClusterError
from unpooled.privacy.bounds import AsDeclared, Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.table import Table
from unpooled.protocol.messages import Nothing, encode
from unpooled.study.cluster.section import EngineSection
from unpooled.study.cluster.table import ClusterTable, DaskEngine
from unpooled.study.cluster.work import ROW_NUMBER, file_address
from unpooled.study.data import read_table
from unpooled.study.party import open_party
from unpooled.study.sources.table import BLOCK, Source, SourceTable
from unpooled.totals.threads import THREADS

pytestmark = [
    pytest.mark.minutes,
    pytest.mark.xdist_group("dask"),  # one cluster
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:distributed.*"),
]
ROWS = 3 * BLOCK + 17


class Cluster:
    """A cluster, how a party file names it, and a connection."""

    def __init__(self, folder: Path) -> None:
        import dask
        from distributed import LocalCluster
        from distributed.security import Security

        folder.chmod(0o700)
        own = Security.temporary()
        for name, text in (("ca.pem", own.tls_ca_file), ("own.pem", own.tls_client_cert), ("own.key", own.tls_client_key)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
        dask.config.set({"distributed.worker.memory.target": False, "distributed.worker.memory.spill": False})
        # Everything stays on this machine's loopback interface.
        self.cluster = LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            host="127.0.0.1",
            protocol="tls://",
            security=own,
            dashboard_address="127.0.0.1:0",
            local_directory=str(folder),
            memory_limit=0,
        )
        self.folder = folder
        self.said = EngineSection("dask", self.cluster.scheduler_address, "ca.pem", "own.pem", "own.key", patience=30.0)
        self.engine = DaskEngine(self.said, "one", folder)

    def scale(self, workers: int) -> None:
        self.cluster.scale(workers)
        self.engine._client.wait_for_workers(workers, timeout=60)

    def close(self) -> None:
        self.engine.close()
        self.cluster.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


def parts(path: Path, engine, rows: int = BLOCK) -> ClusterTable:
    return ClusterTable(
        file_address(path), tuple(c.name for c in EVERY), None, None, EVERY, engine, by=ROW_NUMBER, shard_rows=rows
    )


STUDIES = {
    "describe": {},
    "bayes": {"response": "y", "method": "moments"},
    "glm": {"response": "n", "family": "poisson"},
}
COUNT = Column("n", 0.0, 6.0)
EVERY = (*COLUMNS, COUNT)


def released(name: str, one: Table, two: Table) -> bytes:
    columns = (*COLUMNS[:2], COUNT) if name == "glm" else COLUMNS
    cards = tuple(Card(party, ROWS, columns) for party in ("one", "two"))
    study = Study(name, cards, 1.0, 1e-6, parameters=STUDIES[name], simulation_seed=3, derived=())
    return bits(study, {"one": one, "two": two})


class Killing:
    """An engine, one of whose workers is killed while it works."""

    def __init__(self, cluster: Cluster, passes: int) -> None:
        self.cluster, self.left, self.killed = cluster, passes, 0

    def run(self, tasks):
        self.left -= 1
        for k, found in enumerate(self.cluster.engine.run(tasks)):
            if k == 0 and self.left == 0:
                client = self.cluster.engine._client
                waiting = client.processing()
                assert len(tasks) > 30
                busy = max(waiting, key=lambda worker: len(waiting[worker]))
                (pid,) = client.run(os.getpid, workers=[busy]).values()
                os.kill(pid, signal.SIGKILL)
                self.killed = pid
            yield found


@pytest.mark.long
@pytest.mark.slow
def test_releases_are_the_same_bits_on_one_to_four_workers_one_of_which_is_killed(
    cluster: Cluster, tmp_path: Path, monkeypatch
) -> None:
    path = rows_file(tmp_path, ROWS)
    whole = SourceTable(Source(f"SELECT * FROM '{path}'"), (*NAMES, "n"), declared=EVERY)
    inside = Table({name: whole[name] for name in whole.names})
    shuffled = inside.take(np.random.default_rng(1).permutation(ROWS))
    found: dict[str, set[bytes]] = {name: {released(name, inside, shuffled)} for name in STUDIES}
    for threads in (1, 2):
        monkeypatch.setenv(THREADS, str(threads))
        found["bayes"].add(released("bayes", read_table(path, NAMES, declared=COLUMNS), whole))
    for workers, rows in ((1, BLOCK), (2, 10**6), (4, BLOCK)):
        cluster.scale(workers)
        one = parts(path, cluster.engine, rows)
        for name in ("describe", "bayes"):
            found[name].add(released(name, one, inside))
    killing = Killing(cluster, 3)
    names = tuple(c.name for c in EVERY)
    source = Source(f"SELECT * FROM '{path}'")
    one = ClusterTable(source, names, None, None, EVERY, killing, by="i", shard_rows=5000)
    found["bayes"].add(released("bayes", one, inside))
    assert killing.killed
    found["glm"].add(released("glm", parts(path, cluster.engine), inside))
    assert {name: len(different) for name, different in found.items()} == dict.fromkeys(STUDIES, 1)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "a server is there")
def test_ranges_of_a_database_are_the_same_bits(cluster: Cluster, tmp_path: Path) -> None:
    with postgres() as server:
        _ranges(cluster, server, tmp_path)


def _ranges(cluster: Cluster, server: Postgres, tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text(f'[clinic]\npassword = "{PASSWORD}"\n')
    (tmp_path / "secrets").chmod(0o600)
    server.run(
        "CREATE TABLE shards AS SELECT i, sin(i)::float AS a, CASE WHEN i % 9 > 0 THEN cos(i)::float END AS b, (i % 17 - 8)::float AS y, "
        '(chr(65 + 32 * (i % 2) + i % 26) || i::text) COLLATE "en-x-icu" AS word FROM generate_series(1, 3000) AS t(i); GRANT SELECT ON shards TO PUBLIC'
    )
    source = Source(
        "SELECT i, a, b, y, word FROM clinic.shards", attach={"clinic": server.address}, folder=tmp_path, secrets="secrets"
    )
    whole = SourceTable(source, NAMES, declared=COLUMNS)
    cards = (Card("one", 3000, COLUMNS),)
    study = Study("describe", cards, 1.0, 1e-6, simulation_seed=3, derived=())
    alone = bits(study, {"one": whole})
    for by in sized(("i", "word"), ("word",)):  # capitals and small letters, which a collation may order otherwise
        one = ClusterTable(source, NAMES, None, None, COLUMNS, cluster.engine, by=by, shard_rows=700)
        assert len(one._shards) == 5
        assert bits(study, {"one": one}) == alone


class Dies:
    """Work that takes its worker along."""

    joined = False

    def over(self, table):
        os._exit(1)


@pytest.mark.long
@pytest.mark.slow
def test_a_worker_that_dies_of_a_shard_is_told_with_the_shard(cluster: Cluster, tmp_path: Path, monkeypatch) -> None:
    one = parts(rows_file(tmp_path, 100), cluster.engine)
    monkeypatch.setattr(cluster.cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(ClusterError, match=r"shard 1 of 1: no worker could finish it \(KilledWorker\)"):
        one.passed(_by_value(Dies)())
    assert one.passed(AsDeclared(COLUMNS)).size == 0  # another worker goes on


def _by_value(kind: type) -> type:
    """A class that workers, who have no tests, are sent whole."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(__import__(kind.__module__))
    return kind


@pytest.mark.slow
@pytest.mark.long
def test_a_party_file_names_a_cluster_over_tls_and_answers(cluster: Cluster, tmp_path: Path) -> None:
    said = cluster.said.moved(cluster.folder, tmp_path / "home")
    told = {name: getattr(said, name) for name in ("scheduler", "ca", "certificate", "key")}
    with open_party(party_of(tmp_path, said=told)) as party:
        party.answer(encode(agreed(party), "sums", 0, Nothing()))
        assert spent(party) == 1
    with pytest.raises(ClusterError, match="its scheduler cannot be reached"):
        DaskEngine(EngineSection("dask", told["scheduler"].replace("tls", "tcp"), patience=1.0), "one", tmp_path)


@pytest.mark.slow
def test_results_stay_inside_the_party_s_folder(cluster: Cluster) -> None:
    places = cluster.engine._client.run(lambda dask_worker: (dask_worker.local_directory, type(dask_worker.data).__name__))
    for place, kept in places.values():
        assert Path(place).is_relative_to(cluster.folder)
        assert kept == "dict"


@pytest.mark.slow
@pytest.mark.long
def test_a_cluster_without_workers_is_refused_after_a_while(tmp_path: Path) -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as empty:
        engine = DaskEngine(EngineSection("dask", empty.scheduler_address, patience=1.0), "one", tmp_path)
        start = time.monotonic()
        with pytest.raises(ClusterError, match="the cluster has no worker, and none came within 1 seconds"):
            parts(rows_file(tmp_path, 100), engine)
        assert time.monotonic() - start >= 1.0
        engine.close()
