"""The new study file of stacks of classifiers."""

from unpooled.protocol.registry import Template

TEMPLATE = Template(
    "Private logistic regression: a stack of the parties' models.",
    "columns of the same people, or rows of different people (split)",
    "record",
    """\
response = "y"                      # every party's own label column, under `labels` in its party file
classes = ["-1", "1"]               # the labels, as they stand in the data: two, or more
split = "features"                  # "features": columns of the same people; "samples": rows of different people
# multi_class = "multinomial"       # more than two classes: together, or "one-vs-rest"
# fit_intercept = true
# penalty = "auto"                  # lambda of the mean loss, or a number
# noise = "auto"                    # law of the perturbation: "gamma" (pure epsilon), or "gaussian" (needs a delta)
# rows = "shorten"                  # longer rows are shortened to the norm; "unit": every row is scaled to it
# parts = "auto"                    # columns split: a part longer than its share of a row is shortened ("shorten"), or multiplied by it ("scale")
# norm = 1.0                        # bound on a centred row of one party; without it what the ranges allow
# importance = {}                   # columns split: a public number for every party; missing ones are 1, 0 leaves a party out
# ranks = []                        # columns split: falling importance that is given out by noisy rank, in the place of importance
# ranking_share = 0.1               # part of the budget that pays for these ranks
# probabilities_share = 0.6         # columns split, two classes, log odds, a delta: part of the budget that makes probabilities of scores
# holder = ""                       # the party that learns the high-level model ([trust] meta = "trusted", or rows split)
# high_share = 0.2                  # columns split: part of the rows that the high-level model learns from
# predictions_share = 0.5           # part of those rows' epsilon that noisy predictions cost ([trust] meta = "perturbed")
# prior = {}                        # released weights of an earlier model for a party, to which the penalty pulls
# combiner = "auto"                 # new rows: "probability", "majority", "weighted-majority" or "log-odds"
# rates = 0.5                       # public rate of the second class, or a list of all rates; without it equal rates
# formula = ""                      # rows split: what the models are functions of, as "age * ward + log(dose)"; else every declared column as it is""",
    beside_formula=(('split = "features"', 'split = "samples"'),),
)
