"""The new study file of a treatment effect."""

from unpooled.protocol.registry import ROWS, Template

TEMPLATE = Template(
    "The effect of a treatment, adjusted for covariates: by weights, by an outcome model, or by both.",
    ROWS,
    "record",
    """\
response = "y"                      # the outcome: a declared number, or two categories (family = "logistic") of which the second counts as 1
treatment = "arm"                   # a declared column of two categories, the first of which is the control
covariates = "."                    # what is adjusted for, as the right side of a formula; "." is every other column
# propensity = ""                   # the same for the propensity alone; else as covariates
# estimator = "aipw"                # "iptw": weights alone; "g-formula": the outcome model alone
# estimand = "ATE"                  # "ATT": the effect on the treated
# family = "linear"                 # of the outcome: "logistic", "poisson", "gamma", "negative-binomial", "survival"
# interactions = true               # an outcome model of its own for each arm; false: one model, to which the treatment adds a number
# event = "died"                    # of survival, where the response is a time: a declared column of 0 and 1
# horizon = 365.0                   # of survival: the time at which people are alive or not
# cuts = []                         # of survival: where hazards may change; else six equal intervals
# overlap = 0.05                    # propensities are kept between this number and 1 less it
# max_passes = 105                  # the most passes over every party's data for each of both models
# tolerate = 0                      # parties that may collude or drop out
# prior = []                        # earlier estimates of the same effect, to which it is drawn: { name = "2024", coefficients = { ATE = -1.5 } }
# level = 0.95                      # of the intervals""",
)
