r"""Exact integer noise from random words: a fast floating-point path with a proven band, a slow exact path behind it.

Every sampler here inverts (or rejects from) an exact law. The fast path computes a candidate in double precision together
with a band that its error cannot leave; when no decision boundary lies inside the band the candidate IS the exact answer.
Otherwise the coordinate is flagged, and the slow path decides with :mod:`decimal`: 90 digits and 256 further random bits, and
where these leave a doubt (a tie, a tail that no such number of bits resolves) 256 more bits and 256 more digits, until there is none.
The result is therefore a function of the random bits alone: the same on every machine, for any chunking and thread count.

What remains inexact is a doubt after the last block of further bits: less than ``2**-16000`` per coordinate, which no float
holds, so that the law is right in ratio, not in sum only, out to tails of ``e**-10000``. Events carry ``TOTAL_VARIATION``, the
smallest float, in its place, and the accountant knows what it stands for.

The bands. ``_quantile`` is Wichura's AS 241 (PPND16, accurate to 1e-16 for its rational functions). All coefficients and
arguments are non-negative, so Horner's rule is relatively stable (Higham 2002, section 5.1): numerator, denominator, quotient and the
rounding of the argument together stay below ``2**-47``; the band is ``2**-44``, eight times that. The resolution of a
63-bit uniform moves the quantile by less than ``2**-49`` of itself while the tail exceeds ``2**-20``; smaller tails are flagged.
No function in this package knows what privacy is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unpooled.kernels.sampler.choice import CHOICE_BAND as CHOICE_BAND
    from unpooled.kernels.sampler.choice import CHOICE_POWER as CHOICE_POWER
    from unpooled.kernels.sampler.choice import CHOICE_TILE as CHOICE_TILE
    from unpooled.kernels.sampler.choice import choice_tiles as choice_tiles
    from unpooled.kernels.sampler.choice import choice_trials as choice_trials
    from unpooled.kernels.sampler.exact import MoreBits as MoreBits
    from unpooled.kernels.sampler.exact import discrete_gaussian_table as discrete_gaussian_table
    from unpooled.kernels.sampler.exact import exact_acceptance as exact_acceptance
    from unpooled.kernels.sampler.exact import exact_discrete_gaussian as exact_discrete_gaussian
    from unpooled.kernels.sampler.exact import exact_discrete_laplace as exact_discrete_laplace
    from unpooled.kernels.sampler.exact import exact_discrete_laplace_by_digits as exact_discrete_laplace_by_digits
    from unpooled.kernels.sampler.exact import exact_from_table as exact_from_table
    from unpooled.kernels.sampler.exact import exact_rounded_gaussian as exact_rounded_gaussian
    from unpooled.kernels.sampler.fast import LAPLACE_SCALE as LAPLACE_SCALE
    from unpooled.kernels.sampler.fast import TABLE_SCALE as TABLE_SCALE
    from unpooled.kernels.sampler.fast import Integers as Integers
    from unpooled.kernels.sampler.fast import Words as Words
    from unpooled.kernels.sampler.fast import discrete_gaussian_by_rejection as discrete_gaussian_by_rejection
    from unpooled.kernels.sampler.fast import discrete_laplace as discrete_laplace
    from unpooled.kernels.sampler.fast import discrete_laplace_by_digits as discrete_laplace_by_digits
    from unpooled.kernels.sampler.fast import discrete_laplace_shift as discrete_laplace_shift
    from unpooled.kernels.sampler.fast import from_table as from_table
    from unpooled.kernels.sampler.fast import rounded_gaussian as rounded_gaussian

#: Stands, in an event, for the distance of any sampler below from its ideal law, per coordinate: ``2**-16000`` (see the top of this file).
TOTAL_VARIATION = 2.0**-1074
#: The module of each name: loaded when it is first used, because compiling needs numba, and a plan draws nothing.
_HOME = {
    "CHOICE_BAND": "choice",
    "CHOICE_POWER": "choice",
    "CHOICE_TILE": "choice",
    "choice_tiles": "choice",
    "choice_trials": "choice",
    "discrete_gaussian_table": "exact",
    "exact_acceptance": "exact",
    "exact_discrete_gaussian": "exact",
    "exact_discrete_laplace": "exact",
    "exact_discrete_laplace_by_digits": "exact",
    "exact_from_table": "exact",
    "exact_rounded_gaussian": "exact",
    "LAPLACE_SCALE": "fast",
    "TABLE_SCALE": "fast",
    "discrete_gaussian_by_rejection": "fast",
    "discrete_laplace": "fast",
    "discrete_laplace_by_digits": "fast",
    "discrete_laplace_shift": "fast",
    "from_table": "fast",
    "rounded_gaussian": "fast",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    import importlib

    found = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found
