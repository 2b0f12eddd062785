"""Families of responses, a file and a row for each: the one notion of a family that all models share."""

from unpooled.families.base import Family as Family
from unpooled.families.base import Response as Response
from unpooled.families.base import RowFamily as RowFamily
from unpooled.families.gamma import Gamma
from unpooled.families.gaussian import Gaussian
from unpooled.families.huber import Huber
from unpooled.families.logistic import Logistic
from unpooled.families.negative_binomial import NegativeBinomial
from unpooled.families.poisson import Poisson
from unpooled.families.quantile import Quantile

_ROWS: tuple[type[Family], ...] = (Gaussian, Logistic, Huber, Quantile, Poisson, Gamma, NegativeBinomial)
#: Every family with its defaults by name, and those that rounds over split rows fit.
FAMILIES: dict[str, Family] = {family.name: family() for family in _ROWS}
ROW_FAMILIES: dict[str, type[RowFamily]] = {kind.name: kind for kind in _ROWS if issubclass(kind, RowFamily)}
