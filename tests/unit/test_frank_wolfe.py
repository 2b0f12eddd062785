"""Block-coordinate Frank-Wolfe against scikit-learn, explicit gradients and its own theory."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.sparse import csc_array, csc_matrix, random_array
from scipy.stats import chisquare
from sklearn.linear_model import Lasso
from world import sized

from unpooled.kernels.columns import Columns, scores
from unpooled.papers.frank_wolfe import Sampling, bound, expected_curvature, frank_wolfe, full, interactions
from unpooled.papers.frank_wolfe.blocks import logistic_search
from unpooled.papers.frank_wolfe.noisy import noisy_vertices
from unpooled.papers.frank_wolfe.problem import Problem

# Where nothing is compiled yet, one worker compiles the kernels for all of these.
pytestmark = pytest.mark.xdist_group("frank-wolfe")

RADIUS, GROUPS = 2.0, 4


def problem(n=120, d=40, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    A = np.clip(0.5 * rng.standard_normal((n, d)), -1, 1)
    x = np.zeros(d)
    x[rng.choice(d, 6, replace=False)] = RADIUS / 6 * rng.choice([-1, 1], 6)
    return A, A @ x + noise * rng.standard_normal(n)


def sparse_problem(n=150, d=900, seed=0, density=0.03):
    rng = np.random.default_rng(seed)
    A = random_array((n, d), density=density, format="csc", rng=rng, data_sampler=rng.standard_normal)
    return A, A @ np.where(np.arange(d) % 90 == 0, 1.0, 0.0) + 0.1 * rng.standard_normal(n)


def value(A, y, x, loss="squared"):
    u = A @ x
    return (np.logaddexp(0, -y * u) if loss == "logistic" else (u - y) ** 2 / 2).mean()


def explicit_gap(A, y, x, radii, blocks, loss="squared"):
    u = A @ x
    g = A.T @ (-y / (1 + np.exp(y * u)) if loss == "logistic" else u - y) / y.size
    return x @ g + sum(r * np.abs(g[blocks == k]).max() for k, r in enumerate(radii))


LABELS = np.arange(40) % GROUPS
BALL = np.zeros(40, dtype=int)


def laws(blocks):
    """Every sampling on 40 columns, with the number of blocks that step at most."""
    d, count = 40, blocks.max() + 1
    weights = np.linspace(0.2, 0.8, d)
    found = {
        "all": (Sampling.every(d), count),
        "uniform": (Sampling.uniform(d), 1),
        "nice": (Sampling.nice(d, 8), count),
        "distributed": (Sampling.distributed(LABELS, 3), count),
        "own": (Sampling.of(lambda rng, t: np.flatnonzero(rng.random(d) < weights), weights), count),
    }
    if count > 1:
        found["serial blocks"] = (Sampling.uniform(count).of_blocks(blocks), 1)
        found["nice blocks"] = (Sampling.nice(count, 2).of_blocks(blocks), 2)
        found["all blocks"] = (Sampling.every(count).of_blocks(blocks), count)
    return found


CASES = [
    (shape, name, rule)
    for shape, blocks in (("ball", BALL), ("blocks", LABELS))
    for name in laws(blocks)
    for rule in ("standard", "line-search")
]


# --- the optimum --------------------------------------------------------------------------------------------------------


@pytest.mark.long_for("0.2-False", "0.2-True")
@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_line_search_reaches_the_lasso(sparse, share):
    """The constrained problem at the norm of scikit-learn's solution has the same solution; alpha is its multiplier."""
    A, y = problem(200, 60)
    A = csc_array(np.where(np.abs(A) > 0.6, A, 0.0)) if sparse else A
    alpha = share * np.abs(A.T @ y).max() / y.size
    lasso = Lasso(alpha=alpha, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(A, y)
    best, start = value(A, y, lasso.coef_), value(A, y, np.zeros(60))
    radius = np.abs(lasso.coef_).sum()
    fit = frank_wolfe(A, y, radius, step_rule="line-search", steps=100_000, tolerance=1e-4)
    assert fit.converged
    assert fit.iterations < 100_000
    assert 0 <= fit.certificate <= 1e-4 * start
    assert frank_wolfe(A, y, radius, steps=0).objective == pytest.approx(start)
    assert -1e-9 <= fit.objective - best <= fit.certificate
    assert fit.objective == pytest.approx(value(A, y, fit.coefficients), rel=1e-10)
    assert (lasso.coef_ != 0).sum() > 3
    assert np.abs(A.T @ (A @ fit.coefficients - y)).max() / y.size == pytest.approx(alpha, rel=0.01)
    np.testing.assert_allclose(fit.coefficients, lasso.coef_, atol=1e-3)


@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize(("shape", "name", "rule"), CASES)
def test_every_iterate_is_feasible_and_gaps_are_right(shape, name, rule, loss):
    blocks = BALL if shape == "ball" else LABELS
    A, y = problem()
    y = np.where(y > 0, 1.0, -1.0) if loss == "logistic" else y
    radii = np.array([RADIUS]) if shape == "ball" else np.array([0.8, 0.6, 0.4, 0.2])
    sampling, _ = laws(blocks)[name]
    fit = frank_wolfe(
        A, y, radii, blocks=blocks, sampling=sampling, step_rule=rule, loss=loss, steps=120, record=range(121), seed=3
    )
    assert len(fit.path) == 121 or fit.certificate == 0
    for point in fit.path:
        x = point.coefficients
        for k, radius in enumerate(radii):
            assert np.abs(x[blocks == k]).sum() <= radius * (1 + 1e-12)
        assert point.certificate == pytest.approx(explicit_gap(A, y, x, radii, blocks, loss), rel=1e-9, abs=1e-12)
        assert point.objective == pytest.approx(value(A, y, x, loss), rel=1e-10)
    values = np.array([point.objective for point in fit.path])
    if rule == "line-search":
        assert (np.diff(values) <= 1e-14).all()
        assert values[-1] < values[0]


@pytest.mark.slow_but("nice-blocks")
@pytest.mark.parametrize("shape", ["ball", "blocks"])
@pytest.mark.parametrize("name", ["all", "nice"])
def test_the_logistic_loss_converges(shape, name):
    blocks = BALL if shape == "ball" else LABELS
    A, y = problem()
    y = np.where(y > 0, 1.0, -1.0)
    sampling = laws(blocks)[name][0]
    fit = frank_wolfe(A, y, RADIUS, blocks=blocks, sampling=sampling, loss="logistic", step_rule="line-search", steps=3000)
    start = frank_wolfe(A, y, RADIUS, blocks=blocks, loss="logistic", steps=0).objective
    assert fit.certificate < 2e-3 * start
    assert start == pytest.approx(value(A, y, np.zeros(40), "logistic"))


def test_the_logistic_line_search_is_exact():
    rng = np.random.default_rng(1)
    for scale in (1e-3, 1.0, 30.0):
        for shift in (-3.0, 0.0, 3.0):
            margins, change = rng.standard_normal(50) * scale, rng.standard_normal(50) + shift
            if -change @ (1 / (1 + np.exp(margins))) >= 0:
                continue
            gamma = logistic_search(margins, change)
            slope = -change @ (1 / (1 + np.exp(margins + gamma * change)))
            assert 0 < gamma <= 1
            assert abs(slope) < 1e-9 if gamma < 1 else slope <= 0


# --- theory -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow_for("ball-all-standard", "ball-uniform-standard")
@pytest.mark.parametrize(("shape", "name", "rule"), CASES)
def test_the_mean_excess_stays_under_theorem_1(shape, name, rule):
    blocks = BALL if shape == "ball" else LABELS
    A, y = problem()
    sampling, moving = laws(blocks)[name]
    best = frank_wolfe(A, y, RADIUS, blocks=blocks, step_rule="line-search", steps=20_000, tolerance=1e-6)
    lowest = best.objective - best.certificate
    curvature = expected_curvature(interactions(A, RADIUS, blocks=blocks, exact=True), moving)
    rounds = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]
    runs = [
        frank_wolfe(A, y, RADIUS, blocks=blocks, sampling=sampling, step_rule=rule, steps=2000, seed=seed, record=rounds)
        for seed in range(1 if sampling.full else 4)
    ]
    excess = np.mean([[point.objective - lowest for point in run.path] for run in runs], axis=0)
    limit = bound(rounds, value(A, y, np.zeros(40)) - lowest, curvature, sampling.least)
    assert (excess <= limit).all()
    assert sampling.least == sampling.probabilities.min()
    # The rate is real: 1/t once p t is large.
    assert excess[-1] < 0.2 * excess[0]


