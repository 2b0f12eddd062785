"""The new study file of a correlation."""

from unpooled.protocol.template import ROWS, Template

TEMPLATE = Template(
    "The correlation of two columns.",
    ROWS,
    "record",
    """\
columns = ["age", "pressure"]       # two numeric columns that every party declares with the same ranges""",
)
