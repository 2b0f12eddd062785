"""The contract: runs, refusals, dishonest parties and coordinators, results, keys of the noise, and texts of studies."""

from unpooled.testing.hostile_coordinator import *
from unpooled.testing.hostile_parties import *
from unpooled.testing.keys import *
from unpooled.testing.refusals import *
from unpooled.testing.results import *
from unpooled.testing.runs import *
from unpooled.testing.texts import *
