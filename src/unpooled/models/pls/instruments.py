"""Calibrations moved to a second instrument, from released moments (THEORY.md, section 8), and what two releases promise together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError
from unpooled.estimation.base import LinearRegressor
from unpooled.estimation.parameters import (
    NONE,
    NUMBER,
    WHOLE,
    WORD,
    check,
)
from unpooled.kernels.noisy import noise_covariance, noise_level, psd_part
from unpooled.kernels.pls import Centred, Components, domain_pls, kernel_pls, relaxed
from unpooled.linear.moments import Moments
from unpooled.models.pls.components import (
    CONSTANT,
    NOISE,
    RIDGE,
    MomentsNoise,
    PlsFit,
    ResponseMoments,
    about_means,
    estimated_errors,
    first,
    folded,
    heard,
    most_components,
    nothing,
    repaired,
    sized,
)
from unpooled.models.pls.declared import CHOSEN
from unpooled.models.pls.fit import stored
from unpooled.models.pls.spectra import Frame
from unpooled.privacy.exposure import account
from unpooled.privacy.origin import SAME, ReleasedInput, by_draw, origins_of, sourced
from unpooled.privacy.unit import Unit
from unpooled.schedules import table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.linear.layout import MomentsLayout
    from unpooled.models.pls.fit import StoredModel

    Matrix = NDArray[np.float64]


# --- Models of two domains -------------------------------------------------------------------------------------------------
# Calibrations moved to a second instrument: domain-invariant PLS and direct standardisation, from released moments (THEORY.md, section 8).

#: Penalties that are tried, as multiples of y'y over the largest eigenvalue of the difference of covariances.
PENALTIES = table("pls").several("penalties")
#: Ridges that are tried, as parts of the largest eigenvalue of the Gram.
RIDGES = tuple(np.geomspace(1e-10, 1e2, 49).tolist())
#: Where the constant of a transferred model comes from.
TARGET, SOURCE, RESPONSES = "target", "source", "responses"


@dataclass(frozen=True)
class _Heard:
    """The source as it is believed: moments whose Gram is repaired and whose cross vector is that of the believed slopes."""

    found: ResponseMoments
    believed: Centred

    @classmethod
    def of(cls, moments: Moments) -> _Heard:
        found = heard(one_release(moments), CHOSEN)
        centred = found.centred
        if found.slopes is None or found.noise is None:
            return cls(found, centred)
        gram = repaired(centred.gram, found.noise)
        cross = gram @ found.slopes
        return cls(found, replace(centred, gram=gram, cross=cross, square=max(centred.square, float(found.slopes @ cross))))

    def errors(self, components: Components) -> Matrix:
        """Return the mean squared error on new rows of the source, up to a constant, for every number of components."""
        believed, b = self.believed, components.coefficients
        count = b.shape[1]
        if self.found.slopes is None:
            squares = estimated_errors(components, count, believed.gram, believed.gram, believed, None)
        else:
            left = b - self.found.slopes[:, None]
            squares = np.einsum("ik,ik->k", left, believed.gram @ left)
        return squares / believed.rows


def one_release(moments: Moments) -> Moments:
    """Refuse moments of rounds, whose rows are standardised and shortened by what the same data said."""
    if moments.frame.refined:
        raise UsageError('a transfer needs the moments of one release: fit with method="moments"')
    return moments


def alike(source: MomentsLayout, target: MomentsLayout) -> None:
    """Refuse moments of two domains in other coordinates."""
    if source.size != target.size:
        msg = f"the source has {source.size - 1} coordinates and the target {target.size - 1}: give both the same basis"
        raise UsageError(msg)
    if source.norm != target.norm or any(
        not np.array_equal(one, other)
        for one, other in ((source.half_widths, target.half_widths), (source.centres, target.centres))
    ):
        raise UsageError(
            "the bounds of source and target differ: rows that are clipped otherwise have other covariances. Declare the same"
        )


def adapted(
    source: Moments, target: Moments, frame: Frame, n_components: int | str, penalty: float | str, centre: str
) -> PlsFit:
    """Return domain-invariant PLS of a source with responses and a target's spectra.

    Of several penalties and numbers of components it takes those with the least source error plus b'|D|b, |D| the relaxed difference of the
    covariances: a bound on the error in the target as far as variances of predictions differ.
    """
    other, noise = about_means(one_release(target))
    alike(source.layout, target.layout)
    own = _Heard.of(source)
    believed, found = own.believed, own.found
    sized(believed, frame)
    spread, level = other.gram, 0.0
    if noise.gram.any():
        spread = repaired(spread, noise)
    quiet = found.noise is None and not noise.gram.any()
    if not quiet:
        known = np.zeros_like(noise.gram) if found.noise is None else found.noise.gram
        level = noise_level(known / believed.rows**2 + noise.gram / other.rows**2)
    mean, response = _centre(own, other, centre)
    centred = replace(believed, mean=mean)
    if not believed.cross.any():
        return nothing(centred, frame, response, CONSTANT if found.slopes is None else NOISE)
    apart = relaxed(believed.gram / believed.rows - spread / other.rows, level)
    largest = float(np.linalg.norm(apart, 2))
    unit = believed.square / largest if largest > 0 else 0.0
    tried = sorted({part * unit for part in PENALTIES}) if isinstance(penalty, str) else [float(penalty)]
    most = most_components(n_components, frame.size, believed.rows)
    best: tuple[float, Components] | None = None
    for each in tried:
        components = domain_pls(believed, spread, other.rows, each, most, level)
        kept = max(int(np.count_nonzero(components.y_loadings)), 1)
        components = first(components, kept)
        b = components.coefficients
        bounds = own.errors(components) + np.einsum("ik,ik->k", b, apart @ b)
        k = int(bounds.argmin()) if n_components == CHOSEN else kept - 1
        if best is None or bounds[k] < best[0]:
            best = float(bounds[k]), first(components, k + 1)
    assert best is not None
    components = best[1]
    return folded(components, components.coefficients[:, -1], centred, frame, response)


def _centre(own: _Heard, other: Centred, centre: str) -> tuple[Matrix, float]:
    """Return the mean spectrum (in coordinates) and the response that the constant makes go together."""
    if centre == SOURCE:
        return own.believed.mean, own.found.response
    return other.mean, other.response if centre == RESPONSES else own.found.response


def standardised(
    pairs: Centred, noise: MomentsNoise | None, start: Matrix, frame: Frame, n_components: int, ridge: float | None
) -> PlsFit:
    """Return the source's model carried to the target by paired samples: the coefficients F b of direct standardisation.

    ``pairs`` are moments of the target's spectra (in coordinates) and of the source model's predictions for the same samples on the source's
    instrument. F b is the ridge regression of one on the other, so no more of F is needed. It is shrunk toward ``start``: the source's own
    coefficients where both instruments have the same channels, as instruments that are alike have nearly F = I.
    """
    size, rows = sized(pairs, frame), pairs.rows
    gram = pairs.gram if noise is None else psd_part(pairs.gram)
    cross = pairs.cross - gram @ start
    square = max(pairs.square - 2 * float(pairs.cross @ start) + float(start @ gram @ start), 0.0)
    values, vectors = np.linalg.eigh(gram)
    values, turned = np.maximum(values, 0.0), vectors.T @ cross
    # Without noise, what eigenvalues of rounding size say is nothing.
    floor = values[-1] * 1e-12 if noise is None else RIDGE * noise_level(noise.gram)
    if ridge is None:
        ridge = _ridge(values, turned, square, rows, floor, lambda b: _met(start + vectors @ b, vectors, noise))
    solved = np.divide(
        turned, values + ridge, out=np.zeros(size), where=values > floor if ridge == 0 else values + ridge > 0
    )
    wanted = start + vectors @ solved
    kept = gram if noise is None else repaired(pairs.gram, noise)
    components = kernel_pls(kept, kept @ wanted, min(n_components, size, max(rows - 1, 1)))
    components = first(components, int(np.count_nonzero(components.y_loadings)))
    return folded(components, wanted, pairs, frame, pairs.response, "" if wanted.any() else CONSTANT)


def _met(coefficients: Matrix, vectors: Matrix, noise: MomentsNoise | None) -> Matrix | None:
    """Return the variances that noise gives to cross moments with what these coefficients leave, along these vectors."""
    if noise is None:
        return None
    covariance = noise_covariance(np.outer(coefficients, coefficients), noise.gram, noise.cross)
    return np.asarray(np.einsum("ij,ij->j", vectors, covariance @ vectors))


def _ridge(
    values: Matrix, turned: Matrix, square: float, rows: int, floor: float, met: Callable[[Matrix], Matrix | None]
) -> float:
    """Return the ridge with the least estimated error of predictions.

    Without noise by generalised cross-validation. With noise, of variances ``met`` in the cross moments with what coefficients leave, by the criterion of
    section 3: its optimism, and that of sampling by the size of the response itself.
    """
    best, found = np.inf, float("inf")
    for part in (*RIDGES, np.inf):
        each = floor + part * float(values[-1])
        weights = 1 / (values + each) if np.isfinite(each) else np.zeros_like(values)
        slopes = turned * weights
        left = square - 2 * float(turned @ slopes) + float(slopes**2 @ values)
        free, variances = float(values @ weights) + 1, met(slopes)
        if variances is None:
            error = max(left, 0.0) / max(1 - free / rows, 1e-3) ** 2
        else:
            error = left + 2 * float(variances @ weights) + 2 * free * square / rows
        if error < best:
            best, found = error, each
    return found


# --- Two releases together -------------------------------------------------------------------------------------------------
# The promise of a model that is computed from the releases of two domains: each domain's people keep their own, and both add up.


@dataclass(frozen=True)
class DomainRelease:
    """The release of one domain that a transferred model rests on, and its plan."""

    #: In words: "the source", "the target".
    domain: str
    #: What was released, in words.
    released: str
    rows: int
    #: The plan of the release after those of its own public inputs.
    origins: tuple[ReleasedInput, ...]
    unit: str = Unit.RECORD
    #: The delta of the plan; 0 where only moments are at hand, which do not hold it.
    delta: float = 0.0

    @classmethod
    def of(cls, domain: str, released: str, moments: Moments, plan: Any = None) -> Self:  # noqa: ANN401 - a plan of any design
        """Return the release of moments, by their plan where it is at hand."""
        if plan is None:
            return cls(domain, released, moments.rows, moments.origins)
        return cls(domain, released, moments.rows, moments.origins, str(plan.study.unit), plan.study.delta)

    @property
    def holds(self) -> bool:
        """Return True if nothing behind this release is without a promise."""
        return not any(origin.voids for origin in self.origins)

    def __str__(self) -> str:
        cost = together((self,))
        said = "no guarantee holds for that release"
        if self.holds:
            said = (
                "its own statement holds the promise"
                if cost is None
                else f"{_number(cost)} for a {self.unit} of {self.domain}"
            )
        return f"{self.domain} released {self.released} of {self.rows} rows (plan {self.origins[-1].plan[:12]}): {said}."


@dataclass(frozen=True)
class TwoReleases:
    """The releases that a transferred model rests on. It adds none: a function of what was released costs nothing more (Theorem C.7)."""

    releases: tuple[DomainRelease, ...]
    #: What else the model was computed from, in words: public pairs.
    public: str = ""

    @property
    def holds(self) -> bool:
        """Return True if the promise of every release holds: no part of the model is then without one."""
        return all(release.holds for release in self.releases)

    @property
    def origins(self) -> tuple[ReleasedInput, ...]:
        """Return every release behind the model, each once: the fits, then their public inputs."""
        return origins_of(*(sourced((), release.origins[-1:] + release.origins[:-1]) for release in self.releases))

    @property
    def epsilon(self) -> float | None:
        """Return the composed epsilon of somebody who is in every domain, at :attr:`delta`; None where a release does not say what it cost."""
        return together(self.releases)

    @property
    def delta(self) -> float:
        """Return the delta at which costs are composed: the largest of the releases'."""
        return max(release.delta for release in self.releases)

    def __str__(self) -> str:
        lines = [
            "This model is computed from what was released before. It is post-processing, and costs nobody anything more."
        ]
        lines += [str(release)[:1].upper() + str(release)[1:] for release in self.releases]
        lines += [self.public] if self.public else []
        if len(self.releases) > 1:
            lines += ["Everybody is protected by the promise of the domain that holds their rows."]
            cost = self.epsilon
            price = "" if cost is None or not self.holds else f": {_number(cost)} at delta = {self.delta:g}"
            lines.append(f"Somebody with rows in both domains pays for both, and the costs compose{price}.")
        if not self.holds:
            lines.append("No guarantee holds for the model: at least one of the releases behind it has none.")
        return "\n".join(lines)


