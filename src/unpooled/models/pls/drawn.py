"""PLS with earlier models: released moments of coordinates are drawn to them, and components follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unpooled.linear.drawn import drawn_fit
from unpooled.models.pls.components import about_means, components_of, repaired
from unpooled.models.pls.regressed import of_refined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.inference.priors import DrawnTo, EarlierModel
    from unpooled.linear.moments import Moments
    from unpooled.models.pls.components import PlsFit
    from unpooled.models.pls.frame import Frame


def drawn_components(
    moments: Moments, models: Sequence[EarlierModel], frame: Frame, n_components: int | str
) -> tuple[PlsFit, DrawnTo]:
    """Return the components of released moments that are drawn to models of the coordinates, and how they drew them."""
    fit, drawn = drawn_fit(moments, models)
    if moments.frame.refined:
        return of_refined(moments, fit, frame, n_components), drawn
    centred, noise = about_means(moments)
    response = fit.intercept_ + float(centred.mean @ fit.coef_)
    return components_of(centred, frame, n_components, repaired(centred.gram, noise), fit.coef_, response), drawn
