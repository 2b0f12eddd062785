"""FINDINGS G1, G2, G6 over every registered model: cut a study after any message, ask in any order, and the ledgers say what was released.

The units, adjacencies and trust modes are all that a model admits. What was released is read off the replies, and what that costs is worked
out in ``unpooled.audit.account`` without the code under test.
"""

from __future__ import annotations

from cases import CASES as CASES

from unpooled.testing.accounts import *

#: Where a study says whom it trusts or how parties compete: every way that the models know. A model without an entry has one way.
WAYS: dict[str, list[dict]] = {
    "pride": [
        {},
        {
            "parameters": {
                "alpha": 1.0,
                "noise_model": "plain",
                "fit_intercept": False,
                "publish": 0.3,
                "response_bound": 9.0,
            }
        },
    ],
    "pride, poisson": [
        {},
        {
            "parameters": {
                "alpha": 1.0,
                "noise_model": "plain",
                "fit_intercept": False,
                "publish": 0.3,
                "response_bound": 9.0,
                "cap": 3.0,
            }
        },
    ],
    "bayes": [{"trust": {"aggregation": mode}} for mode in ("distributed", "trusted", "local")],
    "glm": [{"trust": {"aggregation": mode}} for mode in ("distributed", "trusted", "local")],
    "pls": [{"trust": {"aggregation": mode}} for mode in ("distributed", "trusted", "local")],
    "stacking": [
        {"trust": {"meta": "trusted"}},
        {"trust": {"meta": "perturbed"}},
        {"trust": {"meta": "public-weights"}, "parameters": {"holder": ""}},
    ],
    "lasso": [{}, {"parameters": {"coupling": "blocks"}}, {"parameters": {"refit": 0.0, "fit_intercept": False}}],
}
