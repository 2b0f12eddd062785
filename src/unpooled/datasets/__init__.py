"""Simulators of the data that the experiments and demonstrations need."""

from unpooled.datasets.confounded_field import make_confounded_field
from unpooled.datasets.hospitals import make_hospitals

__all__ = ["make_confounded_field", "make_hospitals"]
