"""The new study file of counts, means and standard deviations."""

from unpooled.protocol.registry import COLUMNS, ROWS, Template

_JOINED = Template(
    "Means and deviations of columns at several parties, and correlations of all of them, from joint second moments.",
    COLUMNS,
    "record",
    """\
split = "columns"                   # the parties hold columns of the same people
# confidence = 0.95                 # of the intervals
# check = "proof"                   # every party proves that its masked rows are short; "none" needs policies with joint = "trusting"
# tolerate = 0                      # members that may know each other's noise, or stay silent about their own""",
)

TEMPLATE = Template(
    "Counts, means and standard deviations, per party and pooled.",
    ROWS,
    "record",
    """\
# columns = ["age", "smoker"]       # default: all that the first party declares
# by = "arm"                        # describe the other columns apart for every level of this one, and compare the levels
# confidence = 0.95                 # of the intervals""",
    with_helpers=_JOINED,
)
