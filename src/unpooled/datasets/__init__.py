"""Simulators of the data that the experiments and demonstrations need."""

from unpooled.datasets.confounded_field import make_confounded_field
from unpooled.datasets.hospitals import make_hospitals
from unpooled.datasets.instruments import make_instruments
from unpooled.datasets.regression_sites import make_regression_sites
from unpooled.datasets.spectra import make_spectra
from unpooled.datasets.trial import make_trial

__all__ = [
    "make_confounded_field",
    "make_hospitals",
    "make_instruments",
    "make_regression_sites",
    "make_spectra",
    "make_trial",
]