@pytest.mark.slow
def test_without_the_look_downhill_a_sampled_ball_stalls():
    """Always stepping settles at the mean of the vertices found: for one column a round, that is the box of radius eta/d."""
    A, y = problem()
    law, rounds = Sampling.uniform(40), 60_000
    kept = frank_wolfe(A, y, RADIUS, sampling=law, steps=rounds)
    lost = frank_wolfe(A, y, RADIUS, sampling=law, steps=rounds, descend=False)
    best = frank_wolfe(A, y, RADIUS, step_rule="line-search", steps=20_000, tolerance=1e-6).objective
    start = value(A, y, np.zeros(40))
    assert kept.objective - best < 0.02 * (start - best)
    assert lost.objective - best > 0.3 * (start - best)
    assert np.abs(lost.coefficients).max() < 3 * RADIUS / 40


def test_the_printed_server_update_leaves_the_ball():
    """Lou & Cheung, Algorithm 2, lines 3 and 4: the K parties' vertices of the full ball are added."""
    A, y = problem()
    x, draw, rng = np.zeros(40), Sampling.distributed(LABELS, 5).start(), np.random.default_rng(0)
    norms = []
    for t in range(30):
        vertex = np.zeros(40)
        for party in np.split(draw(rng, t), GROUPS):
            found = scores(A, party, (A @ x - y) / y.size)
            at = np.abs(found).argmax()
            vertex[party[at]] = -RADIUS * np.sign(found[at])
        gamma = 2 / (GROUPS * 5 / 40 * t + 2)
        x = (1 - gamma) * x + gamma * vertex
        norms.append(np.abs(x).sum() / RADIUS)
    assert norms[0] == pytest.approx(GROUPS)
    assert norms[-1] > 1.2


