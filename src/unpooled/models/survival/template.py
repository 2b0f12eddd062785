"""The new study file of a comparison of survival."""

from unpooled.protocol.registry import ROWS, Template

TEMPLATE = Template(
    "Survival of arms: curves with bands, log-rank tests, restricted mean survival and its differences.",
    ROWS,
    "record",
    """\
time = "days"                       # a declared number, from 0 to the end of follow-up
event = "died"                      # a declared column of 0 and 1, or of two categories, the second of which is the event
by = "arm"                          # a declared column of categories: its levels are compared with the first of them
# strata = ""                       # a declared column of categories, inside whose levels arms are compared
# cuts = []                         # ends of intervals before the end of follow-up; else equal ones, in the number that the budget can tell
# horizon = 365.0                   # the end of an interval up to which means are restricted; else the end of follow-up
# tolerate = 0                      # parties that may collude or drop out
# confidence = 0.95                 # of the intervals""",
)
