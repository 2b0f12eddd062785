"""The new study file of PRIDE."""

from unpooled.protocol.registry import COLUMNS, Template

TEMPLATE = Template(
    "Ridge, logistic or another generalised linear regression; each party keeps its own coefficients.",
    COLUMNS,
    "attribute",
    """\
response = "y"                      # a label column of every party that estimates, under `labels` in its party file
# task = "regression"               # or "classification", with classes = ["-1", "1"]
# family = "squared"                # or huber, quantile, poisson, gamma, negative-binomial, cox (with event), logistic, multinomial, ordinal
# sketch_dim = "auto"               # what a party sends: columns of its sketch; 0 sends nothing
# alpha = "marginal-likelihood"     # the penalty; "local-cv", or a number
# fit_intercept = true
# prior = []                        # earlier models to which the fit is drawn: { name = "2024", coefficients = { age = 0.6 } }""",
)
