"""The new study file of a generalised linear model."""

from unpooled.protocol.registry import ROWS, Template

TEMPLATE = Template(
    "Logistic, multinomial, Poisson, gamma, negative binomial or survival regression with standard errors, by rounds through a secure sum.",
    ROWS,
    "record",
    """\
response = "y"                      # a declared column: two categories (logistic), two or more (multinomial), or a range
family = "logistic"                 # or "multinomial", "poisson", "gamma", "negative-binomial", "survival"
# exposure = ""                     # a declared column that the mean is in proportion to
# offset = ""                       # a declared column that is added to the linear predictor
# weights = ""                      # a declared column of numbers from 0 on: by what a record's part of every sum is multiplied
# dispersion = "estimate"           # of counts, from released residuals; or a number: variance / mean (poisson), k of mean + k mean^2
# covariance = "auto"               # what standard errors assume: "model", "robust" (any variance), "cluster" (ids of several rows)
# site_effects = "pooled"           # or "fixed": a constant for every party
# event = ""                        # survival: a declared column, 0 or 1, or two categories of which the second is the event (response: the
                                    # time, from 0 to the end of follow-up); then also cuts = [..], the times at which the hazard may change
# prior = []                        # earlier models to which the fit is drawn: { name = "2024", coefficients = { age = 0.02 }, intercept = -1 }
# ridge = 0.0                       # L2 penalty of the mean loss
# fit_intercept = true
# method = "auto"                   # decided before data; "newton", "gradient", "direction" (logistic), "mean"
# tolerate = 0                      # parties that may collude or drop out
# level = 0.95                      # of the intervals
# reference = { ward = "b" }        # the level that the others of a column are compared with; else the first declared one
# coding = "treatment"              # or "sum": levels are compared with the mean of all
# formula = ""                      # what the model is a function of, as "age * ward + log(dose)"; else every declared column as it is""",
    offsets=True,
)
