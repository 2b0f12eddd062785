"""The fused sketch against the dense matrix, exactly for integers; one public seed, one sketch; nothing depends on blocking."""

from __future__ import annotations

import hashlib
import importlib.util
import math
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from unpooled.errors import UsageError
from unpooled.kernels import hadamard
from unpooled.kernels.hadamard import Srht, srht

# Where nothing is compiled yet, one worker compiles the kernels for all of these.
pytestmark = [pytest.mark.minutes, pytest.mark.xdist_group("hadamard")]

quick = settings(deadline=None, database=None, derandomize=True, max_examples=60)
SIZES = (1, 2, 3, 5, 31, 32, 33, 64, 100, 200, 256, 257, 1000, 2048, 2049, 2592)
BIG = (4097, 8200, 16384, 16385, 33000, 70000)  # 3 to 64 pieces: every combination of radix-8 and radix-2 passes
RNG = np.random.default_rng(20240229)


def padded(tau: int) -> int:
    return 1 << (tau - 1).bit_length()


def dims(tau: int) -> list[int]:
    return sorted({1, min(7, padded(tau)), max(1, padded(tau) // 3), padded(tau)})


def reference(transform: Srht) -> np.ndarray:
    """D H[:, columns] from scipy's Hadamard matrix, as integers."""
    tau = transform.signs.size
    return (
        transform.signs[:, None].astype(np.int64)
        * scipy.linalg.hadamard(padded(tau), dtype=np.int64)[:tau, transform.columns]
    )


def plain(X: np.ndarray, transform: Srht) -> np.ndarray:
    """The textbook transform, level by level, in exact Python-sized integers: for sizes whose matrix would not fit."""
    tau, size = transform.signs.size, padded(transform.signs.size)
    y = np.zeros((X.shape[0], size), dtype=X.dtype if X.dtype.kind == "f" else np.int64)
    y[:, :tau] = X * transform.signs
    step = 1
    while step < size:
        y = y.reshape(X.shape[0], -1, 2, step)
        y = np.stack((y[:, :, 0] + y[:, :, 1], y[:, :, 0] - y[:, :, 1]), axis=2)
        step *= 2
    return y.reshape(X.shape[0], size)[:, transform.columns]


# --- the numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.long_for("2049", "2592")
@pytest.mark.slow
@pytest.mark.parametrize("tau", SIZES)
def test_equals_the_dense_matrix(tau: int) -> None:
    for m in dims(tau):
        transform = Srht.draw(tau, m, tau)
        dense = reference(transform)
        assert np.array_equal(transform.matrix(), dense / math.sqrt(m))
        X = RNG.standard_normal((5, tau))
        for dtype, tolerance in ((np.float64, 1e-14), (np.float32, 1e-5)):
            found = transform.apply(X.astype(dtype))
            assert found.dtype == dtype
            np.testing.assert_allclose(
                found, X.astype(dtype) @ dense / math.sqrt(m), rtol=0, atol=tolerance * math.sqrt(tau) * tau**0.5
            )


@pytest.mark.slow
@pytest.mark.parametrize("tau", SIZES)
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integers_are_exact_up_to_the_bound(tau: int, dtype: type) -> None:
    limits = np.iinfo(dtype)
    for m in dims(tau):
        transform = Srht.draw(tau, m, tau + 1)
        dense = reference(transform)
        largest = min(-int(limits.min), ((1 << 63) - 1) // tau)
        X = RNG.choice(np.array([-largest, largest - 1], dtype=dtype), (4, tau))
        # The worst rows: all terms of one output have the same sign and the largest magnitude.
        X[0] = np.where(dense[:, 0] > 0, -largest, largest - 1)
        X[1] = np.where(dense[:, -1] > 0, largest - 1, -largest)
        found = transform.apply(X, bound=largest if dtype is np.int64 else None)
        exact = X.astype(object) @ dense.astype(object) if tau <= 257 else X.astype(np.int64) @ dense
        assert (found == exact).all()
        assert found.dtype == (np.int32 if dtype is not np.int64 and largest * tau < 1 << 31 else np.int64)


@pytest.mark.slow_for("1", "200")
@pytest.mark.parametrize("tau", [1, 31, 200, 2592, 16384])
def test_int32_sums_reach_the_last_value(tau: int) -> None:
    bound = ((1 << 31) - 1) // tau
    transform = Srht.draw(tau, min(9, padded(tau)), 4)
    first = int(transform.columns[0])
    column = transform.signs * np.array([(-1) ** (i & first).bit_count() for i in range(tau)])
    X = np.stack((column * bound, -column * bound)).astype(np.int32)
    found = transform.apply(X, bound=bound)
    assert found.dtype == np.int32
    assert found[:, 0].tolist() == [bound * tau, -bound * tau]
    assert transform.apply(X, bound=bound + 1).dtype == np.int64


@pytest.mark.slow_for("4097", "16384")
@pytest.mark.parametrize("tau", BIG)
def test_many_pieces(tau: int) -> None:
    X = RNG.integers(-1000, 1001, (2, tau))
    for m in (3, 600):
        transform = Srht.draw(tau, m, 3)
        exact = plain(X, transform)
        assert np.array_equal(transform.apply(X, bound=1000), exact)
        assert np.array_equal(transform.apply(X.astype(np.int32), bound=1000), exact)
        # Sums of integers below 2^53 are exact in float64: only the scale rounds.
        assert np.array_equal(transform.apply(X.astype(np.float64)), exact * (1 / math.sqrt(m)))


@pytest.mark.parametrize("tau", SIZES)
def test_complete_transform_is_orthogonal(tau: int) -> None:
    transform = Srht.draw(tau, padded(tau), 5)
    X = RNG.standard_normal((3, tau))
    Y = transform.apply(X)
    np.testing.assert_allclose(Y @ transform.matrix().T, X, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(Y, axis=1), np.linalg.norm(X, axis=1), rtol=1e-12)


@pytest.mark.slow_for("1", "3", "2049", "2592")
@pytest.mark.parametrize("tau", SIZES)
def test_every_row_of_pi_has_norm_one(tau: int) -> None:
    """Theorem P.1."""
    for m in dims(tau):
        transform = Srht.draw(tau, m, 6)
        # The unscaled entries are +-1, so m times the squared norm of each row is m, in integers.
        entries = transform.apply(np.eye(tau, dtype=np.int8))
        assert entries.dtype == np.int32
        assert (np.abs(entries) == 1).all()
        assert ((entries.astype(np.int64) ** 2).sum(axis=1) == m).all()
        np.testing.assert_allclose(np.linalg.norm(transform.matrix(), axis=1), 1, rtol=1e-12)


@quick
@given(tau=st.integers(1, 700), data=st.data())
def test_any_shape(tau: int, data: st.DataObject) -> None:
    m = data.draw(st.integers(1, padded(tau)))
    n = data.draw(st.integers(0, 5))
    seed = data.draw(st.integers(0, 2**70))
    X = np.random.default_rng(seed).integers(-(2**31), 2**31, (n, tau)).astype(np.int32)
    transform = Srht.draw(tau, m, seed)
    found = transform.apply(X)
    assert found.shape == (n, m)
    assert np.array_equal(found, X.astype(np.int64) @ reference(transform))


@pytest.mark.long
@pytest.mark.slow
def test_an_error_of_one_sign_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Controls: the module with one sign flipped, in each of its stages, must fail the comparison above."""
    source = Path(hadamard.__file__).read_text(encoding="utf-8")
    ours = "from unpooled.kernels.compiled import njit"
    assert ours in source
    source = source.replace(ours, "from numba import njit")  # nothing to keep on disk
    monkeypatch.setattr(numba.config, "OPT", type(numba.config.OPT)("0"))  # for two rows: compiling is what takes time
    X = RNG.integers(-9, 10, (2, 33000))
    for i, (right, wrong, tau) in enumerate(
        [
            ("T(a1 - a5)", "T(a1 + a5)", 33000),
            ("T(a - b)", "T(b - a)", 33000),
            ("total + T(v", "total - T(v", 3),
        ]
    ):
        assert source.count(right) == 1
        path = tmp_path / f"broken{i}.py"
        path.write_text(source.replace(right, wrong), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        try:
            spec.loader.exec_module(module)
            monkeypatch.setattr(hadamard, "transform_rows", module.transform_rows)
            transform = Srht.draw(tau, min(64, padded(tau)), 0)
            assert not np.array_equal(transform.apply(X[:, :tau], bound=9), plain(X[:, :tau], transform))
        finally:
            del sys.modules[path.stem]


# --- rows are independent ---------------------------------------------------------------------------------------------


@pytest.mark.slow_for("20-float32", "300-float32")
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize("tau", [20, 300, 2592, 9000])
def test_blocks_threads_and_layouts_give_the_same_bits(tau: int, dtype: type) -> None:
    X = (RNG.standard_normal((60, tau)) * 1000).astype(dtype)
    transform = Srht.draw(tau, min(40, padded(tau)), 1)
    bound = None if np.dtype(dtype).kind == "f" else 10_000
    expected = transform.apply(X, bound=bound, threads=1)

    def same(Y: np.ndarray, rows: slice = slice(None), threads: int | None = None) -> None:
        assert transform.apply(Y, bound=bound, threads=threads).tobytes() == expected[rows].tobytes()

    for threads in (2, 3, 100, None):
        same(X, threads=threads)
    for cut in (1, 7, 59):
        same(X[:cut], slice(None, cut))
        same(X[cut:], slice(cut, None))
    for row in range(3):
        same(X[row : row + 1], slice(row, row + 1))
    wide = np.zeros((60, 3 * tau + 1), dtype=dtype)
    wide[:, 1 : tau + 1] = X
    same(wide[:, 1 : tau + 1], threads=2)
    same(X[::3], slice(None, None, 3))
    same(X[::-1], slice(None, None, -1), threads=2)
    same(np.asfortranarray(X), threads=2)
    wide[:, 1::3] = X
    same(wide[:, 1::3])
    same(np.broadcast_to(X[5], (1, tau)), slice(5, 6))
    assert np.array_equal(transform.apply(np.broadcast_to(X[5], (4, tau)), bound=bound), np.repeat(expected[5:6], 4, axis=0))
    same(X.astype(X.dtype.newbyteorder("S")))
    raw = np.zeros(X.nbytes + 1, dtype=np.uint8)
    unaligned = raw[1:].view(dtype).reshape(X.shape)
    unaligned[:] = X
    assert not unaligned.flags.aligned
    same(unaligned)
    X.flags.writeable = False
    same(X, threads=2)


def test_small_row_blocks_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    X = RNG.standard_normal((50, 2592))
    transform = Srht.draw(2592, 64, 1)
    expected = transform.apply(X)
    for entries in (1, 2592, 20_000):
        monkeypatch.setattr(hadamard, "_ROW_BLOCK", entries)
        assert transform.apply(X).tobytes() == expected.tobytes()
        assert transform.apply(np.asfortranarray(X), threads=2).tobytes() == expected.tobytes()


def test_default_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    X = RNG.standard_normal((30, 2048))
    transform = Srht.draw(2048, 16, 1)
    expected = transform.apply(X, threads=1)
    monkeypatch.setattr(hadamard, "_SMALL", 0)
    assert np.array_equal(transform.apply(X), expected)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert np.array_equal(transform.apply(X), expected)


def test_a_row_that_is_not_finite_stays_alone() -> None:
    X = RNG.standard_normal((4, 2592))
    transform = Srht.draw(2592, 64, 1)
    expected = transform.apply(X)
    X[1, 7], X[2, 9] = np.nan, np.inf
    found = transform.apply(X)
    assert np.array_equal(found[[0, 3]], expected[[0, 3]])
    assert not np.isfinite(found[1:3]).any()


def test_writes_into_out() -> None:
    X = RNG.standard_normal((6, 100))
    transform = Srht.draw(100, 9, 1)
    whole = np.full((8, 9), 7.0)
    returned = transform.apply(X, out=whole[1:7])
    assert returned.base is whole
    assert np.array_equal(whole[1:7], transform.apply(X))
    assert (whole[[0, 7]] == 7).all()


def _child() -> None:
    assert srht(np.ones((40, 3000)), 5, threads=2).shape == (40, 5)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_threads_survive_a_fork() -> None:
    _child()
    process = multiprocessing.get_context("fork").Process(target=_child)
    process.start()
    process.join(60)
    assert process.exitcode == 0


# --- public randomness ------------------------------------------------------------------------------------------------


def test_the_public_randomness_is_pinned() -> None:
    """A study's seed must give the same sketch on every machine and with every version: these are literals on purpose."""
    transform = Srht.draw(8, 3, 0)
    assert transform.signs.tolist() == [-1, 1, 1, -1, 1, -1, 1, -1]
    assert transform.columns.tolist() == [2, 6, 7]
    transform = Srht.draw(1000, 5, 2026)
    assert transform.signs[:12].tolist() == [-1, -1, 1, 1, -1, 1, 1, 1, 1, -1, 1, -1]
    assert transform.columns.tolist() == [512, 569, 650, 862, 1022]
    assert srht(np.eye(3, dtype=np.int8), 4, 0).tolist() == [[-1, -1, -1, -1], [1, -1, 1, -1], [1, 1, -1, -1]]


@pytest.mark.slow
def test_the_same_seed_in_another_process() -> None:
    program = (
        "import hashlib, numpy as np; from unpooled.kernels.hadamard import Srht; t = Srht.draw(2592, 130, 99);"
        "X = np.sin(np.arange(5 * 2592.)).round(6).reshape(5, -1);"
        "print(hashlib.sha256(t.signs.tobytes() + t.columns.tobytes() + t.apply(X).tobytes()).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    t = Srht.draw(2592, 130, 99)
    X = np.sin(np.arange(5 * 2592.0)).round(6).reshape(5, -1)
    assert other == hashlib.sha256(t.signs.tobytes() + t.columns.tobytes() + t.apply(X).tobytes()).hexdigest()


def test_seeds() -> None:
    first = Srht.draw(100, 50, 7)
    for same in (np.int64(7), np.random.SeedSequence(7)):
        again = Srht.draw(100, 50, same)
        assert np.array_equal(first.signs, again.signs)
        assert np.array_equal(first.columns, again.columns)
    other = Srht.draw(100, 50, 8)
    assert not np.array_equal(first.signs, other.signs)
    assert not np.array_equal(first.columns, other.columns)
    assert np.isin(Srht.draw(100, 20, 7).columns, first.columns).all()


def test_columns_and_signs_are_uniform() -> None:
    tau, m, draws = 24, 8, 2000
    counts, ups = np.zeros(32), np.zeros(tau)
    for seed in range(draws):
        transform = Srht.draw(tau, m, seed)
        assert (np.diff(transform.columns) > 0).all()
        assert 0 <= transform.columns[0] <= transform.columns[-1] < 32
        counts[transform.columns] += 1
        ups += transform.signs > 0
    # Six standard deviations of a binomial count.
    assert np.abs(counts - draws / 4).max() < 6 * math.sqrt(draws * 3 / 16)
    assert np.abs(ups - draws / 2).max() < 6 * math.sqrt(draws / 4)


def test_squared_norms_are_unbiased() -> None:
    """E |x Pi|^2 = |x|^2 over seeds; without the scale sqrt(P/m) or with repeated columns it would not be."""
    x = RNG.standard_normal((1, 200)) * np.linspace(0, 3, 200)
    ratios = np.array([(srht(x, 32, seed) ** 2).sum() for seed in range(2000)]) / (x**2).sum()
    assert abs(ratios.mean() - 1) < 6 * ratios.std() / math.sqrt(2000)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_transform_is_immutable() -> None:
    signs, columns = np.array([1, -1, 1], dtype=np.int8), np.array([0, 3])
    transform = Srht(signs, columns)
    signs[0], columns[0] = -1, 1
    assert transform.signs.tolist() == [1, -1, 1]
    assert transform.columns.tolist() == [0, 3]
    assert transform.padded == 4
    with pytest.raises(ValueError, match="read-only"):
        transform.signs[0] = -1


@pytest.mark.parametrize("signs", [[], [1, 0], [[1, -1]], [2], [np.nan], [-128]])
def test_wrong_signs(signs: list[float]) -> None:
    with pytest.raises(UsageError, match="signs must"):
        Srht(np.array(signs), np.array([0]))


@pytest.mark.parametrize("columns", [[], [-1, 0], [0, 4], [1, 1], [2, 1], [0.0], [[0]]])
def test_wrong_columns(columns: list[float]) -> None:
    with pytest.raises(UsageError, match="columns must"):
        Srht(np.array([1, -1, 1], dtype=np.int8), np.array(columns))


def test_unsigned_columns_must_increase_too() -> None:
    assert Srht(np.array([1, -1]), np.array([0, 1], dtype=np.uint8)).columns.dtype == np.int64
    with pytest.raises(UsageError, match="columns must"):
        Srht(np.array([1, -1]), np.array([1, 0], dtype=np.uint8))


@pytest.mark.parametrize("wrong", [0, -1, 1.0, math.nan, "3", None, True])
def test_wrong_dimensions(wrong: object) -> None:
    with pytest.raises(ValueError, match="n_features must be an integer of at least 1"):
        Srht.draw(wrong, 1, 0)
    with pytest.raises(ValueError, match="sketch_dim must be an integer of at least 1"):
        Srht.draw(4, wrong, 0)
    if wrong is not None:
        with pytest.raises(UsageError, match="threads"):
            srht(np.ones((2, 4)), 2, threads=wrong)


@pytest.mark.parametrize("wrong", [-1, 1.0, math.nan, "3", None, True, [1]])
def test_wrong_seeds(wrong: object) -> None:
    with pytest.raises(UsageError, match="seed must be an integer of at least 0"):
        Srht.draw(4, 2, wrong)


def test_more_columns_than_the_padded_size() -> None:
    assert Srht.draw(5, 8, 0).columns.tolist() == list(range(8))
    with pytest.raises(ValueError, match="5 features are padded to 8 columns: choose at most 8"):
        Srht.draw(5, 9, 0)


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 5), (1, 2, 4), ()])
def test_wrong_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="shape"):
        Srht.draw(4, 2, 0).apply(np.ones(shape))


def test_one_call_wants_a_table() -> None:
    for shape in ((4,), (1, 2, 4)):
        with pytest.raises(UsageError, match="shape"):
            srht(np.ones(shape), 2)
    with pytest.raises(UsageError, match="n_features"):
        srht(np.ones((3, 0)), 1)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, bool, np.float16, np.longdouble, np.complex128, object, "U1"])
