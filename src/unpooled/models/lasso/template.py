"""The new study files of the LASSO: the sound form, and the form as published at the settings of the paper."""

from unpooled.protocol.template import COLUMNS, Template

_RESPONSE = """\
# Every party must hold the response, in the same order of rows and the same units: give it to the parties that lack it before this study.
response = "y"                      # every party's own label column, under `labels` in its party file
response_bound = 1.0                # bound on its absolute value: what is possible, not what you saw"""

TEMPLATE = Template(
    "Sparse linear regression over many columns.",
    COLUMNS,
    "attribute",
    f"""\
{_RESPONSE}
# radius_in_half_ranges = 1.0       # bound on the sum of absolute coefficients, in units of response_bound; without it the noise sets a penalty
# loss = "squared"                  # "logistic": the response is -1 or 1, coefficients and the radius are log odds
# method = "auto"                   # "moments"; "frank-wolfe", which "auto" takes where one of its own parameters is set
# fit_intercept = true
# Of method = "frank-wolfe" alone:
# rounds = 20
# refit = 0.25                      # part of the budget that fits the chosen columns at the end
# sampled = 0                       # columns that a party looks at per round; 0: all of them
# clip = 0.0                        # where noisy predictions are clipped; 0: chosen by the noise
# shares = [0.6,0.2,0.2]            # parts of the rest of the budget for columns, picks and scores
# coupling = "ball"                 # the best party steps; "blocks": all step, each in a ball of its own
# response_public = false
# radius and sketch_rows are not for this form""",
)

#: The paper's own study.
PUBLISHED_TEMPLATE = Template(
    "Distributed Frank-Wolfe as printed (Algorithm 2), with sketched columns. It protects nobody and leaves the ball (THEORY.md, section 2).",
    COLUMNS,
    "attribute",
    f"""\
{_RESPONSE}
radius = 1.0                        # eta: bound on the sum of absolute coefficients of scaled columns, in units of the response
rounds = 20                         # T
sampled = 0                         # tau: columns that a party looks at per round; 0: all of them
sketch_rows = 100                   # m: rows of the sketch of shared columns; 0: no sketch
# radius_in_half_ranges, method, coupling, clip, shares, refit, fit_intercept, response_public and loss are not for this form""",
    delta=1e-05,
    calibration="published",
)
