"""The contract that every model is held to, over the cases of this package."""

from cases import CASES as CASES

from unpooled.testing.contract import *
