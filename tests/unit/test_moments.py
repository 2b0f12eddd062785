"""The second-moment statistic is exact in integers, whatever the order, the blocks and the threads; its files are exact too."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from threadpoolctl import threadpool_limits
from world import drawn

from unpooled.errors import DataError, UsageError
from unpooled.inference.saving import write_saved
from unpooled.kernels import moments as kernel
from unpooled.linear.fit import LinearFit
from unpooled.linear.layout import AUGMENTED_WEIGHTS, Geometry, MomentsLayout, blocks_of
from unpooled.linear.moments import Moments
from unpooled.privacy import table as table_module
from unpooled.privacy.accounting import budget_mu
from unpooled.privacy.bounds import Bounds, Coding, Column
from unpooled.privacy.mechanisms import GaussianRelease
from unpooled.privacy.noise import KeySource
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency, Unit
from unpooled.study.data import FileTable
from unpooled.totals.total import Total

RNG = np.random.default_rng(1)
COLUMNS = (
    Column("a", -1.0, 3.0, missing="absent"),
    Column("g", categories=("u", "v", "w"), missing="indicator"),
    Column("b", 0.0, 1e-3, missing="indicator"),
    Column("h", categories=("1", "2")),
    Column("c", -1e60, 1e60),
    Column("y", 10.0, 11.0),
)


def rows_of(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Values inside, at and beyond the declared ranges, denormal, huge and missing."""
    strange = np.array([0.0, -0.0, 5e-324, 1e60, -7e59, 1e308, -1.0, 3.0, 1.0, 10.5, math.pi])
    return {
        "a": np.where(rng.random(n) < 0.1, np.nan, rng.normal(1, 2, n)),
        "g": rng.choice(np.array(["u", "v", "w", None, "elsewhere"], dtype=object), n),
        "b": np.where(rng.random(n) < 0.1, np.nan, rng.uniform(-1e-4, 2e-3, n)),
        "h": rng.choice(np.array([1.0, 2.0]), n),
        "c": rng.choice(strange, n),
        "y": rng.choice(strange, n),
    }


def coded_by_hand(value: object, column: Column, grid: int) -> list[int]:
    """The code of one value in exact arithmetic, but for the one float quotient that the definition has."""
    if column.categories is not None:
        text = str(int(value)) if isinstance(value, float) else value
        one_hot = [grid if text == c else 0 for c in column.categories]
        return one_hot + ([0 if any(one_hot) else grid] if column.missing == "indicator" else [])
    if math.isnan(value):
        return [0] + ([grid] if column.missing == "indicator" else [])
    low, high = column.range
    quotient = (min(max(value, low), high) - column.centre) / column.half_width
    whole = int(Fraction(min(max(quotient, -1.0), 1.0)) * grid)  # int() of a fraction goes toward zero
    return [whole] + ([0] if column.missing == "indicator" else [])


def by_hand(design: MomentsLayout, raw: dict[str, np.ndarray]) -> list[int]:
    """The statistic in Python integers."""
    d = design.size
    gram = [[0] * (d + 1) for _ in range(d + 1)]
    for i in range(len(raw["y"])):
        z = [c for column in design.features for c in coded_by_hand(raw[column.name][i], column, design.grid)]
        z += [design.grid] * design.intercept + coded_by_hand(raw["y"][i], design.response, design.grid)
        for j in range(d + 1):
            for k in range(d + 1):
                gram[j][k] += z[j] * z[k]
    off = [gram[j][k] for j in range(d) for k in range(j + 1, d)]
    if design.geometry is Geometry.AUGMENTED:
        return [gram[j][j] for j in range(d + 1)] + [gram[j][k] for j in range(d + 1) for k in range(j + 1, d + 1)]
    return [gram[j][j] for j in range(d)] + off + [gram[j][d] for j in range(d)]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("geometry", list(Geometry))
def test_the_statistic_is_that_of_python_integers(geometry: Geometry, intercept: bool) -> None:
    raw = rows_of(120, RNG)
    design = MomentsLayout.of(COLUMNS, "y", 120, geometry=geometry, intercept=intercept)
    statistic = design.statistic(Table(raw))
    assert statistic.dtype == np.int64
    assert statistic.tolist() == by_hand(design, raw)
    vector = design.vector("moments", Adjacency.REPLACE)
    assert sum(block.size for block in vector.blocks) == statistic.size
    assert np.abs(statistic).max() <= 120 * vector.per_row == 120 * design.grid**2
    assert vector.reach[Unit.RECORD] == vector.reach[Unit.ATTRIBUTE]


