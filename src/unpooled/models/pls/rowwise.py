"""``RowWise``: preprocessing in front of a private model that provably treats every spectrum by itself, or is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

#: Rows that are transformed one by one to see whether they depend on their neighbours.
_TRIED = 16


class RowWise(TransformerMixin, BaseEstimator):
    """A transformer that must not learn from the data it is fitted to, for a pipeline with a private model at its end.

    What learns from all spectra (their mean, say) makes every row depend on every other, and no bound on a row survives that. With
    ``public`` spectra the transformer learns from those alone. Without them it is refused if two halves of the data teach it different
    things; in both cases it is refused if a spectrum is transformed otherwise alone than among others.

    Parameters
    ----------
    transformer : a scikit-learn transformer
    public : array, optional
        Public spectra that it may learn from.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from unpooled.models.pls.rowwise import RowWise
    >>> X = np.random.default_rng(0).normal(size=(20, 5))
    >>> RowWise(StandardScaler()).fit(X)
    Traceback (most recent call last):
    unpooled.errors.UsageError: StandardScaler learns from the data it is fitted to: pass public=, spectra that it may learn from
    >>> RowWise(StandardScaler(), public=np.eye(5)).fit_transform(X).shape
    (20, 5)

    """

    def __init__(self, transformer: Any, public: ArrayLike | None = None) -> None:  # noqa: ANN401 - any transformer
        self.transformer = transformer
        self.public = public

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:  # noqa: ARG002 - scikit-learn's signature
        """Fit to the public spectra, or make sure that there is nothing to learn."""
        rows = np.asarray(validate_data(self, X, dtype=np.float64, ensure_min_samples=2))
        name = type(self.transformer).__name__
        self.transformer_ = clone(self.transformer).fit(rows[::2] if self.public is None else np.asarray(self.public))
        whole = np.asarray(self.transformer_.transform(rows))
        if self.public is None:
            other = np.asarray(clone(self.transformer).fit(rows[1::2]).transform(rows))
            if not _equal(whole, other):
                msg = f"{name} learns from the data it is fitted to: pass public=, spectra that it may learn from"
                raise UsageError(msg)
        tried = range(min(_TRIED, rows.shape[0]))
        if not all(_equal(whole[i : i + 1], np.asarray(self.transformer_.transform(rows[i : i + 1]))) for i in tried):
            msg = f"{name} transforms a spectrum otherwise alone than among others: use one that treats each by itself"
            raise UsageError(msg)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return each row by itself."""
        check_is_fitted(self)
        return np.asarray(self.transformer_.transform(np.asarray(validate_data(self, X, dtype=np.float64, reset=False))))


def _equal(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    return one.shape == other.shape and bool(
        np.allclose(one, other, rtol=1e-9, atol=1e-12 * float(np.abs(one).max(initial=1.0)))
    )