def together(releases: tuple[DomainRelease, ...]) -> float | None:
    """Return the epsilon of one unit that is in all of these releases; None where one does not say what it cost, or has another unit."""
    origins = TwoReleases(releases).origins
    if not all(release.holds for release in releases):
        return math.inf
    if len({release.unit for release in releases}) > 1 or not all(
        origin.events for origin in origins if origin.rows == SAME
    ):
        return None
    unit = Unit(releases[0].unit)
    parts = {draw: found for draw, origin in by_draw(origins).items() if (found := origin.parts(unit))}
    return float(account(list(parts.values())).epsilon(max(release.delta for release in releases)))


def _number(epsilon: float) -> str:
    return f"epsilon = {epsilon:.4g}"


# --- Transfers -------------------------------------------------------------------------------------------------------------
# The part of ``PrivatePLSRegression`` that carries a calibration to a second instrument, all of it post-processing.

#: The penalty that the released moments choose.
AUTO = "auto"
_CENTRES = (TARGET, SOURCE, RESPONSES)
_OF_SOURCE = "the moments of spectra and responses"


@dataclass(frozen=True)
class _Domain:
    """Released moments, the plan that released them where it is at hand, and the frame of their coordinates where it is known."""

    moments: Moments
    plan: Any
    frame: Frame | None

    @classmethod
    def of(cls, given: Any, what: str) -> _Domain:  # noqa: ANN401 - moments, or a fitted estimator
        if isinstance(given, Moments):
            return cls(given, None, None)
        if not isinstance(given, Transfers):
            msg = f"{what} is a fitted PrivatePLSRegression, or its moments_"
            raise UsageError(msg)
        check_is_fitted(given)
        moments = getattr(given, "moments_", None)
        if isinstance(moments, tuple) or np.ndim(getattr(given, "intercept_", 0.0)):
            msg = f'{what} has several responses: a transfer is of one, so fit one model for each with method="moments"'
            raise UsageError(msg)
        if moments is None:
            msg = f'{what} has no released moments: fit it with method="moments"'
            raise UsageError(msg)
        plan = getattr(given, "plan_", None)
        known = plan is not None and plan.hash == moments.plan
        return cls(moments, plan if known else None, given._domain_frame())  # noqa: SLF001 - its own kind

    def in_frame_of(self, source: _Domain) -> bool:
        """Return True if the coordinates are those of the source; bare moments are declared to be."""
        if self.frame is None or source.frame is None:
            return True
        one, other = self.frame.basis, source.frame.basis
        same = one is other if one is None or other is None else np.array_equal(one, other)
        return same and np.array_equal(self.frame.reference, source.frame.reference)


