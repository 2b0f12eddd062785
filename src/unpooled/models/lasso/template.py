"""The new study file of the LASSO."""

from unpooled.protocol.registry import COLUMNS, Template

_JOINED = Template(
    "Sparse regression over columns of several parties, from joint second moments: whole persons are protected.",
    COLUMNS,
    "record",
    """\
response = "y"                      # a declared column of one party, with a range; for a logistic loss low = -1 and high = 1
# loss = "squared"                  # "logistic": the response is -1 or 1, coefficients and the radius are log odds
# radius_in_half_ranges = 1.0       # bound on the sum of absolute coefficients, in half ranges of y; without it the noise sets a penalty
# method = "joint"                  # the default of a study with a helper
# prior = []                        # earlier models to which the fit is drawn: { name = "2024", coefficients = { age = 0.6 }, intercept = 90 }
# check = "proof"                   # every party proves that its masked rows are short; "none" needs policies with joint = "trusting"
# tolerate = 0                      # members that may know each other's noise, or stay silent about their own""",
)

TEMPLATE = Template(
    "Sparse linear regression over many columns.",
    COLUMNS,
    "attribute",
    """\
# Every party must hold the response, in the same order of rows and the same units: give it to the parties that lack it before this study.
response = "y"                      # every party's own label column, under `labels` in its party file
response_bound = 1.0                # bound on its absolute value: what is possible, not what you saw
# radius_in_half_ranges = 1.0       # bound on the sum of absolute coefficients, in units of response_bound; without it the noise sets a penalty
# loss = "squared"                  # "logistic": the response is -1 or 1, coefficients and the radius are log odds
# method = "auto"                   # "moments"; "joint", which a study with helpers is; "frank-wolfe", which "auto" takes where one of its own parameters is set
# fit_intercept = true
# prior = []                        # of moments, earlier models to which the fit is drawn: { name = "2024", coefficients = { age = 0.6 } }
# Of method = "joint" alone, for whole persons:
# check = "proof"                   # every party proves that its masked rows are short
# tolerate = 0                      # members that may know each other's noise, or stay silent about their own
# Of method = "frank-wolfe" alone:
# rounds = 20
# refit = 0.25                      # part of the budget that fits the chosen columns at the end
# sampled = 0                       # columns that a party looks at per round; 0: all of them
# clip = 0.0                        # where noisy predictions are clipped; 0: chosen by the noise
# shares = [0.6,0.2,0.2]            # parts of the rest of the budget for columns, picks and scores
# coupling = "ball"                 # the best party steps; "blocks": all step, each in a ball of its own
# response_public = false
# radius and sketch_rows are not for this form""",
    with_helpers=_JOINED,
)
