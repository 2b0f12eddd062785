"""The attacks: replays, accounts, the noise itself, traces of data, adversaries, damaged messages, faults, and attributes of estimators."""

from unpooled.testing.accounts import *
from unpooled.testing.adversaries import *
from unpooled.testing.faults import *
from unpooled.testing.fuzz import *
from unpooled.testing.noise import *
from unpooled.testing.replays import *
from unpooled.testing.shown import *
from unpooled.testing.traces import *
