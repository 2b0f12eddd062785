"""The new study files of partial least squares: the sound form, and the form as published at the settings of the paper."""

from unpooled.protocol.template import ROWS, Template

TEMPLATE = Template(
    "Partial least squares on spectra, from one release in a public basis.",
    ROWS,
    "record",
    """\
response = "y"                      # a declared column; every other one is a channel, in the order of the cards
# basis = "dct"                     # "bspline", "none", or "matrix" with matrix = [...]
# basis_size = 20
# norm = 1.0                        # bound on the length of a projected row; without it what the ranges allow, which is far too much
# n_components = "cv"               # or a number""",
)

#: The paper's own study.
PUBLISHED_TEMPLATE = Template(
    "edPLS as printed (Algorithm 1): one data holder publishes a whole model. It protects nobody (THEORY.md, section 4).",
    "rows of different people; the paper's algorithm has one data holder",
    "record",
    """\
response = "y"                      # a declared column; every other one is a channel, in the order of the card
basis = "none"                      # the paper has no public basis
n_components = 10                   # a number: 10 latent variables on the corn data
sd = "sigma"                        # noise as printed; "sigma^2": as the authors' package draws it
# basis_size, matrix, reference, norm, tolerate and nodes are not for this form""",
    delta=0.01,
    calibration="published",
    cards=("first.card.toml",),
)
