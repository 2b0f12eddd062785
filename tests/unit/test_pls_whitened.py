"""PLS in whitened public coordinates: the bound of a row, the noise-aware posterior, what is expected before data."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import fields

import numpy as np
import pytest

from unpooled import Bounds, PrivatePLSRegression
from unpooled.datasets import make_spectra
from unpooled.errors import UsageError
from unpooled.estimation import outlook as outlooks
from unpooled.models.pls.declared import PlsDesign, design_of
from unpooled.models.pls.spectra import Frame, whitened
from unpooled.privacy.bounds import Column
from unpooled.privacy.plan import Card, Study
from unpooled.privacy.sensitivity import moments_augmented
from unpooled.privacy.table import Table
from unpooled.privacy.unit import Adjacency


def _whitened_case() -> tuple:
    public = make_spectra(120, kind="corn", seed=7, pure_seed=3).spectra
    return public, *whitened(public)


def test_a_matrix_keeps_its_scaling_and_scores_are_those_of_its_coordinates() -> None:
    public, basis, reference, norm = _whitened_case()
    frame = Frame.of("matrix", reference.size, 0, reference, basis)
    assert frame.basis == pytest.approx(basis, rel=1e-4, abs=1e-6 * np.abs(basis).max())
    assert frame.coordinates(public).std(axis=0) == pytest.approx(np.ones(basis.shape[1]), rel=1e-3)
    z = np.random.default_rng(0).normal(size=(basis.shape[1], 2))
    assert frame.basis.T @ frame.spectra(z) == pytest.approx(z)  # spectra that have these coordinates
    data = make_spectra(400, kind="corn", seed=4, pure_seed=3)
    model = PrivatePLSRegression(
        basis=basis, reference=reference, bounds=Bounds(norm=norm), y_bounds=(8.8, 11.2), epsilon=20.0, random_state=0
    ).fit(data.spectra, data.response)
    predicted = model.transform(data.spectra) @ model.y_loadings_[0]
    assert np.ptp(model.predict(data.spectra) - predicted) < 1e-6
    assert model.x_loadings_.T @ model.x_rotations_ == pytest.approx(np.eye(model.n_components_), abs=1e-6)


def _moved(design, one: np.ndarray, other: np.ndarray, radius: float) -> float:
    """How far replacing one spectrum moves the moments, off-diagonals weighted as their noise is: the Frobenius norm of the difference."""
    columns = design.names
    found = []
    for row in (one, other):
        table = Table(dict(zip(columns, np.repeat(row[:, None], 2, axis=1), strict=True)))
        *x, y = np.array([part[0] for part in next(iter(design.blocks(table)))])
        response = design.layout.response
        z = np.concatenate(
            [np.sqrt(0.5) * np.array(x) / radius, [np.sqrt(0.1), np.sqrt(0.4) * (y - response.centre) / response.half_width]]
        )
        found.append(np.outer(z, z))
    return float(np.linalg.norm(found[0] - found[1]))


class Unshortened(PlsDesign):
    """The control: whitened rows keep the length that an orthonormal basis would have left them."""

    @property
    def radius(self) -> float:
        return math.inf


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e-3, 50.0])
def test_no_spectrum_moves_whitened_moments_farther_than_planned(scale: float) -> None:
    """Theorem C.3 by search; the control takes rows as long as they come."""
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.normal(size=(6, 3)))[0] * np.array([1.0, 30.0, 400.0]) * scale
    declared = (*(Column(f"x{j}", -1.0, 1.0) for j in range(6)), Column("y", 0.0, 1.0))
    parameters = {"response": "y", "basis": "matrix", "matrix": basis.tolist(), "norm": 2.0 * scale}
    design = design_of(Study("pls", (Card("a", 9, declared),), 1.0, 1e-5, parameters=parameters, derived=()))
    sides = np.vstack([np.eye(6), basis.T / np.abs(basis).max(axis=0)[:, None]])
    ends = [np.append(sign * side, y) for side in sides for sign in (-1, 1) for y in (0.0, 1.0)]
    found = max(_moved(design, one, other, design.radius) for one in ends for other in ends)
    bound = moments_augmented(1.0, Adjacency.REPLACE)
    assert 0.8 * bound < found <= bound * (1 + 1e-9)
    loose = Unshortened(**{name.name: getattr(design, name.name) for name in fields(design)})
    assert max(_moved(loose, one, other, design.radius) for one in ends for other in ends) > 10 * bound


@pytest.mark.slow
def test_a_signal_about_its_noise_is_used_and_components_lead_to_the_posterior() -> None:
    _, basis, reference, norm = _whitened_case()
    data = make_spectra(900, kind="corn", seed=5, pure_seed=3)
    better = []
    for seed in range(6):
        model = PrivatePLSRegression(
            basis=basis, reference=reference, bounds=Bounds(norm=norm), y_bounds=(8.8, 11.2), epsilon=1.0, delta=0.01
        ).set_params(random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model.fit(data.spectra, data.response)
        better.append(np.std(model.predict(data.spectra) - data.response) / data.response.std())
        assert model.n_components_ <= basis.shape[1]
    assert np.median(better) < 0.9
    assert max(better) < 1.1


@pytest.mark.parametrize(
    ("spectra", "options", "words"),
    [
        (np.ones((2, 4)), {}, "at least three"),
        (np.ones((5, 4)), {}, "all the same"),
        (np.eye(4), {"variance": 2.0}, "variance is a part"),
    ],
)
def test_whitening_says_what_it_needs(spectra: np.ndarray, options: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        whitened(spectra, **options)


def test_whitening_takes_few_directions_from_few_spectra() -> None:
    rng = np.random.default_rng(0)
    assert whitened(rng.normal(size=(7, 30)), 1.0)[0].shape[1] == 2
    assert whitened(rng.normal(size=(90, 30)), 1.0)[0].shape[1] == 12


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.minutes
def test_the_outlook_of_pls_falls_with_epsilon_and_knows_when_nothing_is_to_be_had(monkeypatch) -> None:
    monkeypatch.setattr(outlooks, "RUNS", 4)
    model = PrivatePLSRegression(basis=np.eye(40)[:, :4], bounds=Bounds(norm=2.5), y_bounds=(0, 1))
    many, few = model.outlook(3000, 40, r2=0.9), model.outlook(30, 40)
    errors = [point.error for point in sorted(many.points, key=lambda p: p.epsilon)]
    # Where another method begins, four runs may say two hundredths more.
    assert all(later <= 1.02 * earlier for earlier, later in itertools.pairwise(errors))
    assert min(errors) < errors[0]
    assert many.worthwhile
    assert many.error < 0.5
    assert not few.worthwhile
    assert model.outlook(3000, 40, epsilon=10.0).epsilon == 10.0
    steep = PrivatePLSRegression(bounds=Bounds(norm=2.5), y_bounds=(0, 1), basis_size=4).outlook(
        3000, 40, r2=0.9, decay=0.01
    )
    assert steep.error > many.error
