"""The parts of the rows and residuals that a fit cut off, as one release counted them, and the sentences that a table prints about them."""

from __future__ import annotations

import math
from typing import Any

import msgspec

#: A share is printed where it is at least this large and at least this many deviations of its noise.
_LEAST_SHORTENED, _LEAST_CLIPPED, _SEEN = 0.005, 0.002, 2.0
#: The tail is named where its deviation exceeds this part of a line's standard error.
TAIL_PART = 0.5


class Clipping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Released shares of shortened rows and clipped residuals, and the estimate of the mean that the clip took away."""

    #: (share, deviation of its noise) of the rows longer than ``longest`` and of the residuals beyond ``clip``.
    shortened: tuple[float, float]
    clipped: tuple[float, float]
    #: The bound on rows in lengths of a typical row, and the bound on residuals in their deviations.
    longest: float
    clip: float
    #: (estimate, deviation) of the mean residual beyond the clip, in the units of the fit's response.
    tail: tuple[float, float] = (0.0, 0.0)

    def in_units_of(self, width: float) -> Clipping:
        """Return the same with the tail in the response's own units, of which the fit's unit has this many."""
        return msgspec.structs.replace(self, tail=(self.tail[0] * width, self.tail[1] * width))

    def data(self) -> dict[str, Any]:
        """Return everything as plain data; without a bound on residuals ``clip`` is None."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found | {"clip": self.clip if math.isfinite(self.clip) else None}

    def sentences(self, *, curved: bool = False) -> tuple[str, ...]:
        """Return what a table says about them; ``curved``: the mean is not a linear function of the columns even where the model is right."""
        said = []
        share, noise = self.shortened
        if share > max(_LEAST_SHORTENED, _SEEN * noise):
            scale = "on the scale of the link " if curved else ""
            length = "a typical row" if self.longest == 1 else f"{self.longest:.3g} typical rows"
            said.append(
                f"{share:.1%} of rows are longer than {length} and were scaled down: if the mean is linear {scale}"
                "in the columns, the coefficients keep their values; if it is not, the target is the fit of the rows so weighted"
            )
        share, noise = self.clipped
        if share > max(_LEAST_CLIPPED, _SEEN * noise):
            said.append(f"{share:.1%} of residuals were clipped at {self.clip:.3g} of their standard deviations")
        return tuple(said)

    def tail_sentence(self) -> str:
        """Return the sentence under a table whose intercept rests on the model of the tail."""
        return (
            f"tail: residuals beyond {self.clip:.3g} standard deviations are clipped, and a generalised Pareto law estimates their mean. "
            "It makes up more than half of the intercept's standard error"
        )
