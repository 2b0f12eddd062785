"""The new study file of partial least squares."""

from unpooled.protocol.registry import ROWS, Template

TEMPLATE = Template(
    "Partial least squares on spectra, in a public basis.",
    ROWS,
    "record",
    """\
response = "y"                      # a declared column; every other one is a channel, in the order of the cards
# basis = "dct"                     # "bspline", "none", or "matrix" with matrix = [...]
# basis_size = 20
# norm = 1.0                        # bound on the length of a projected row; without it what the ranges allow, which is far too much
# n_components = "cv"               # or a number
# prior = []                        # earlier models of spectra to which the fit is drawn: { name = "2024", coefficients = { nm1100 = 0.2 }, intercept = 9 }
# method = "auto"                   # decided before data; "moments": one release, "gradient", "direction" or (of one response) "refinement": rounds""",
)
