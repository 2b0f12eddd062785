"""The pages' templates: every page of unpooled is filled by this environment, which escapes what is put into it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


def environment() -> jinja2.Environment:
    """Return the environment of the report's own templates; an unknown name in a template is an error."""
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("unpooled.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(number=number)
    return found


def number(value: float | None) -> str:
    """Return a number with four digits, as the pages print it."""
    if value is None:
        return "set in the run"
    return f"{value:.4g}" if math.isfinite(value) else "none"