def test_curvature_constants_by_hand():
    """A ball's differences are the ball of twice the radius: vertices suffice."""
    A, _ = problem(30, 8)
    blocks, groups, radii = np.array([0, 0, 1, 1, 2, 2, 3, 3]), np.array([0, 0, 0, 0, 1, 1, 1, 1]), [0.5, 1.0, 0.2, 0.7]
    weight = 2 * np.array(radii)[blocks] / math.sqrt(30)
    gram = np.abs((A * weight).T @ (A * weight))
    other, near = blocks[:, None] != blocks, groups[:, None] == groups
    expected = np.diag(gram).max(), gram[other & near].max(), gram[~near].max()
    for matrix in (A, csc_array(A)):
        exact = interactions(matrix, radii, blocks=blocks, groups=groups, exact=True)
        assert exact == pytest.approx(expected)
        loose = interactions(matrix, radii, blocks=blocks, groups=groups)
        assert loose[0] == pytest.approx(expected[0])
        assert (np.array(loose) >= np.array(exact) - 1e-12).all()
        top = np.sqrt([np.diag(gram)[blocks == k].max() for k in range(4)])
        assert loose[1] == pytest.approx(max(top[0] * top[1], top[2] * top[3]))
        assert loose[2] == pytest.approx(max(top[0], top[1]) * max(top[2], top[3]))
    assert interactions(A, 1.0, exact=True)[1:] == (0.0, 0.0)
    assert interactions(A, 1.0, smoothness=0.25)[0] == pytest.approx(interactions(A, 1.0)[0] / 4)
    assert expected_curvature((3.0, 2.0, 1.0), 2, 5) == 5 * 2 * 3 + 5 * 2 * 2 + 5 * 4 * 4
    assert expected_curvature((3.0, 2.0, 1.0)) == 3.0


