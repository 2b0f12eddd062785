"""The correlation of two columns whose rows several parties hold: a model of unpooled in a package of its own."""

from private_correlation.estimator import PrivateCorrelation
from private_correlation.model import MODEL

__all__ = ["MODEL", "PrivateCorrelation"]
