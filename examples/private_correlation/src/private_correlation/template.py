"""The new study file of a correlation."""

from unpooled.protocol.registry import ROWS, Template

TEMPLATE = Template(
    "The correlation of two columns.",
    ROWS,
    "record",
    """\
columns = ["age", "pressure"]       # two numeric columns that every party declares with the same ranges""",
)