def test_without_an_intercept_ranges_are_symmetric_about_zero() -> None:
    design = MomentsLayout.of(COLUMNS, "y", 10, intercept=False)
    assert [c.range for c in (*design.features, design.response) if c.categories is None] == [
        (-3.0, 3.0),
        (-1e-3, 1e-3),
        (-1e60, 1e60),
        (-11.0, 11.0),
    ]
    assert not design.centres.any()
    assert design.size == MomentsLayout.of(COLUMNS, "y", 10).size - 1


def big(n: int = 30_000) -> tuple[MomentsLayout, dict[str, np.ndarray]]:
    raw = {f"x{j}": RNG.normal(0, 1, n) for j in range(12)} | {"y": RNG.normal(0, 1, n)}
    columns = tuple(Column(name, -3.0, 2.5) for name in raw)
    return MomentsLayout.of(columns, "y", n), raw


def test_moments_are_bit_identical_under_order_blocks_threads_and_files(monkeypatch, tmp_path: Path) -> None:
    design, raw = big()
    wanted = design.statistic(Table(raw))
    order = RNG.permutation(30_000)
    assert np.array_equal(design.statistic(Table({k: v[order] for k, v in raw.items()})), wanted)
    for threads in (1, 2):
        with threadpool_limits(threads):
            assert np.array_equal(design.statistic(Table(raw)), wanted)
    original = Table.blocks
    for rows in (97, 4096, 12_345, 1 << 20):
        monkeypatch.setattr(Table, "blocks", lambda self, names, _=0, rows=rows: original(self, names, rows))
        assert np.array_equal(design.statistic(Table(raw)), wanted)
    monkeypatch.undo()
    pl.DataFrame(raw).write_parquet(tmp_path / "t.parquet", row_group_size=1000)
    pl.DataFrame(raw).write_csv(tmp_path / "t.csv")
    for name in ("t.parquet", "t.csv"):
        assert np.array_equal(design.statistic(FileTable(tmp_path / name, tuple(raw))), wanted)
    assert table_module.BLOCK_ROWS > 4096


def test_a_float_sum_of_the_same_moments_does_depend_on_the_order() -> None:
    """The control: what the integers are for."""
    design, raw = big()
    x = design.coding.real([raw[c.name] for c in design.features])
    order = RNG.permutation(x.shape[0])
    assert not np.array_equal(x.T @ x, x[order].T @ x[order])


def test_moments_of_the_largest_values_are_exact() -> None:
    """Every product is grid^2 = 2^40 and blocks of 4096 rows reach 2^52: one bit more would be rounded."""
    n = 10_000
    raw = {"x": np.where(np.arange(n) % 3, 9.0, -9.0), "z": np.full(n, 9.0), "y": np.full(n, -9.0)}
    design = MomentsLayout.of(tuple(Column(name, -1.0, 1.0) for name in raw), "y", n, intercept=False)
    assert design.grid == 1 << 20
    plus = int((np.arange(n) % 3 != 0).sum())
    unit, x = design.grid**2, 2 * plus - n
    assert design.statistic(Table(raw)).tolist() == [n * unit, n * unit, x * unit, -x * unit, -n * unit]
    odd = np.full((5000, 1), float((1 << 20) - 1))
    total = np.zeros((1, 1), dtype=np.int64)
    kernel.add_gram(odd, 1 << 20, total)
    assert int(total[0, 0]) == 5000 * ((1 << 20) - 1) ** 2


@pytest.mark.slow_for(*(f"{n}-{width}" for n in (1024, 1048576, 4194304) for width in (127, 128, 129)))
@pytest.mark.parametrize("width", [1, 3, 4, 5, 6, 7, 8, 13, 39, 40, 41, 127, 128, 129])
@pytest.mark.parametrize("largest", [1 << 10, 1 << 20, 1 << 22])
def test_products_by_squares_are_those_of_integers(width: int, largest: int) -> None:
    """Few columns do not go through BLAS: rows from the middle of a buffer, widths that are no multiple of a square's, short blocks."""
    held = np.asfortranarray(RNG.integers(-largest, largest + 1, (9100, width)).astype(float))
    for block in (held[37 : 37 + 9001], held[5000:], held[:10], np.ascontiguousarray(held), held[::2], held[:, ::-1]):
        total = RNG.integers(-5, 6, (width, width))
        integers = block.astype(np.int64)
        expected = total + integers.T @ integers
        kernel.add_gram(block, largest, total)
        assert np.array_equal(total, expected)


