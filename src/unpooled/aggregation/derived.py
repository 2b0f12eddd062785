"""A noisy Gram alone gives correlations, principal components, variance inflation, l1-penalised coefficients and smaller models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np

from unpooled.aggregation.meat import Covariance
from unpooled.errors import UsageError, listed
from unpooled.kernels import noisy_gram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.aggregation.coordinates import Coordinates
    from unpooled.aggregation.layout import MomentsLayout

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]


class _Released(Protocol):
    """Released moments, by what a smaller model takes of them (:class:`unpooled.aggregation.moments.Moments`)."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def layout(self) -> MomentsLayout: ...
    @property
    def frame(self) -> Coordinates: ...
    @property
    def gram(self) -> Matrix: ...
    @property
    def variance(self) -> Matrix: ...
    @property
    def covariance(self) -> str: ...


M = TypeVar("M", bound=_Released)


@dataclass(frozen=True, repr=False)
class PrincipalComponents:
    """Directions of standardised columns (a row each), and the share of variance that each explains."""

    components: Matrix
    explained_variance_ratio: Row

    def __repr__(self) -> str:
        shares = [f"{share:.0%}" for share in self.explained_variance_ratio.tolist()]
        return f"PrincipalComponents({len(shares)} directions of {self.components.shape[1]} columns: {listed(shares)} of the variance)"

    def _repr_html_(self) -> str:
        """For notebooks: a row for every direction."""
        rows = "".join(
            f"<tr><td>{share:.1%}</td>{''.join(f'<td>{weight:.3f}</td>' for weight in direction)}</tr>"
            for share, direction in zip(self.explained_variance_ratio.tolist(), self.components.tolist(), strict=True)
        )
        head = "".join(f"<th>column {j}</th>" for j in range(self.components.shape[1]))
        return f"<table><thead><tr><th>variance</th>{head}</tr></thead><tbody>{rows}</tbody></table>"


def centred(gram: Matrix, rows: int, *, intercept: bool) -> Matrix:
    """Covariances of the columns from their second moments, the constant (last, of any length) taken out."""
    if not intercept:
        return np.asarray(gram / rows)
    slopes = gram[:-1, :-1] - np.outer(gram[:-1, -1], gram[:-1, -1]) / gram[-1, -1]
    return np.asarray(slopes / rows)


def correlation(gram: Matrix, variance: Matrix, rows: int, *, intercept: bool) -> Matrix:
    """Return correlations of the columns; the nearest positive semidefinite ones where noise made them impossible."""
    covariance = noisy_gram.psd_part(centred(gram, rows, intercept=intercept))
    level = noisy_gram.noise_level(variance) / rows
    deviation = np.sqrt(np.maximum(covariance.diagonal(), level if level > 0 else 1e-300))
    found = np.clip(covariance / np.outer(deviation, deviation), -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)


def principal_components(correlations: Matrix) -> PrincipalComponents:
    """Return the principal components of standardised columns, the largest first."""
    values, vectors = np.linalg.eigh(correlations)
    values = np.maximum(values[::-1], 0.0)
    return PrincipalComponents(vectors.T[::-1].copy(), values / values.sum())


def inflation(correlations: Matrix) -> Row:
    """VIF: how many times larger the variance of a coefficient is than if its column were unrelated to the others."""
    size = correlations.shape[0]
    least = 1e-8 + max(0.0, -float(np.linalg.eigvalsh(correlations)[0]))
    return np.asarray(np.maximum(np.linalg.inv(correlations + least * np.eye(size)).diagonal(), 1.0))


def lasso(gram: Matrix, cross: Row, penalties: Row, rows: float) -> Row:
    """Argmin |v - Z t|^2 / (2 n) + sum_j penalty_j |t_j| from a positive semidefinite Gram and Z'v, by coordinate descent."""
    t, left = np.zeros(cross.size), cross / rows
    scaled, own = gram / rows, np.maximum(gram.diagonal() / rows, 1e-300)
    size = float(np.abs(cross).max(initial=0.0)) / rows
    for _ in range(10_000):
        moved = 0.0
        for j in range(t.size):
            pull = left[j] + own[j] * t[j]
            new = np.sign(pull) * max(abs(pull) - penalties[j], 0.0) / own[j]
            if new != t[j]:
                left = left - scaled[:, j] * (new - t[j])
                moved = max(moved, abs(new - t[j]) * own[j])
                t[j] = new
        if moved <= 1e-10 * size:
            return t
    raise UsageError("the moments are too noisy for a lasso of so small a penalty: raise alpha")


def lasso_of(moments: _Released, gram: Matrix, cross: Row, alpha: float, rows: float) -> Row:
    """Return l1-penalised coefficients in the moments' coordinates; ``alpha`` is in the data's own units, and the constant is free."""
    penalties = alpha / (moments.frame.widths * moments.frame.response_width)
    if moments.layout.intercept:
        penalties[-1] = 0.0
    return lasso(gram, cross, penalties, rows)


def submodel(moments: M, columns: Sequence[str]) -> M:
    """Return the moments of a model of some of the declared columns alone."""
    layout, d = moments.layout, moments.layout.size
    unknown = [name for name in columns if name not in {c.name for c in layout.features}]
    if unknown or not columns:
        msg = f"a submodel names declared columns ({', '.join(c.name for c in layout.features)}), at least one"
        raise UsageError(msg)
    features = tuple(c for c in layout.features if c.name in set(columns))
    kept = [k for k, at in enumerate(layout.coding.attribute) if layout.features[at].name in set(columns)]
    kept += [d - 1] * layout.intercept
    out = [k for k in range(d) if k not in kept]
    frame = moments.frame
    b, gram, variance = frame.start[out], moments.gram.copy(), moments.variance.copy()
    # The response is what all of ``start`` left: what the columns left out had of it goes back.
    gram[:d, d] += moments.gram[:d, out] @ b
    variance[:d, d] += moments.variance[:d, out] @ b**2
    cross, own = moments.gram[out, d], moments.gram[np.ix_(out, out)]
    squares = frame.squares[0] + 2 * b @ cross + b @ own @ b
    # A symmetric noise N moves b'Nb by the sum of V_jj b_j^4 + 4 sum over pairs of V_jk b_j^2 b_k^2, in variance.
    noise = moments.variance[np.ix_(out, out)] * np.outer(b**2, b**2)
    spread = frame.squares[1] + 4 * moments.variance[out, d] @ b**2 + 2 * noise.sum() - np.trace(noise)
    at = [*kept, d]
    frame = replace(
        frame,
        widths=frame.widths[kept],
        centres=frame.centres[kept],
        start=frame.start[kept],
        squares=(float(squares), float(spread)),
    )
    # Scores of the whole model's residuals say little of a smaller one, whose residuals hold what was left out.
    return replace(
        moments,
        layout=replace(layout, features=features),
        gram=np.ascontiguousarray(gram[np.ix_(at, at)]),
        variance=np.ascontiguousarray(variance[np.ix_(at, at)]),
        standard=frame,
        covariance=Covariance.JOINT if moments.covariance == Covariance.JOINT else Covariance.MODEL,
        meat=None,
    )
