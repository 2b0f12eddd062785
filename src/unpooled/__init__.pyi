# The public names, once: type checkers read this file, and so does unpooled/__init__.py to find where each name is.

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
from unpooled.models.effects.estimator import TreatmentEffect as TreatmentEffect
from unpooled.models.glm.estimator import PrivateGLM as PrivateGLM
from unpooled.models.lasso.estimator import PrivateLasso as PrivateLasso
from unpooled.models.lasso.estimator import PrivateLassoClassifier as PrivateLassoClassifier
from unpooled.models.pls.estimator import PrivatePLSRegression as PrivatePLSRegression
from unpooled.models.pride.estimator import PrideClassifier as PrideClassifier
from unpooled.models.pride.estimator import PrideGLM as PrideGLM
from unpooled.models.pride.estimator import PrideRegressor as PrideRegressor
from unpooled.models.stacking.estimator import PrivateLogisticRegression as PrivateLogisticRegression
from unpooled.models.stacking.estimator import PrivateStackingClassifier as PrivateStackingClassifier
from unpooled.models.survival.estimator import SurvivalComparison as SurvivalComparison
from unpooled.models.survival.estimator import survival as survival
from unpooled.privacy.bounds import Bounds as Bounds
from unpooled.privacy.budget import Budget as Budget
from unpooled.study.link import link as link
from unpooled.study.meta import MetaAnalysis as MetaAnalysis
from unpooled.study.meta import meta_analysis as meta_analysis
from unpooled.study.saved import load as load
from unpooled.study.several import Study as Study
from unpooled.study.sources.table import Source as Source

__version__: str
from unpooled.models.tables.estimator import Tabulation as Tabulation
from unpooled.models.tables.estimator import tabulate as tabulate