@pytest.mark.parametrize("seed", range(6))
def test_the_expected_curvature_lies_below_eso_and_the_older_curvatures(seed):
    """Propositions 1 and 2 of Lou & Cheung on boxes [-1, 1]^8, where suprema are at corners: f = |Ax|^2 / 2, differences in {-2, 2}^8."""
    d = 8
    A = np.random.default_rng(seed).standard_normal((4 + 3 * seed, d)) @ np.diag(np.linspace(0.3, 2, d))
    gram, corners = A.T @ A, 2.0 * np.array(list(itertools.product((-1, 1), repeat=d)))

    def largest(matrix):
        return np.einsum("ki,ij,kj->k", corners, matrix, corners).max()

    def eso(matrix):  # the largest normalised eigenvalue
        scale = 1 / np.sqrt(np.diag(matrix))
        return np.linalg.eigvalsh(matrix * scale[:, None] * scale)[-1]

    def pairs(sets):  # the probability that two columns are both sampled
        return np.mean([np.outer(inside, inside) for inside in np.eye(d)[np.array(sets)].sum(axis=1)], axis=0)

    halves = [(*one, *two) for one in itertools.combinations(range(4), 2) for two in itertools.combinations(range(4, 8), 2)]
    samplings = {
        "all": [tuple(range(d))],
        "uniform": [(i,) for i in range(d)],
        "nice": list(itertools.combinations(range(d), 3)),
        "distributed": halves,
    }
    curvature = {}
    for name, sets in samplings.items():
        both = pairs(sets)
        curvature[name] = largest(both * gram)
        beta = min(eso(both), eso(gram)) * np.diag(gram)
        assert curvature[name] <= (np.diag(both) * beta * 2.0**2).sum() * (1 + 1e-12)
    product = sum(largest(np.where(np.eye(d) == 1, gram, 0.0) * (np.arange(d) == i)) for i in range(d))
    sets = [largest(gram * np.outer(inside, inside)) for inside in np.eye(d)[np.array(samplings["nice"])].sum(axis=1)]
    assert curvature["all"] == pytest.approx(largest(gram))
    assert curvature["uniform"] == pytest.approx(product / d)  # equal where a block is one column
    assert curvature["nice"] <= np.mean(sets)


def test_the_bound_by_hand():
    np.testing.assert_allclose(bound([0, 10], 1.0, 2.0, 0.5, 0.5), [2 * 7 / 2, 2 * 7 / 7])


# --- samplings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampling", "size"),
    [
        (Sampling.every(12), 12),
        (Sampling.uniform(12), 1),
        (Sampling.nice(12, 5), 5),
        (Sampling.distributed(np.arange(12) % 3, 2), 6),
        (Sampling.distributed(["a"] * 2 + ["b"] * 4 + ["c"] * 6, 2), 6),
        (Sampling.nice(3, 2).of_blocks(np.arange(12) % 3), 8),
        (Sampling.uniform(3).of_blocks([2] * 2 + [0] * 4 + [7] * 6), None),
    ],
)
def test_measured_inclusion_probabilities(sampling, size):
    """For K equal groups K tau / d, and not its square (Table 1)."""
    draw, rng, rounds = sampling.start(), np.random.default_rng(5), 20_000
    counts, pairs = np.zeros(12), np.zeros((12, 12))
    for t in range(rounds):
        columns = draw(rng, t)
        assert np.unique(columns).size == columns.size
        assert size is None or columns.size == size
        counts[columns] += 1
        pairs[np.ix_(columns, columns)] += 1
    p = sampling.probabilities
    error = np.sqrt(p * (1 - p) / rounds)
    assert (np.abs(counts / rounds - p) <= 4.5 * error + 1e-12).all()
    assert sampling.least == p.min()
    if size == 5:  # every pair alike
        q = 5 * 4 / (12 * 11)
        assert np.abs(pairs[~np.eye(12, dtype=bool)] / rounds - q).max() < 5 * math.sqrt(q * (1 - q) / rounds)


def test_distributed_inclusion_is_not_the_printed_square():
    law = Sampling.distributed(LABELS, 2)
    np.testing.assert_allclose(law.probabilities, GROUPS * 2 / 40)
    np.testing.assert_allclose(Sampling.distributed([0, 0, 1, 1, 1, 1], 2).probabilities, [1, 1, 0.5, 0.5, 0.5, 0.5])


