"""Each published system in one call, with its paper's own settings: ``fit_pride``, ``fit_stacking``, ``fit_bayes``, ``fit_lasso`` and ``fit_pls``.

They return the library's estimators, fitted with ``calibration="published"``, and promise nothing. A setting of the paper may be replaced by name;
a parameter that the paper does not have is refused. The settings stand in the rows of these forms (``SETTINGS`` in this folder), and in the
study files that ``unpooled new MODEL --calibration published`` writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError
from unpooled.models.bayes.estimator import PrivateLinearRegression
from unpooled.models.lasso.estimator import PrivateLasso
from unpooled.models.pls.estimator import PrivatePLSRegression
from unpooled.models.pride.estimator import PrideClassifier, PrideRegressor
from unpooled.models.stacking.estimator import PrivateStackingClassifier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

#: Of the stacking paper's training rows this part chooses the penalty, one of these.
_VALIDATION, PENALTIES = 1 / 3, (1e-4, 1e-3, 1e-2, 1e-1)
#: Compute nodes of the Bayes paper's secure sum, where every record is a client.
_NODES = 3

_PUBLISHED: dict[str, Any] = {"calibration": "published"}


def fit_pride(
    X: ArrayLike,
    y: ArrayLike,
    parties: int | Mapping[str, Sequence[int | str]] = 2,
    *,
    epsilon: float = 1.0,
    classes: Sequence[object] | None = None,
    **settings: Any,  # noqa: ANN401 - parameters of the estimator
) -> PrideRegressor | PrideClassifier:
    """Fit PRIDE (Heinze-Deml et al. 2017) as printed: ridge regression, or with ``classes`` logistic regression, of columns at several parties.

    Ranges are read off the rows, as the paper reads its theta, unless ``bounds`` declares them.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import papers
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 40))
    >>> model = papers.fit_pride(X, X[:, 0] + X[:, 30], epsilon=10.0, random_state=0)
    >>> model.plan_.study.delta, model.plan_.study.parameters["alpha"], model.plan_.statement.holds
    (0.05, 'global-cv', False)

    """
    if classes is None:
        return PrideRegressor(parties, epsilon=epsilon, **_PUBLISHED, **settings).fit(X, y)
    return PrideClassifier(parties, epsilon=epsilon, classes=classes, **_PUBLISHED, **settings).fit(X, y)


def fit_stacking(
    X: ArrayLike,
    y: ArrayLike,
    parties: int | Mapping[str, Sequence[int | str]] = 5,
    *,
    epsilon: float = 1.0,
    classes: Sequence[object] | None = None,
    penalty: float | None = None,
    public_seed: int = 0,
    **settings: Any,  # noqa: ANN401 - parameters of the estimator
) -> PrivateStackingClassifier:
    """Fit the stack of Yao et al. (2019) as printed: PST-F, and with ``split="samples"`` PST-S.

    The penalty is the one of 1e-4 to 1e-1 with the best area under the curve on a validation set, a third of the rows, as in the paper; ``penalty``
    names one instead, and all rows are fitted. ``classes`` are the two labels, by default those of ``y``.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import papers
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (3000, 6))
    >>> model = papers.fit_stacking(X, X[:, 0] > X[:, 5], 3, epsilon=3.0, bounds=(-1, 1), random_state=0)
    >>> len(model.models_), model.high_.size, model.plan_.statement.holds
    (3, 3, False)

    """
    from sklearn.metrics import roc_auc_score

    labels = np.unique(np.asarray(y)) if classes is None else np.asarray(classes)
    if labels.size != 2:  # noqa: PLR2004
        raise UsageError("the paper has two classes")
    given = {"epsilon": epsilon, "classes": labels.tolist(), "public_seed": public_seed, **_PUBLISHED, **settings}
    if penalty is not None:
        return PrivateStackingClassifier(parties, penalty=penalty, **given).fit(X, y)
    rows, responses = np.asarray(X), np.asarray(y)
    order = np.random.default_rng(public_seed).permutation(responses.size)
    held, kept = np.split(order, [round(responses.size * _VALIDATION)])
    tried = [PrivateStackingClassifier(parties, penalty=one, **given).fit(rows[kept], responses[kept]) for one in PENALTIES]
    second = responses[held] == tried[0].classes_[1]
    return max(tried, key=lambda model: float(roc_auc_score(second, model.decision_function(rows[held]))))


def fit_bayes(
    X: ArrayLike,
    y: ArrayLike,
    sites: Sequence[object] | None = None,
    *,
    epsilon: float = 1.0,
    **settings: Any,  # noqa: ANN401 - parameters of the estimator
) -> PrivateLinearRegression:
    """Fit the Bayesian regression of Heikkila et al. (2017) as their supplement and program have it.

    Without ``sites`` every record is a client (N = n), and three of them add up the fragments of the secure sum. The paper assumes that every column
    has mean zero: centre them.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import papers
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (30, 2))
    >>> model = papers.fit_bayes(X, X[:, 0], epsilon=5.0, bounds=(-1, 1), y_bounds=(-1, 1), random_state=0)
    >>> len(model.plan_.study.parties), model.plan_.design.parameters.projection, model.plan_.statement.holds
    (30, 0.3, False)

    """
    if sites is None:
        count = np.asarray(y).size
        sites = [f"client{k:0{len(str(count))}d}" for k in range(count)]
        settings = {"nodes": sites[:_NODES]} | settings
    return PrivateLinearRegression(epsilon=epsilon, **_PUBLISHED, **settings).fit(X, y, sites)


def fit_lasso(
    X: ArrayLike,
    y: ArrayLike,
    parties: int | Mapping[str, Sequence[int | str]] = 2,
    *,
    radius: float = 1.0,
    epsilon: float = 1.0,
    **settings: Any,  # noqa: ANN401 - parameters of the estimator
) -> PrivateLasso:
    """Fit the LASSO of Lou and Cheung (2018) as printed, Algorithm 2; ``radius`` is its eta, in units of the response.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import papers
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (500, 12))
    >>> model = papers.fit_lasso(X, X[:, 3], 3, epsilon=5.0, bounds=(-1, 1), y_bounds=(-1, 1), random_state=0)
    >>> model.coef_.shape, model.plan_.statement.holds
    ((12,), False)

    """
    return PrivateLasso(parties, radius=radius, epsilon=epsilon, **_PUBLISHED, **settings).fit(X, y)


def fit_pls(
    X: ArrayLike,
    y: ArrayLike,
    sites: Sequence[object] | None = None,
    *,
    n_components: int | None = None,
    epsilon: float = 1.0,
    **settings: Any,  # noqa: ANN401 - parameters of the estimator
) -> PrivatePLSRegression:
    """Fit edPLS (Nikzad-Langerodi et al. 2024) as printed; the rows of ``sites`` go to a provider that all of them trust.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import papers
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 20))
    >>> model = papers.fit_pls(X, X[:, 0], n_components=3, epsilon=100.0, random_state=0)
    >>> model.coef_.shape, model.plan_.study.delta, model.plan_.statement.holds
    ((20,), 0.01, False)

    """
    chosen: dict[str, Any] = {} if n_components is None else {"n_components": n_components}
    return PrivatePLSRegression(epsilon=epsilon, **chosen, **_PUBLISHED, **settings).fit(X, y, sites)