@pytest.mark.parametrize(("largest", "rows"), [(1, 4096), (1 << 20, 4096), (1 << 21, 2048), (1 << 26, 2), (1 << 27, 1)])
def test_blocks_are_as_long_as_float64_is_exact(largest: int, rows: int) -> None:
    assert kernel.exact_rows(largest) == rows
    assert rows == 1 or rows * largest**2 <= 1 << 53


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_quantise_is_the_plain_formula_bit_for_bit(dtype: type) -> None:
    edges = np.array([-0.0, 0.0, 5e-324, -5e-324, 1e308, -1e308, np.inf, -np.inf, np.nan, 1.0, -1.0, 3.0, 2.999999999])
    raw = np.concatenate([edges, RNG.normal(0, 3, 20_000), RNG.integers(-50, 50, 5000) / 7])
    for low, high in ((-1.0, 3.0), (-1e-300, 1e-300), (-1e308, 1e308), (0.1, 0.30000000000000004), (-7.0, -2.0)):
        column = Column("x", low, high)
        for grid in (1, 3, 1 << 20, 1 << 30):
            out = np.empty(raw.size, dtype=dtype)
            missing = kernel.quantise(raw, low, high, column.centre, column.half_width, float(grid), out)
            with np.errstate(over="ignore", invalid="ignore"):
                plain = np.trunc(np.clip((np.clip(raw, low, high) - column.centre) / column.half_width, -1, 1) * grid)
            assert missing == 1
            assert np.array_equal(out, np.where(np.isnan(raw), 0, plain).astype(dtype))
            assert np.abs(out).max() <= grid