def _check(penalty: float | str, n_components: int | str, centre: str) -> None:
    check(
        {"penalty": (NUMBER, WORD), "n_components": (WHOLE, WORD), "centre": (WORD,)},
        {"penalty": penalty, "n_components": n_components, "centre": centre},
    )
    if penalty != AUTO and (isinstance(penalty, str) or not 0 <= penalty < np.inf):
        raise UsageError('penalty is "auto", or a finite number of at least 0')
    if n_components != CHOSEN and (isinstance(n_components, str) or n_components < 1):
        msg = f"n_components is a whole number of at least 1, or {CHOSEN!r}"
        raise UsageError(msg)
    if centre not in _CENTRES:
        msg = f"centre is one of {', '.join(_CENTRES)}, not {centre!r}"
        raise UsageError(msg)


class Transfers(LinearRegressor):
    """``adapted`` and ``standardised``: new models from released moments."""

    #: What a transferred model rests on.
    domains_: TwoReleases
    reference: Any
    n_features_in_: int
    n_components_: int
    coef_: Any
    intercept_: Any

    def _reference(self, channels: int) -> Matrix:
        """Return the public spectrum that is subtracted."""
        raise NotImplementedError

    def _frame(self, channels: int, reference: Matrix) -> Frame:
        """Return the frame of the declared basis."""
        raise NotImplementedError

    def _from(self, model: StoredModel) -> Self:
        """Take in a model, and return the estimator."""
        raise NotImplementedError

    def adapted(
        self,
        target: Any,  # noqa: ANN401 - a fit, or moments
        *,
        penalty: float | str = AUTO,
        n_components: int | str = CHOSEN,
        centre: str = TARGET,
    ) -> Self:
        """Return domain-invariant PLS: a model for a second instrument from this fit and released moments of that instrument's spectra.

        The weights of its components avoid directions in which the two instruments' spectra vary differently (Nikzad-Langerodi et al. 2018).
        It needs no sample that both have measured, and no response of the target. It releases nothing: ``domains_`` says what it rests on.

        Parameters
        ----------
        target : PrivatePLSRegression or Moments
            A fit of ``method="moments"`` to rows of the second instrument with the same basis, reference and bounds, or its ``moments_``.
            Where the target has no responses, fit to zeros: only the spectra's moments are used.
        penalty : float or "auto", default "auto"
            The penalty on the difference of the covariances of the spectra, as in the paper. "auto" takes the one with the least source error plus
            the relaxed difference of the predictions' variances, by the released moments. Differences below the releases' noise cost nothing.
        n_components : int or "cv", default "cv"
            "cv" is chosen by the same rule as the penalty.
        centre : {"target", "source", "responses"}, default "target"
            Where the constant comes from. "target": the target's mean spectrum has the source's mean response. "source": the constant is as it was.
            "responses": the target's mean spectrum has the target's own mean response, where its moments hold real ones.

        """
        check_is_fitted(self)
        _check(penalty, n_components, centre)
        own, other = _Domain.of(self, "the source"), _Domain.of(target, "the target")
        if not other.in_frame_of(own):
            raise UsageError("the target was fitted in another basis, or about another reference: give both the same")
        assert own.frame is not None
        found = adapted(own.moments, other.moments, own.frame, n_components, penalty, centre)
        used = "the moments of spectra and responses" if centre == RESPONSES else "the moments of spectra"
        return self._transferred(found, own, DomainRelease.of("the target", used, other.moments, other.plan))

    def standardised(self, pairs: Any, *, ridge: float | None = None) -> Self:  # noqa: ANN401 - two arrays, a fit, or moments
        """Return this model for a second instrument, by samples that both instruments measured (direct standardisation).

        Parameters
        ----------
        pairs : (source spectra, target spectra), or PrivatePLSRegression, or Moments
            Two arrays of the same public samples, row by row: transfer standards, which are nobody's secret. Or, where the pairs are people's, a fit of
            ``method="moments"`` to the target's spectra with this model's predictions of the source's spectra as the response.
        ridge : float, optional
            What is added to the Gram of the target's spectra. None takes the one with the least estimated error: by generalised cross-validation
            for public pairs, with the optimism of the known noise for released ones.

        """
        check_is_fitted(self)
        check({"ridge": (NUMBER, NONE)}, {"ridge": ridge})
        if ridge is not None and not 0 <= ridge < np.inf:
            raise UsageError("ridge is a finite number of at least 0, or None")
        if np.ndim(getattr(self, "intercept_", 0.0)):
            raise UsageError(
                'a transfer is of one response, and this model has several: fit one for each with method="moments"'
            )
        own = _Domain.of(self, "the source") if hasattr(self, "moments_") else None
        if isinstance(pairs, tuple | list):
            centred, channels = self._public_pairs(pairs)
            same = channels == self.n_features_in_
            frame, start = Frame(np.zeros(channels), None), self.coef_ if same else np.zeros(channels)
            found = standardised(centred, None, start, frame, self.n_components_, ridge)
            words = f"Public samples made the transfer: {centred.rows} that both instruments measured. They are nobody's rows, as the analyst declares."
            return self._transferred(found, own, None, words, channels=channels)
        other = _Domain.of(pairs, "the pairs")
        frame = other.frame or self._domain_frame()
        same = frame.reference.size == self.n_features_in_ and (own is None or other.in_frame_of(own))
        start = np.zeros(frame.size)
        if same:
            start = self.coef_ if frame.basis is None else np.linalg.lstsq(frame.basis, self.coef_, rcond=None)[0]
        centred, noise = about_means(one_release(other.moments))
        released = DomainRelease.of(
            "the target", "the moments of spectra and of the source's predictions", other.moments, other.plan
        )
        quiet = not noise.gram.any()
        found = standardised(centred, None if quiet else noise, start, frame, self.n_components_, ridge)
        return self._transferred(found, own, released, channels=frame.reference.size)

    # --- what both do --------------------------------------------------------------------------------------------------------

    def _public_pairs(self, pairs: Sequence[ArrayLike]) -> tuple[Centred, int]:
        """Return the moments of the target's spectra and the source's predictions, and the number of the target's channels."""
        try:
            here, there = (np.asarray(one, dtype=np.float64) for one in pairs)  # the source's, the target's
        except (TypeError, ValueError):
            here = there = np.empty(0)
        fits = here.ndim == there.ndim == 2 and here.shape[0] == there.shape[0] >= 2 and there.shape[1] > 0  # noqa: PLR2004
        if not fits or here.shape[1] != self.n_features_in_ or not (np.isfinite(here).all() and np.isfinite(there).all()):
            msg = f"pairs are two arrays of finite numbers with the same rows, at least 2: the source's {self.n_features_in_} channels, then the target's"
            raise UsageError(msg)
        return Centred.of(there, here @ self.coef_ + self.intercept_), there.shape[1]

    def _domain_frame(self) -> Frame:
        """Return the frame of the fit's coordinates."""
        if hasattr(self, "plan_"):
            frame: Frame = self.plan_.design.frame
            return frame
        centre = np.zeros(self.n_features_in_) if self.reference is None else self._reference(self.n_features_in_)
        return self._frame(self.n_features_in_, centre)

    def _transferred(
        self, found: PlsFit, own: _Domain | None, target: DomainRelease | None, public: str = "", channels: int | None = None
    ) -> Self:
        """Return a fitted estimator of the found model, which says what it rests on."""
        made = type(self)(**self.get_params(deep=False))
        if channels in {None, self.n_features_in_}:
            kept = ("_columns", "_picks", "n_features_in_", "feature_names_in_", "method_")
            made.__dict__.update({name: vars(self)[name] for name in kept if name in vars(self)})
        else:
            made.__dict__.update(_columns=(), n_features_in_=channels)
        made.domains_ = TwoReleases((*self._source_releases(own), *(() if target is None else (target,))), public)
        return made._from(stored(found))  # noqa: SLF001 - its own kind

    def _source_releases(self, own: _Domain | None) -> tuple[DomainRelease, ...]:
        if hasattr(self, "domains_"):
            return self.domains_.releases
        if own is not None:
            return (DomainRelease.of("the source", _OF_SOURCE, own.moments, own.plan),)
        plan = self.plan_
        rows = sum(card.rows for card in plan.study.parties)
        return (
            DomainRelease(
                "the source", "a model", rows, plan.origins("coefficients"), str(plan.study.unit), plan.study.delta
            ),
        )
