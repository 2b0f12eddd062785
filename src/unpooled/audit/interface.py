"""Interface of estimators and results after ``fit``, attribute by attribute: public, released, kept by a party, or keyed.

A table, because silence is no answer: an attribute that nobody has classified fails ``tests/audit/test_interface.py``, and so does one that is
not what it is called. The test hands an estimator the recorded messages of other data. Whatever is public or released must come out the
same, bit for bit: it is a function of what left the parties.
"""

from __future__ import annotations

from enum import StrEnum


class Shown(StrEnum):
    """The data that an attribute is a function of."""

    #: Of what was declared: parameters, bounds, numbers of rows and columns, lengths of messages.
    PUBLIC = "public"
    #: Of what was released with noise, and of what is public.
    RELEASED = "released"
    #: Of a party's data as they are. Nobody but this party has it; where one process plays all parties, whoever holds the estimator has it.
    KEPT = "kept by a party"
    #: Public but for digests of the data under a party's secret key, which tell nothing without it.
    KEYED = "keyed"


#: What every estimator has.
EVERYWHERE: dict[str, Shown] = {
    "arguments": Shown.PUBLIC,
    "n_features_in_": Shown.PUBLIC,
    "feature_names_in_": Shown.PUBLIC,
    "classes_": Shown.PUBLIC,
    "plan_": Shown.PUBLIC,
    "statement_": Shown.PUBLIC,
    "communication_": Shown.PUBLIC,
    "declared_columns": Shown.PUBLIC,
    "ledger_": Shown.KEYED,
    "origins": Shown.KEYED,
}

#: Coefficients of PRIDE stay at the parties.
_PRIDE = {
    "coef_": Shown.KEPT,
    "intercept_": Shown.KEPT,
    "alpha_": Shown.KEPT,
    "duality_gap_": Shown.KEPT,
    "reliability_": Shown.KEPT,
    "drawn_": Shown.KEPT,
    "kept_": Shown.KEPT,
    "published_": Shown.RELEASED,
}

#: What each has beside that. PRIDE's coefficients stay at the parties: its estimator shows what they keep.
OWN: dict[str, dict[str, Shown]] = {
    "PrideRegressor": _PRIDE,
    "PrideClassifier": _PRIDE,
    "PrideGLM": _PRIDE,
    "PrivateLinearRegression": {
        "coef_": Shown.RELEASED,
        "intercept_": Shown.RELEASED,
        "covariance_": Shown.RELEASED,
        "noise_variance_": Shown.RELEASED,
        "focused_": Shown.RELEASED,
        "drawn_": Shown.RELEASED,
        "projection_": Shown.PUBLIC,
        "method_": Shown.PUBLIC,
    },
    "PrivateGLM": {
        "coef_": Shown.RELEASED,
        "intercept_": Shown.RELEASED,
        "dispersion_": Shown.RELEASED,
        "drawn_": Shown.RELEASED,
        "method_": Shown.PUBLIC,
        "shifted_by": Shown.PUBLIC,
    },
    "PrivateLasso": {
        "coef_": Shown.RELEASED,
        "intercept_": Shown.RELEASED,
        "sparse_coef_": Shown.RELEASED,
        "drawn_": Shown.RELEASED,
        "dual_gap_": Shown.RELEASED,
        "n_iter_": Shown.PUBLIC,
        "moments_": Shown.RELEASED,
        "path_": Shown.RELEASED,
        "shared_": Shown.RELEASED,
    },
    "PrivateLassoClassifier": {
        "coef_": Shown.RELEASED,
        "drawn_": Shown.RELEASED,
        "intercept_": Shown.RELEASED,
        "moments_": Shown.RELEASED,
        "shared_": Shown.RELEASED,
    },
    "PrivatePLSRegression": {
        "coef_": Shown.RELEASED,
        "intercept_": Shown.RELEASED,
        "drawn_": Shown.RELEASED,
        "fallback_": Shown.RELEASED,
        "method_": Shown.PUBLIC,
        "moments_": Shown.RELEASED,
        "n_components_": Shown.RELEASED,
        "x_loadings_": Shown.RELEASED,
        "x_mean_": Shown.RELEASED,
        "x_rotations_": Shown.RELEASED,
        "x_weights_": Shown.RELEASED,
        "y_loadings_": Shown.RELEASED,
    },
    "PrivateLogisticRegression": {
        "coef_": Shown.RELEASED,
        "intercept_": Shown.RELEASED,
        "method_": Shown.PUBLIC,
        "released_": Shown.RELEASED,
    },
    "PrivateStackingClassifier": {
        "calibrated_": Shown.RELEASED,
        "high_": Shown.RELEASED,
        "models_": Shown.RELEASED,
        "released_": Shown.RELEASED,
    },
    "Description": {
        "summaries_": Shown.RELEASED,
    },
    "JointDescription": {
        "summaries_": Shown.RELEASED,
        "correlations_": Shown.RELEASED,
        "still_": Shown.RELEASED,
    },
    "ArmsDescription": {"table_": Shown.RELEASED},
    "SurvivalComparison": {"result_": Shown.RELEASED},
    "TreatmentEffect": {"result_": Shown.RELEASED, "effect_": Shown.RELEASED, "drawn_": Shown.RELEASED},
    "Tabulation": {
        "table_": Shown.RELEASED,
        "terms": Shown.RELEASED,
    },
    "Diagnosis": {
        "cells_": Shown.RELEASED,
        "auc": Shown.RELEASED,
        "roc": Shown.RELEASED,
        "calibration_test": Shown.RELEASED,
        "by_cell": Shown.RELEASED,
    },
}

__all__ = ["EVERYWHERE", "OWN", "Shown"]