def test_paths_depend_on_the_seed_alone():
    A, y = problem()
    law = Sampling.distributed(LABELS, 2)
    first, again, other = (frank_wolfe(A, y, RADIUS, sampling=law, steps=50, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.coefficients, again.coefficients)
    assert (first.coefficients != other.coefficients).any()
    generator = frank_wolfe(A, y, RADIUS, sampling=law, steps=50, seed=np.random.default_rng(1))
    np.testing.assert_array_equal(first.coefficients, generator.coefficients)


# --- arithmetic ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [None, 5])
@pytest.mark.parametrize("rule", ["standard", "line-search"])
@pytest.mark.parametrize("law", ["all", "distributed", "blocks"])
def test_dense_and_sparse_take_the_same_path(blocks, rule, law):
    A, y = sparse_problem()
    labels = None if blocks is None else np.arange(900) % blocks
    sampling = {
        "all": None,
        "distributed": Sampling.distributed(np.arange(900) % 3, 40),
        "blocks": Sampling.nice(6, 2).of_blocks(np.arange(900) % 6),
    }[law]
    paths = [
        frank_wolfe(M, y, 6.0, blocks=labels, sampling=sampling, step_rule=rule, steps=300, record=50).path
        for M in (A, csc_matrix(A), A.toarray(), Columns.of(A))
    ]
    assert [point.iterations for point in paths[0]] == [50, 100, 150, 200, 250, 300]
    for path in paths[1:]:
        for mine, theirs in zip(paths[0], path, strict=True):
            np.testing.assert_allclose(mine.coefficients, theirs.coefficients, atol=1e-10)
            assert mine.certificate == pytest.approx(theirs.certificate, rel=1e-8)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("search", [False, True])
def test_the_kept_gradient_equals_a_fresh_one(sparse, blocks, search, monkeypatch):
    monkeypatch.setattr(full, "_KEPT", 900 * 50)  # products of a dense matrix make room for each other
    A, y = sparse_problem()
    radii = np.full(blocks, 6.0 / blocks)
    held = Columns.of(A if sparse else A.toarray())
    engine = full.Full(Problem(held, y, np.arange(900) % blocks, radii, search, 1.0, descend=True))
    for stop in (1, 2, 3, 700, 1500):
        x = engine.run(stop, 0.0).coefficients
        exact = A.T @ (A @ x - y) / y.size
        assert np.abs(engine.gradient() - exact).max() < 1e-9 * max(1.0, np.abs(exact).max())
        assert engine._state[1] == pytest.approx(float((A @ x) @ (A @ x)), rel=1e-10)
        assert engine._state[2] == pytest.approx(float(y @ (A @ x)), rel=1e-10)


def test_the_path_is_the_plain_one():
    """300 rounds as on paper, with everything recomputed: bounds and products change no choice."""
    for A, y, radius in ((*sparse_problem(), 6.0), (*problem(), RADIUS)):
        x = np.zeros(A.shape[1])
        for t in range(300):
            g = A.T @ (A @ x - y)
            j, gamma = np.abs(g).argmax(), 2 / (t + 2)
            x *= 1 - gamma
            x[j] -= gamma * radius * np.sign(g[j])
        np.testing.assert_allclose(frank_wolfe(A, y, radius, steps=300).coefficients, x, atol=1e-12)


def test_the_lazy_scale_is_multiplied_out():
    """At small inclusion probabilities the first steps leave almost nothing of what was there before."""
    A, y = sparse_problem()
    law = Sampling.of(lambda rng, t: rng.choice(900, 900), np.full(900, 1e-9))
    fit = frank_wolfe(A, y, 6.0, sampling=law, steps=40, descend=False, record=1)
    assert np.abs(fit.coefficients).max() == pytest.approx(6.0)
    for point in fit.path:
        assert point.objective == pytest.approx(value(A, y, point.coefficients), rel=1e-10)
    exact = csc_array(np.eye(6))
    for law in (None, Sampling.nice(6, 6)):
        once = frank_wolfe(exact, np.eye(6)[2] * 3.0, 3.0, sampling=law, step_rule="line-search", steps=5)
        np.testing.assert_allclose(once.coefficients, np.eye(6)[2] * 3.0)
        assert once.certificate == 0
        assert once.converged


def test_scores():
    A, y = sparse_problem()
    columns = np.array([3, 899, 3, 0])
    for matrix in (A, A.toarray(), np.asfortranarray(A.toarray()), Columns.of(A)):
        np.testing.assert_allclose(scores(matrix, columns, y), (A.T @ y)[columns], atol=1e-13)
        np.testing.assert_allclose(scores(matrix, None, y), A.T @ y, atol=1e-13)
        assert scores(matrix, np.empty(0, dtype=int), y).size == 0
        for wrong in ([900], [-1]):
            with pytest.raises(IndexError, match="does not have"):
                scores(matrix, wrong, y)
    twice = csc_array((np.ones(3), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    assert not twice.has_canonical_format
    np.testing.assert_allclose(scores(twice, None, np.array([1.0, 10.0])), [20.0, 1.0])
    fortran = np.asfortranarray(A.toarray())
    assert np.shares_memory(Columns.of(fortran).data, fortran)
    assert np.shares_memory(Columns.of(A).data, A.data)


# --- noisy picks --------------------------------------------------------------------------------------------------------


def picked(fit):
    """The signed column of a first step with gamma = 1, and its gradient's sign."""
    (place,) = np.flatnonzero(fit.coefficients)
    return int(place) + (fit.coefficients.size if fit.coefficients[place] < 0 else 0)


@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.parametrize("kind", ["sparse", "dense", "sampled", "logistic"])
@pytest.mark.parametrize("share", [0.15, 1.0])
def test_first_picks_follow_the_exponential_mechanism(kind, share):
    """Columns of several tiles; the weight of -e_j is exp(g_j / T), that of +e_j is exp(-g_j / T)."""
    A, y = sparse_problem()
    y = np.where(y > 0, 1.0, -1.0) if kind == "logistic" else y
    matrix = A.toarray() if kind == "dense" else A
    law = Sampling.nice(900, 900) if kind == "sampled" else None
    g = -A.T @ y / y.size / (2 if kind == "logistic" else 1)
    temperature = share * np.abs(g).max()
    expected = np.exp(np.concatenate([-g, g]) / temperature)
    draws, held = sized(4000, 2000), Columns.of(matrix)
    expected *= draws / expected.sum()
    loss = "logistic" if kind == "logistic" else "squared"
    picks = [
        picked(frank_wolfe(held, y, 6.0, sampling=law, loss=loss, temperature=temperature, steps=1, seed=s, descend=False))
        for s in range(draws)
    ]
    found = np.bincount(picks, minlength=1800)

    def p_value(wanted):
        cells = np.argsort(wanted)[::-1]
        cells = np.minimum(np.cumsum(wanted[cells]) // 40, draws // 40 - 1).astype(int)[np.argsort(cells)]
        sums = [np.bincount(cells, counts) for counts in (found, wanted)]
        return chisquare(*[total[sums[1] > 0] for total in sums]).pvalue

    assert p_value(expected) > 1e-4
    wrong = np.exp(1.3 * np.concatenate([-g, g]) / temperature)
    assert share == 1.0 or p_value(wrong * draws / wrong.sum()) < 1e-4
    tiles = np.bincount(np.tile(np.arange(900) // 100, 2), found)
    assert chisquare(tiles, np.bincount(np.tile(np.arange(900) // 100, 2), expected)).pvalue > 1e-4


@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("contiguous", [True, False])
def test_later_picks_follow_the_gradient_of_their_round(blocks, contiguous):
    """The same engine, many keys: the law of round 60's picks, behind bounds that 60 noisy rounds have left."""
    A, y = sparse_problem()
    owner = np.arange(900) // (900 // blocks) if contiguous else np.arange(900) % blocks
    problem = Problem(Columns.of(A), y, owner, np.full(blocks, 1.5), search=False, probability=1.0, descend=False)
    engine = full.Full(problem, 2.0, 9)
    engine.run(60, 0.0)
    score = engine.gradient() * y.size
    counts, draws = np.zeros((2, 900)), 4000
    chosen, weights = np.empty(blocks, dtype=np.int64), np.empty(blocks)
    for key in range(draws):
        noisy_vertices(
            engine._moments, engine._moved, engine._state[0], engine._bounds, engine._order, engine._edges, engine._ends,
            np.full(blocks, 1.5), 2.0, key << 20, 7, chosen, weights,
        )  # fmt: skip
        np.add.at(counts, ((weights < 0).astype(int), chosen), 1)
    for k in range(blocks):
        law = np.exp(np.array([-score[owner == k], score[owner == k]]) / 2.0)
        expected, found = (law / law.sum() * draws).ravel(), counts[:, owner == k].ravel()
        large = expected >= 10
        assert large.sum() > 5
        sums = [[*values[large], values[~large].sum()] for values in (found, expected)]
        assert chisquare(*sums).pvalue > 1e-4


@pytest.mark.slow_for("False-1-False", "False-4-False")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("search", [False, True])
def test_bounds_hold_and_the_gradient_is_kept_after_many_noisy_rounds(sparse, blocks, search, monkeypatch):
    monkeypatch.setattr(full, "_KEPT", 900 * 50)
    A, y = sparse_problem()
    held, owner = Columns.of(A if sparse else A.toarray()), np.arange(900) % blocks
    problem = Problem(held, y, owner, np.full(blocks, 6.0 / blocks), search, 1.0, descend=False)
    engine = full.Full(problem, 0.02 * y.size, 5)
    for stop in (1, 2, 50, 400):
        fit = engine.run(stop, 0.0)
        x, score = fit.coefficients, engine.gradient() * y.size
        np.testing.assert_allclose(score, A.T @ (A @ x - y), atol=1e-9)
        np.testing.assert_array_less(np.abs(score), engine._bounds[engine._home] * (1 + 1e-9) + 1e-12)
        assert fit.certificate == pytest.approx(explicit_gap(A, y, x, np.full(blocks, 6.0 / blocks), owner), rel=1e-9)
        for k in range(blocks):
            assert np.abs(x[owner == k]).sum() <= 6.0 / blocks * (1 + 1e-12)


@pytest.mark.parametrize("blocks", [None, 5])
@pytest.mark.parametrize("rule", ["standard", "line-search"])
@pytest.mark.parametrize("share", [1e-9, 0.05, 1.0])
def test_noisy_picks_are_the_same_for_dense_and_sparse(blocks, rule, share):
    A, y = sparse_problem()
    labels = None if blocks is None else np.arange(900) % blocks
    options = {"blocks": labels, "step_rule": rule, "steps": 150, "descend": False, "seed": 4}
    temperature = share * np.abs(A.T @ y).max() / y.size
    fits = [frank_wolfe(M, y, 6.0, temperature=temperature, **options) for M in (A, A.toarray())]
    recorded = frank_wolfe(A, y, 6.0, temperature=temperature, record=7, **options)
    np.testing.assert_allclose(fits[0].coefficients, fits[1].coefficients, atol=1e-9)
    np.testing.assert_allclose(fits[0].coefficients, recorded.coefficients, atol=1e-12)
    free = frank_wolfe(A, y, 6.0, **options).coefficients
    assert (np.abs(fits[0].coefficients - free).max() < 1e-9) == (share == 1e-9)


@pytest.mark.parametrize("rule", ["standard", "line-search"])
def test_a_noisy_vertex_that_leads_uphill_is_not_followed_unless_asked_for(rule):
    A, y = problem()
    values = {}
    for descend in (True, False):
        fit = frank_wolfe(A, y, RADIUS, temperature=0.05, step_rule=rule, steps=200, record=1, descend=descend)
        values[descend] = [point.objective for point in fit.path]
        assert max(np.abs(point.coefficients).sum() for point in fit.path) <= RADIUS * (1 + 1e-12)
    if rule == "line-search":
        assert values[True] == values[False]
        assert (np.diff(values[True]) <= 1e-14).all()
        assert (np.diff(values[True]) == 0).any()
    else:
        assert np.mean(values[True][100:]) < np.mean(values[False][100:])


def test_noise_leaves_the_sampled_columns_as_they_are():
    A, y = problem()
    seen = []
    law = Sampling.nice(40, 6)
    for temperature in (0.0, 0.1):
        drawn = []

        def start(drawn=drawn):
            draw = law.start()
            return lambda rng, t: drawn.append(draw(rng, t)) or drawn[-1]

        watched = Sampling(law.probabilities, start)
        seen.append(frank_wolfe(A, y, RADIUS, sampling=watched, temperature=temperature, steps=30).coefficients)
        seen.append(np.array(drawn))
    np.testing.assert_array_equal(seen[1], seen[3])
    assert (seen[0] != seen[2]).any()


# --- the interface ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [None, LABELS])
def test_inexact_oracles(blocks):
    A, y = problem()
    exact = frank_wolfe(A, y, RADIUS, blocks=blocks, steps=200)
    seen = []

    def honest(columns, slopes):
        seen.append(columns.size)
        return slopes

    same = frank_wolfe(A, y, RADIUS, blocks=blocks, steps=200, oracle=honest)
    np.testing.assert_allclose(same.coefficients, exact.coefficients, atol=1e-12)
    assert seen == [40] * 200
    rng = np.random.default_rng(0)
    noisy = frank_wolfe(
        A, y, RADIUS, blocks=blocks, steps=200, oracle=lambda columns, s: s + rng.laplace(scale=0.02, size=s.size)
    )
    assert noisy.certificate < 0.5 * value(A, y, np.zeros(A.shape[1]))
    assert np.abs(noisy.coefficients).sum() <= RADIUS * (1 + 1e-12)


def test_records_and_early_ends():
    A, y = problem()
    fit = frank_wolfe(A, y, RADIUS, steps=50, record=[0, 7, 50, 99])
    assert [point.iterations for point in fit.path] == [0, 7, 50]
    assert fit.path[0].indices.size == 0
    assert fit.path[-1].objective == fit.objective
    assert frank_wolfe(A, y, RADIUS, steps=50).path == ()
    seen = []
    stopped = frank_wolfe(A, y, RADIUS, steps=50, record=10, watch=lambda point: seen.append(point) or len(seen) == 2)
    assert stopped.iterations == 20
    assert not stopped.converged
    law = Sampling.nice(40, 30)
    early = frank_wolfe(A, y, RADIUS, sampling=law, steps=5000, tolerance=0.05, record=25)
    assert early.converged
    assert early.iterations % 25 == 0
    assert early.iterations < 5000
    nothing = frank_wolfe(A, np.zeros(120), RADIUS, steps=5)
    assert not nothing.coefficients.any()
    assert nothing.certificate == 0


def test_what_it_refuses():
    A, y = problem()
    for wrong, word in (
        ({"y": y[:-1]}, "y has shape"),
        ({"radius": 0.0}, "positive radii"),
        ({"radius": [1.0, 1.0]}, "1 positive radii"),
        ({"blocks": LABELS[:-1]}, "39 labels"),
        ({"sampling": Sampling.nice(39, 2)}, "a sampling of 39"),
        ({"loss": "hinge"}, "unknown loss"),
        ({"loss": "logistic"}, "-1 or 1"),
        ({"step_rule": "tiny"}, "unknown step rule"),
    ):
        with pytest.raises(ValueError, match=word):
            frank_wolfe(**{"matrix": A, "y": y, "radius": RADIUS, **wrong})
    with pytest.raises(ValueError, match="tau = 11"):
        Sampling.distributed(LABELS, 11)
    with pytest.raises(ValueError, match="probability above 0"):
        Sampling.of(lambda rng, t: np.arange(1), [0.0, 1.0])
    for temperature in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="temperature"):
            frank_wolfe(A, y, 1.0, temperature=temperature)
    with pytest.raises(ValueError, match="without an oracle"):
        frank_wolfe(A, y, 1.0, temperature=1.0, oracle=lambda _columns, slopes: slopes)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_round_that_draws_no_block_stays_where_it_is(loss: str) -> None:
    rng = np.random.default_rng(0)
    A, y, blocks = rng.normal(size=(60, 12)), np.sign(rng.normal(size=60)), np.arange(12) % 3
    law = Sampling.of(lambda rng, _t: np.flatnonzero(rng.random(3) < 0.2), np.full(3, 0.2)).of_blocks(blocks)
    path = frank_wolfe(A, y, 3.0, blocks=blocks, sampling=law, loss=loss, steps=40, record=list(range(41)), seed=1).path
    still = sum(a.objective == b.objective for a, b in itertools.pairwise(path))
    assert 10 <= still < 40  # 0.8^3 of the rounds, and those that led uphill
