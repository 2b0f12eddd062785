"""unpooled: linear models on data you cannot pool, with differential privacy that is true end to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from unpooled.errors import BudgetWarning as BudgetWarning
    from unpooled.errors import PrivacyLeakWarning as PrivacyLeakWarning
    from unpooled.errors import Refusal as Refusal
    from unpooled.errors import UnpooledError as UnpooledError
    from unpooled.errors import UtilityWarning as UtilityWarning
    from unpooled.models.bayes.estimator import PrivateBayesianRegression as PrivateBayesianRegression
    from unpooled.models.bayes.estimator import PrivateLinearRegression as PrivateLinearRegression
    from unpooled.models.describe.estimator import Description as Description
    from unpooled.models.describe.estimator import describe as describe
    from unpooled.models.describe.outlook import describe_outlook as describe_outlook
    from unpooled.models.diagnose.estimator import Diagnosis as Diagnosis
    from unpooled.models.diagnose.estimator import diagnose as diagnose
    from unpooled.models.glm.estimator import PrivateGLM as PrivateGLM
    from unpooled.models.lasso.estimator import PrivateLasso as PrivateLasso
    from unpooled.models.lasso.estimator import PrivateLassoClassifier as PrivateLassoClassifier
    from unpooled.models.pls.estimator import PrivatePLSRegression as PrivatePLSRegression
    from unpooled.models.pride.estimator import PrideClassifier as PrideClassifier
    from unpooled.models.pride.estimator import PrideGLM as PrideGLM
    from unpooled.models.pride.estimator import PrideRegressor as PrideRegressor
    from unpooled.models.stacking.estimator import PrivateLogisticRegression as PrivateLogisticRegression
    from unpooled.models.stacking.estimator import PrivateStackingClassifier as PrivateStackingClassifier
    from unpooled.privacy.bounds import Bounds as Bounds
    from unpooled.privacy.budget import Budget as Budget
    from unpooled.study.link import link as link
    from unpooled.study.saved import load as load
    from unpooled.study.sources.source import Source as Source

#: Public name -> module that defines it; loaded when first used, so that importing unpooled stays fast.
_HOME = {
    "Bounds": "unpooled.privacy.bounds",
    "Budget": "unpooled.privacy.budget",
    "BudgetWarning": "unpooled.errors",
    "Description": "unpooled.models.describe.estimator",
    "Diagnosis": "unpooled.models.diagnose.estimator",
    "PrideClassifier": "unpooled.models.pride.estimator",
    "PrideGLM": "unpooled.models.pride.estimator",
    "PrideRegressor": "unpooled.models.pride.estimator",
    "PrivacyLeakWarning": "unpooled.errors",
    "PrivateBayesianRegression": "unpooled.models.bayes.estimator",
    "PrivateGLM": "unpooled.models.glm.estimator",
    "PrivateLasso": "unpooled.models.lasso.estimator",
    "PrivateLassoClassifier": "unpooled.models.lasso.estimator",
    "PrivateLinearRegression": "unpooled.models.bayes.estimator",
    "PrivateLogisticRegression": "unpooled.models.stacking.estimator",
    "PrivatePLSRegression": "unpooled.models.pls.estimator",
    "PrivateStackingClassifier": "unpooled.models.stacking.estimator",
    "Refusal": "unpooled.errors",
    "Source": "unpooled.study.sources.source",
    "UnpooledError": "unpooled.errors",
    "UtilityWarning": "unpooled.errors",
    "describe": "unpooled.models.describe.estimator",
    "describe_outlook": "unpooled.models.describe.outlook",
    "diagnose": "unpooled.models.diagnose.estimator",
    "link": "unpooled.study.link",
    "load": "unpooled.study.saved",
}

__all__ = [
    "Bounds",
    "Budget",
    "BudgetWarning",
    "Description",
    "Diagnosis",
    "PrideClassifier",
    "PrideGLM",
    "PrideRegressor",
    "PrivacyLeakWarning",
    "PrivateBayesianRegression",
    "PrivateGLM",
    "PrivateLasso",
    "PrivateLassoClassifier",
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
    "PrivatePLSRegression",
    "PrivateStackingClassifier",
    "Refusal",
    "Source",
    "UnpooledError",
    "UtilityWarning",
    "describe",
    "describe_outlook",
    "diagnose",
    "link",
    "load",
]


def __getattr__(name: str) -> object:
    if name in _HOME:
        import importlib

        return getattr(importlib.import_module(_HOME[name]), name)
    msg = f"module 'unpooled' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
