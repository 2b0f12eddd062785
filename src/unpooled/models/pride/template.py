"""The new study files of PRIDE: the sound form, and the form as published at the settings of the paper."""

from unpooled.protocol.template import COLUMNS, Template

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
# fit_intercept = true""",
)

#: The paper's own study.
PUBLISHED_TEMPLATE = Template(
    "PRIDE as printed: sketches with the noise of Theorem 1, and dual coordinate ascent at every party. It protects nobody (THEORY.md, section 3).",
    COLUMNS,
    "attribute",
    """\
response = "y"                      # a label column of every party that estimates, under `labels` in its party file
alpha = "global-cv"                 # the paper's penalty, by cross-validation over all parties; also "local-cv", or a number
folds = 5
noise_model = "plain"               # the sketches as they arrive, as in the paper; also "calibrated", "gram"
sketch_dim = 0.05                   # columns of a sketch as a part of the party's: 0.01 to 0.2 in the paper
# task = "regression"               # or "classification", with classes = ["-1", "1"] and a number alpha
# classes = ["-1", "1"]
# family = ""                       # "squared", "huber" or "logistic"; without it what task says
# loss = ""                         # the older name of family
# threshold = 1.345                 # of Huber's loss, in units of the response; without it robust deviations choose
# fit_intercept = true
# others = "like mine"              # for noise_model = "gram"
# public = []                       # columns that are sent as they are
# sketch, grids, matrices, clip_norm, publish, response_bound, fitted, predicting, event, quantile, dispersion and cap are not for this form""",
    delta=0.05,
    calibration="published",
    trust='cross-validation = "trusted"',
)
