"""New rows of a model whose sites have constants of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.aggregation.sites import SITE
from unpooled.errors import UsageError, listed
from unpooled.privacy.bounds import Coding
from unpooled.privacy.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from unpooled.aggregation.layout import MomentsLayout
    from unpooled.aggregation.sites import SiteConstants

    Rows = NDArray[np.float64]


def layout_of(source: Any) -> MomentsLayout | None:  # noqa: ANN401 - moments, or the design of any model
    """Return the layout of a fit; None where there is none."""
    found: MomentsLayout | None = getattr(source, "layout", None)
    return found


def sites_in(source: Any) -> SiteConstants | None:  # noqa: ANN401 - as above
    """Return the sites of a fit that have constants of their own; None where they share one."""
    found: SiteConstants | None = getattr(layout_of(source), "sites", None)
    return found


def at_sites(source: Any, sites: Any = None) -> bool:  # noqa: ANN401 - as above
    """Return True if the sites of a fit have constants; refuse labels of sites where they share one."""
    if sites_in(source) is not None:
        return True
    if sites is not None:
        raise UsageError(
            "sites: this model has one constant for all sites, so its predictions are the same at all of them: leave sites out"
        )
    return False


def natural_at(source: Any, new: Mapping[str, NDArray[Any]], sites: Any) -> Rows:  # noqa: ANN401 - as above, array-like
    """Return new rows as the fit coded them, at these sites (a label each); without sites as the mean over all rows of the fit would be."""
    layout, known = layout_of(source), sites_in(source)
    assert layout is not None  # it has sites
    assert known is not None
    count = next(iter(new.values())).size
    if sites is None:
        rows = [
            part * _coded(layout, new, np.full(count, name)) for name, part in zip(known.names, known.parts, strict=True)
        ]
        return np.asarray(np.sum(rows, axis=0))
    labels = np.array([str(label) for label in np.asarray(sites).ravel().tolist()])
    if labels.size != count:
        msg = f"sites has {labels.size} labels for {count} rows: give one label per row"
        raise UsageError(msg)
    unknown = sorted(set(labels.tolist()) - set(known.names))
    if unknown:
        msg = f"site {unknown[0]!r} has no constant in this model, which knows {listed(known.names)}: leave sites out for the mean of all sites"
        raise UsageError(msg)
    return _coded(layout, new, labels)


def _coded(layout: MomentsLayout, new: Mapping[str, NDArray[Any]], labels: NDArray[np.str_]) -> Rows:
    columns = {**new, SITE: labels.astype(object)}
    # A table has at least two rows.
    table = layout.seen(Table({name: np.resize(values, max(2, labels.size)) for name, values in columns.items()}))
    blocks = table.blocks(tuple(column.name for column in layout.features))
    return np.concatenate([Coding(layout.features, 1).natural(block) for block in blocks])[: labels.size]
