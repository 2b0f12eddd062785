"""The attacks that every model is held to, over the cases and the estimator of this package."""

from cases import CASES as CASES
from cases import ESTIMATORS as ESTIMATORS
from cases import SHOWN as SHOWN

from unpooled.testing.attacks import *
