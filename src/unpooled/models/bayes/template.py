"""The new study file of linear regression."""

from unpooled.protocol.registry import COLUMNS, ROWS, Template

_COLUMNS = Template(
    "Linear regression over columns of several parties, from joint sums: with standard errors, or small errors of predictions.",
    COLUMNS,
    "record",
    """\
response = "y"                      # a declared column of one party, with a range
split = "columns"                   # the parties hold columns of the same people
# check = "proof"                   # every party proves that its masked rows are short; "none" needs policies with joint = "trusting"
# method = "auto"                   # decided before data; "moments": standard errors; "sines": two parties, predictions alone
# tolerate = 0                      # members that may know each other's noise, or stay silent about their own
# level = 0.95                      # of the intervals
# reference = { ward = "b" }        # the level that the others of a column are compared with; else the first declared one
# coding = "treatment"              # or "sum": levels are compared with the mean of all
# prior = []                        # earlier models to which the fit is drawn: { name = "2024", coefficients = { age = 0.6 }, intercept = 90 }
# formula = ""                      # what the model is a function of, as "age + log(dose)"; every term is of columns of one party""",
)

TEMPLATE = Template(
    "Linear regression with standard errors, from totals that a secure sum opens.",
    ROWS,
    "record",
    """\
response = "y"                      # a declared column, with a range
# fit_intercept = true
# weights = ""                      # a declared column of numbers from 0 on: by what a row's part of every sum is multiplied
# method = "auto"                   # decided before data; "refinement", "gradient", "direction", "mean", "moments"; with prior also "weights"
# prior = []                        # earlier models to which the fit is drawn: { name = "2024", coefficients = { age = 0.6 }, intercept = 90 }
# covariance = "auto"               # what standard errors assume: "model", "robust" (any variance), "cluster" (ids of several rows)
# focus = []                        # columns to which the budget of a small study goes, as ["arm"]: the others get no standard errors
# site_effects = "pooled"           # or "fixed": a constant for every party; "random": constants drawn around a mean
# tolerate = 0                      # parties that may collude or drop out
# level = 0.95                      # of the intervals
# reference = { ward = "b" }        # the level that the others of a column are compared with; else the first declared one
# coding = "treatment"              # or "sum": levels are compared with the mean of all
# formula = ""                      # what the model is a function of, as "age * ward + log(dose)"; else every declared column as it is
# projection_delta and indefinite are not for this form""",
    with_helpers=_COLUMNS,
)
