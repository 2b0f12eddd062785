"""Simulators of the data that the experiments and demonstrations need."""

from unpooled.datasets.confounded_field import make_confounded_field
from unpooled.datasets.hospitals import make_hospitals, make_regression_sites, make_trial
from unpooled.datasets.spectra import make_instruments, make_spectra

__all__ = [
    "make_confounded_field",
    "make_hospitals",
    "make_instruments",
    "make_regression_sites",
    "make_spectra",
    "make_trial",
]
