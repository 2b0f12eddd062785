"""Whatever moves what a party releases moves the key of its noise: the same noise is never over two different statistics (F.6)."""

from cases import CASES as CASES

from unpooled.testing.keys import *

SLOW = {"test_no_two_statistics_share_their_noise": ["effects"]}
LONG = {"test_no_two_statistics_share_their_noise": ["glm, columns of counts", "glm, columns of times", "effects, survival"]}
