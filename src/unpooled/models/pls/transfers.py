"""The part of ``PrivatePLSRegression`` that carries a calibration to a second instrument, all of it post-processing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from unpooled.errors import UsageError
from unpooled.estimation.base import LinearRegressor
from unpooled.estimation.parameters import NONE, NUMBER, WHOLE, WORD, check, taking
from unpooled.kernels.pls import Centred
from unpooled.linear.moments import Moments
from unpooled.models.pls.components import about_means
from unpooled.models.pls.coordinator import stored
from unpooled.models.pls.domains import RESPONSES, SOURCE, TARGET, adapted, one_release, standardised
from unpooled.models.pls.frame import Frame
from unpooled.models.pls.plan import CHOSEN
from unpooled.models.pls.two_releases import DomainRelease, TwoReleases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from unpooled.models.pls.components import PlsFit
    from unpooled.models.pls.coordinator import StoredModel

    Matrix = NDArray[np.float64]

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
        taking("penalty", NUMBER, WORD) | taking("n_components", WHOLE, WORD) | taking("centre", WORD),
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
        check(taking("ridge", NUMBER, NONE), {"ridge": ridge})
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