@pytest.mark.parametrize("norm", [None, 2.0])
@pytest.mark.parametrize("order", ["C", "F"])
def test_coding_into_floats_is_coding_into_integers(norm: float | None, order: str) -> None:
    columns = tuple(c for c in COLUMNS if norm is None or c.categories is None)
    raw = rows_of(500, RNG)
    coding = Coding(columns, 1 << 20, norm)
    block = [raw[c.name] for c in columns]
    integers, present = coding.code(block)
    floats = np.empty(integers.shape, order=order)
    assert np.array_equal(coding.code_into(block, floats), present)
    assert np.array_equal(floats, integers)
    assert integers.dtype == np.int64


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (COLUMNS[:-1], "must be one declared column"),
        (COLUMNS[-1:], "beside at least one feature"),
        ((COLUMNS[0], Column("y", categories=("0", "1"))), "must be a number"),
        ((COLUMNS[0], Column("y", 0.0, 1.0, missing="absent")), "never missing"),
    ],
)
def test_a_response_that_is_no_number_is_refused(columns: tuple[Column, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        MomentsLayout.of(columns, "y", 10)


def test_a_design_names_its_coefficients_and_units() -> None:
    design = MomentsLayout.of(COLUMNS, "y", 10)
    assert design.names == ("a", "g = u", "g = v", "g = w", "g missing", "b", "b missing", "h = 1", "h = 2", "c")
    assert design.half_widths.tolist() == [2.0, 1.0, 1.0, 1.0, 1.0, 5e-4, 1.0, 1.0, 1.0, 1e60, 1.0]
    assert design.centres.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 5e-4, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert design.radius == math.sqrt(6)
    normed = MomentsLayout.of((Column("a", -9.0, 9.0), COLUMNS[-1]), "y", 10, norm=4.0)
    assert normed.half_widths.tolist() == [4.0, 1.0]
    assert normed.radius == math.sqrt(2)


@pytest.mark.parametrize("geometry", list(Geometry))
def test_no_coded_row_is_longer_than_the_radius(geometry: Geometry) -> None:
    raw = rows_of(300, RNG)
    design = MomentsLayout.of(COLUMNS, "y", 300, geometry=geometry, intercept=False)
    coded = design.coding.code([raw[c.name] for c in design.features])[0] / design.grid
    assert np.linalg.norm(coded, axis=1).max() <= design.radius * (1 + 1e-12)


# --- from the total -------------------------------------------------------------------------------------------------------


def moments(geometry: Geometry = Geometry.BALL, *, intercept: bool = True, n: int = 200, deviation: float = 0.0) -> Moments:
    raw = {"a": RNG.uniform(-1, 3, n), "b": RNG.uniform(0, 9, n), "y": RNG.normal(2, 1, n)}
    columns = (Column("a", -1.0, 3.0), Column("b", 0.0, 10.0), Column("y", -3.0, 8.0))
    design = MomentsLayout.of(columns, "y", n, geometry=geometry, intercept=intercept)
    statistic = design.statistic(Table(raw))
    deviations = np.full(statistic.size, deviation * design.grid**2)
    return Moments.decode(design, Total(statistic.astype(float), deviations, ("all",)), n, "p" * 64, "said")


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("geometry", list(Geometry))
def test_decoded_moments_are_symmetric_and_know_what_was_not_released(geometry: Geometry, intercept: bool) -> None:
    m = moments(geometry, intercept=intercept, deviation=2.0)
    d = m.layout.size
    unknown = np.isnan(m.gram)
    assert np.array_equal(unknown, np.isnan(m.variance))
    assert unknown.sum() == (0 if geometry is Geometry.AUGMENTED else 1)
    assert unknown[d, d] == (geometry is not Geometry.AUGMENTED)
    assert np.array_equal(m.gram, m.gram.T, equal_nan=True)
    if intercept:
        assert (m.gram[d - 1, d - 1], m.variance[d - 1, d - 1]) == (200.0, 0.0)
        m.variance[d - 1, d - 1] = 4.0
    assert set(m.variance[~unknown].tolist()) == {4.0}
    assert (m.xx[0].shape, m.xy[0].shape) == ((d, d), (d,))


def test_the_augmented_weights_are_those_of_the_theory() -> None:
    assert AUGMENTED_WEIGHTS == (0.5, 0.4, 0.1)
    assert math.fsum(AUGMENTED_WEIGHTS) == 1.0


def test_moments_are_saved_and_read_exactly(tmp_path: Path) -> None:
    for geometry in Geometry:
        m = moments(geometry, deviation=1 / 3)
        m.save(tmp_path / "m")
        back = Moments.load(tmp_path / "m")
        assert back == m
        assert back.gram.tobytes() == m.gram.tobytes()
        assert back.variance.tobytes() == m.variance.tobytes()
        assert (back.rows, back.plan, back.statement, back.layout) == (m.rows, m.plan, m.statement, m.layout)
        assert back.posterior().coef_.tobytes() == m.posterior().coef_.tobytes()
    counted = dataclasses.replace(m, rows_declared=250)  # of a study that counts its rows
    counted.save(tmp_path / "m")
    assert Moments.load(tmp_path / "m").rows_declared == 250
    assert m != moments(geometry, deviation=1 / 3, n=201)
    assert m != "moments"
    with pytest.raises(TypeError, match="unhashable"):
        hash(m)


def refused(path: Path, content: bytes) -> str:
    write_saved(path, "Moments", content)
    with pytest.raises(DataError) as caught:
        Moments.load(path)
    assert str(caught.value).startswith("m: ")
    return str(caught.value)


def test_damaged_files_of_moments_are_refused(tmp_path: Path) -> None:
    path, m = tmp_path / "m", moments()
    with pytest.raises(DataError, match="No such file"):
        Moments.load(path)
    m.save(path)
    sealed = path.read_bytes()
    for content in (b"", sealed[:-1], sealed[:200] + bytes([sealed[200] ^ 1]) + sealed[201:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"^m: .* damaged"):
            Moments.load(path)
    write_saved(path, "PrivateLasso", b"")
    with pytest.raises(DataError, match="not a file of moments"):
        Moments.load(path)
    whole = msgspec.msgpack.encode(m.stored())
    plain = msgspec.msgpack.decode(whole)
    for content in (b"", b"\x80\x04", whole[:-1], whole + b"\0", msgspec.msgpack.encode({**plain, "extra": 1})):
        assert "not a file of moments" in refused(path, content)
    short = {**plain["gram"], "shape": [3, 3], "data": plain["gram"]["data"][:72]}
    single = {**plain["gram"], "dtype": "<f4", "data": plain["gram"]["data"][:64]}
    lying = {**plain["gram"], "shape": [5, 5]}
    for changes, words in (
        ({"format": "unpooled moments 2"}, "another format"),
        ({"geometry": "sphere"}, "another format"),
        ({"gram": short}, "do not fit"),
        ({"variance": single}, "do not fit"),
        ({"gram": lying}, "not a file"),
        ({"rows": "200"}, "not a file"),
        ({"rows": None}, "not a file"),
        ({"intercept": False}, "do not fit"),
        ({"features": []}, "do not fit"),
        ({"response": {"name": "y", "low": 3.0, "high": 1.0}}, "not a file"),
    ):
        assert words in refused(path, msgspec.msgpack.encode({**plain, **changes}))


def test_intervals_and_precisions_are_checked() -> None:
    fit = moments().posterior()
    assert isinstance(fit, LinearFit)
    low, high = fit.interval(0.9).T
    assert (low < fit.coef_).all()
    assert (fit.coef_ < high).all()
    assert high - low == pytest.approx(2 * 1.6448536 * np.sqrt(np.diag(fit.covariance_)))
    assert fit.joint_covariance_.shape == (3, 3)
    for level in (0.0, 1.0, math.nan, 2.0):
        with pytest.raises(UsageError, match="confidence"):
            fit.interval(level)
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(UsageError, match="precision"):
            moments().posterior(wrong)
        with pytest.raises(UsageError, match="precision"):
            moments().posterior(1.0, wrong)
        with pytest.raises(UsageError, match="precision"):
            moments().ols(wrong)
    for alpha in (-1.0, math.inf, math.nan):
        with pytest.raises(UsageError, match="alpha"):
            moments().ridge(alpha)


def test_bounds_of_a_norm_give_a_design_of_that_norm() -> None:
    columns = (*Bounds(norm=2.0).columns(["a", "b"]), Column("y", -1.0, 1.0))
    design = MomentsLayout.of(columns, "y", 50, norm=2.0, intercept=False)
    statistic = design.statistic(Table({"a": np.full(50, 30.0), "b": np.full(50, 40.0), "y": np.ones(50)}))
    x = np.array([0.6, 0.8])  # shortened, not turned
    wanted = 50 * np.array([x[0] ** 2, x[1] ** 2, x[0] * x[1], x[0], x[1]])
    assert statistic / design.grid**2 == pytest.approx(wanted, abs=50 * 3 / design.grid)


@pytest.mark.slow
@pytest.mark.parametrize("wide", [1.0, 8.0, 15.0])
def test_what_a_release_cannot_tell_is_called_not_identified(wide: float) -> None:
    """G16: ranges 8 to 15 times wider than the data leave eigenvalues that are noise; intervals in their directions cover too little."""
    d, n = 5, 5000
    columns = (*(Column(f"x{j}", -wide, wide) for j in range(d)), Column("y", -8 * wide, 8 * wide))
    design = MomentsLayout.of(columns, "y", n)
    vector = design.vector("moments", Adjacency.REPLACE)
    release = GaussianRelease.calibrated(vector.blocks, vector.reach, Unit.RECORD, budget_mu(1.0, 1e-5))
    rng, covered, told = np.random.default_rng(1), [], []
    for k in range(40):
        x, beta = rng.uniform(-1, 1, (n, d)), rng.normal(size=d)
        table = Table({**{f"x{j}": x[:, j] for j in range(d)}, "y": x @ beta + rng.normal(size=n)})
        values = release.decode(drawn(release, design.statistic(table), KeySource.simulation(k).stream("wide")))
        found = Moments.decode(design, Total(values, release.deviations, ()), n)
        for fit in (found.posterior(), found.ols(), found.ridge(1.0)):
            low, high = fit.interval().T
            assert fit.identified.shape == (d,)
            assert (np.isnan(high - low) == ~fit.identified).all()
            told += fit.identified.tolist()
            covered += ((low <= beta) & (beta <= high))[fit.identified].tolist()
    if wide == 1.0:
        assert all(told)
        assert np.mean(covered) > 0.92
    else:
        assert not any(told)


def test_exact_moments_identify_everything() -> None:
    exact = moments()
    fit = dataclasses.replace(exact, variance=0 * exact.variance).ols()
    assert fit.identified.all()
    assert np.isfinite(fit.interval()).all()


def test_equal_widths_beside_one_another_are_one_block() -> None:
    for widths in ([1.0], [2.0, 2.0], [1.0, 1.0, 2.0, 2.0, 2.0, 1.0], [3.0, 1.0, 1.0]):
        blocks = blocks_of(np.array(widths))
        assert np.concatenate([np.full(b.size, b.width) for b in blocks]).tolist() == widths
        assert all(one.width != other.width for one, other in itertools.pairwise(blocks))


@pytest.mark.parametrize("wrong", [Column("y", categories=("a", "b")), Column("y", 0.0, 1.0, missing="absent")])
def test_a_response_is_a_number_that_is_never_missing(wrong: Column) -> None:
    with pytest.raises(UsageError, match="never missing"):
        MomentsLayout.of((Column("x", 0.0, 1.0), wrong), "y", 10)
