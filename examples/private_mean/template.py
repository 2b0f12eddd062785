"""The new study file of a mean."""

from unpooled.protocol.template import ROWS, Template

TEMPLATE = Template(
    "The mean of one column.",
    ROWS,
    "record",
    """\
column = "age"                      # a numeric column that every party declares with the same range""",
)
