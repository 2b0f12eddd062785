"""A coordinator that follows no protocol: every step of a model, in any order, at any index, with payloads from wherever it can get them.

Whatever is asked, what comes back was planned, was debited, and fits into the study's budget; everything else is refused in words.
"""

from cases import CASES as CASES

from unpooled.testing.hostile_coordinator import *

LONG = {
    "test_wild_payloads_are_answered_within_the_plan_or_refused_in_words": [
        "glm, columns of counts",
        "glm, columns of times",
        "effects, survival",
    ],
}
