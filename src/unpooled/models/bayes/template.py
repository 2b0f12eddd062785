"""The new study files of linear regression: the sound form, and the form as published at the settings of the paper."""

from unpooled.protocol.template import ROWS, Template

TEMPLATE = Template(
    "Linear regression with standard errors, from totals that a secure sum opens.",
    ROWS,
    "record",
    """\
response = "y"                      # a declared column, with a range
# fit_intercept = true
# weights = ""                      # a declared column of numbers from 0 on: by what a row's part of every sum is multiplied
# method = "auto"                   # decided before data; "refinement", "gradient", "mean", "moments"
# tolerate = 0                      # parties that may collude or drop out
# level = 0.95                      # of the intervals
# reference = { ward = "b" }        # the level that the others of a column are compared with; else the first declared one
# coding = "treatment"              # or "sum": levels are compared with the mean of all
# formula = ""                      # what the model is a function of, as "age * ward + log(dose)"; else every declared column as it is""",
)

#: The paper's own study.
PUBLISHED_TEMPLATE = Template(
    "Bayesian linear regression as printed: moments with the classical Gaussian noise of equation (12). It protects nobody (THEORY.md).",
    ROWS,
    "record",
    """\
response = "y"                      # a declared column, with a range
fit_intercept = false               # the paper has no constant
posterior = "naive"                 # the paper's, which takes the noise for data; also "aware"
prior_precision = 1.0               # known, as in the paper
noise_precision = 1.0
projection = 0.2                    # part of the squared budget for the deviations of Algorithm 2; 0 projects nothing
# multiple = 2.0                    # thresholds of the projection in deviations; without it the best on synthetic data
# max_passes, method, norm, formula, weights and geometry are not for this form: it has one release of moments, and a row is a point of a box
# tolerate = 0                      # parties that may collude or drop out
# nodes = []                        # parties of the secure sum; none: all of them
# level = 0.95                      # of the intervals
# reference = { ward = "b" }        # the level that the others of a column are compared with; else the first declared one
# coding = "treatment"              # or "sum": levels are compared with the mean of all""",
    delta=0.0001,
    calibration="published",
)
