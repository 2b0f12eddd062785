"""Posteriors that were worked out lately, so that a study's coordinator and the estimator of its result work one out once.

Both begin from the same moments as plain data, and what follows from these is no secret: the key is their digest.
"""

from __future__ import annotations

import hashlib
import inspect
import threading
from collections import OrderedDict
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from unpooled.aggregation.linear_fit import LinearFit
    from unpooled.privacy.origin import ReleasedInput

    #: Of what is remembered: moments, and what their posterior is asked.
    Key = tuple[bytes, str]

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
