"""The new study file of counts, means and standard deviations."""

from unpooled.protocol.template import ROWS, Template

TEMPLATE = Template(
    "Counts, means and standard deviations, per party and pooled.",
    ROWS,
    "record",
    """\
# columns = ["age", "smoker"]       # default: all that the first party declares
# confidence = 0.95                 # of the intervals""",
)
