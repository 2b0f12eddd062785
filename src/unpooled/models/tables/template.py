"""The new study file of a table."""

from unpooled.protocol.registry import ROWS, Template

TEMPLATE = Template(
    "Counts of two columns' levels, tests, odds ratios and risk differences; histograms and quantiles of a number.",
    ROWS,
    "record",
    """\
columns = ["arm", "outcome"]        # the first is compared by the last; columns in between are strata
# cuts = {age = [40, 60]}           # cut points of columns that are numbers, or a number of equally wide bins
# totals = {arm = {control = 500}}  # numbers of rows of levels, over all parties, that are public already
# confidence = 0.95                 # of the intervals""",
)
