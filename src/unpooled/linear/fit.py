"""A linear fit as everybody reads it: coefficients in the data's own units, how sure they are, and posteriors that were worked out lately."""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    TypeVar,
)

import msgspec
import numpy as np

from unpooled.errors import UsageError
from unpooled.inference.results import Result, records
from unpooled.privacy.origin import ReleasedInput, sourced
from unpooled.protocol.terms import PrintedTable, ResultTerm, known, table_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]
    Row = NDArray[np.float64]
    #: Of what is remembered: moments, and what their posterior is asked.
    Key = tuple[bytes, str]


# --- Linear fit ------------------------------------------------------------------------------------------------------------
# A linear fit as everybody reads it: coefficients in the data's own units, and how sure they are.


@dataclass(frozen=True, repr=False)
class LinearFit(Result):
    """Coefficients in the data's own units with their covariance, and how far privacy noise and sampling may move them."""

    coef_: Row
    intercept_: float
    #: Of the coefficients, and of the intercept as the last row where there is one.
    joint_covariance_: Matrix
    #: For every coefficient, whether the release tells anything of it. Where not, it has no interval.
    identified: NDArray[np.bool_]
    #: Whether a prior stands behind the estimate.
    prior: bool = True
    #: Of y about the fit, in its own units squared.
    noise_variance: float = float("nan")
    #: The releases behind it, which a later fit that is drawn to it counts.
    origins: tuple[ReleasedInput, ...] = ()

    __str__ = Result.__repr__

    def _said(self) -> str:
        unsure = int((~self.identified).sum())
        words = f", {unsure} not identified" if unsure else ""
        return f"{self.coef_.size} coefficients{words}, intercept {self.intercept_:.4g}"

    def _terms(self) -> list[ResultTerm]:
        """Return the coefficients with their standard errors, where there are any."""
        errors = np.sqrt(np.maximum(self.covariance_.diagonal(), 0.0)).tolist()
        each = enumerate(zip(self.coef_.tolist(), errors, self.identified.tolist(), strict=True))
        terms = [ResultTerm(f"[{k}]", value, known(error) if told else None) for k, (value, error, told) in each]
        return [*terms, ResultTerm("(intercept)", float(self.intercept_))]

    def _printed(self) -> tuple[PrintedTable, ...]:
        return (table_of(self._terms()),)

    def _numbers(self) -> list[dict[str, Any]]:
        return records(self._terms())

    def _arrays(self) -> dict[str, Any]:
        return {"coef": self.coef_, "covariance": self.joint_covariance_}

    @classmethod
    def without_errors(cls, coef: Row, intercept: float, *, has_intercept: bool) -> LinearFit:
        """Return coefficients of which nothing more is known: nan in the place of covariances, endless intervals."""
        width = coef.size + has_intercept
        unknown = np.full((width, width), np.nan)
        return cls(coef, intercept, unknown, np.zeros(coef.size, dtype=np.bool_), prior=False)

    def carrying(self, origins: tuple[ReleasedInput, ...]) -> LinearFit:
        """Return the same fit of moments that come from these releases: its coefficients carry them wherever they go."""
        return replace(
            self, coef_=sourced(self.coef_, origins), intercept_=sourced(float(self.intercept_), origins), origins=origins
        )

    @property
    def covariance_(self) -> Matrix:
        """Return the covariance of the coefficients."""
        return self.joint_covariance_[: self.coef_.size, : self.coef_.size]

    def interval(self, confidence: float = 0.95) -> Matrix:
        """Return lower and upper ends for every coefficient; nan where the release tells nothing of it, for nothing but a prior would speak there."""
        from statistics import NormalDist

        if not 0 < confidence < 1:
            raise UsageError("confidence must lie between 0 and 1")
        half = NormalDist().inv_cdf(0.5 + confidence / 2) * np.sqrt(np.maximum(self.covariance_.diagonal(), 0.0))
        half = np.where(self.identified, half, np.nan)
        return np.column_stack([self.coef_ - half, self.coef_ + half])


def plain(fit: LinearFit) -> LinearFit:
    """Return a fit as plain numbers, for a coordinator, whose plan says where they come from."""
    return replace(fit, coef_=np.asarray(fit.coef_), intercept_=float(fit.intercept_), origins=())


# --- Once ------------------------------------------------------------------------------------------------------------------
# Posteriors that were worked out lately, so that a study's coordinator and the estimator of its result work one out once.
#
# Both begin from the same moments as plain data, and what follows from these is no secret: the key is their digest.

P = ParamSpec("P")


class _Stored(Protocol):
    """Moments, by what is needed of them here."""

    @property
    def origins(self) -> tuple[ReleasedInput, ...]: ...  # the releases that they come from

    def stored(self) -> Any: ...  # noqa: ANN401 - plain data


M = TypeVar("M", bound=_Stored)

#: Fits that are kept: a covariance of 500 columns takes 2 MB.
_KEPT = 4
_fits: OrderedDict[Key, LinearFit] = OrderedDict()
_lock = threading.Lock()


def once(work: Callable[Concatenate[M, P], LinearFit]) -> Callable[Concatenate[M, P], LinearFit]:
    """Work out a fit of moments once for the same arguments; every caller gets arrays of its own, which carry the origins of its moments."""
    signature = inspect.signature(work)

    @wraps(work)
    def found(moments: M, /, *args: P.args, **kwargs: P.kwargs) -> LinearFit:
        asked = signature.bind(moments, *args, **kwargs)
        asked.apply_defaults()
        said = {name: value for name, value in asked.arguments.items() if value is not moments}
        plain = msgspec.structs.replace(
            moments.stored(), origins=()
        )  # those of a coordinator do not know yet what they cost
        key = hashlib.blake2b(msgspec.msgpack.encode(plain)).digest(), repr(said)
        with _lock:
            fit = _fits.get(key)
        if fit is None:
            fit = work(moments, *args, **kwargs)
        with _lock:
            _fits[key] = fit
            _fits.move_to_end(key)
            while len(_fits) > _KEPT:
                _fits.popitem(last=False)
        return _copied(fit).carrying(moments.origins)

    return found


def _copied(fit: LinearFit) -> LinearFit:
    return replace(
        fit, coef_=fit.coef_.copy(), joint_covariance_=fit.joint_covariance_.copy(), identified=fit.identified.copy()
    )