def test_wrong_types(dtype: object) -> None:
    with pytest.raises(UsageError, match="convert it"):
        Srht.draw(4, 2, 0).apply(np.ones((2, 4)).astype(dtype))


def test_sums_that_could_overflow_are_refused() -> None:
    X = np.zeros((2, 4), dtype=np.int64)
    transform = Srht.draw(4, 2, 0)
    with pytest.raises(UsageError, match=rf"state a bound of at most {2**61 - 1}"):
        transform.apply(X)
    with pytest.raises(UsageError, match="bound"):
        transform.apply(X, bound=1 << 61)
    assert transform.apply(X, bound=(1 << 61) - 1).dtype == np.int64
    assert transform.apply(X.astype(np.int32)).dtype == np.int64
    assert transform.apply(X.astype(np.int32), bound=(1 << 29) - 1).dtype == np.int32
    assert transform.apply(X.astype(np.int32), bound=1 << 29).dtype == np.int64
    with pytest.raises(UsageError):  # -2^63 has no opposite
        Srht.draw(1, 1, 0).apply(np.zeros((1, 1), dtype=np.int64))
    for wrong in (-1, 2.0, math.nan, True):
        with pytest.raises(UsageError, match="bound must be"):
            transform.apply(X, bound=wrong)
    with pytest.raises(UsageError, match="leave it out"):
        transform.apply(X.astype(float), bound=3)


def test_wrong_out() -> None:
    X = np.ones((3, 4))
    transform = Srht.draw(4, 4, 0)
    frozen = np.empty((3, 4))
    frozen.flags.writeable = False
    for wrong in (
        np.empty((3, 3)),
        np.empty((3, 4), np.float32),
        np.empty((3, 4), order="F"),
        frozen,
        np.empty((3, 4), ">f8"),
    ):
        with pytest.raises(UsageError, match="out must be"):
            transform.apply(X, out=wrong)
    with pytest.raises(UsageError, match="overlap"):
        transform.apply(X, out=X)
