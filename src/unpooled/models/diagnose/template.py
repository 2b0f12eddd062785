"""The new study file of a diagnosis."""

from unpooled.protocol.registry import ROWS, Template

TEMPLATE = Template(
    "How well a released model fits: ROC, calibration or residuals, from one histogram over public cells.",
    ROWS,
    "record",
    """\
response = "y"                      # a declared column: two categories, or a range
coefficients = {}                   # a number for every column (or category), as `unpooled result --csv` prints them
cuts = [0.0]                        # rising cuts of the linear predictor, fixed before anybody looks
# intercept = 0.0
residual_cuts = [-1.0, 0.0, 1.0]    # of a number: rising cuts of its residuals; of two categories: []
# link = "identity"                 # "log", or "logistic" for two categories""",
)
