"""The pages' templates: every page of unpooled is filled by this environment, which escapes what is put into it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2


def environment(package: str = "unpooled.report") -> jinja2.Environment:
    """Return the environment of a package's templates and of the report's; an unknown name in a template is an error."""
    import jinja2

    places = [jinja2.PackageLoader(one, ".") for one in dict.fromkeys((package, "unpooled.report"))]
    found = jinja2.Environment(
        loader=jinja2.ChoiceLoader(places),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=seen,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(number=number)
    return found


def seen(value: Any) -> Any:  # noqa: ANN401 - whatever a template shows
    """Return what is put into a page, with a mark for each letter that nobody sees: such letters turn words around, or make two names alike."""
    if type(value) is not str or value.isprintable():  # what is safe already has been looked at by who made it
        return value
    return "".join(c if c.isprintable() or c.isspace() else "\ufffd" for c in value)


def number(value: float | None) -> str:
    """Return a number with four digits, as the pages print it."""
    if value is None:
        return "set in the run"
    return f"{value:.4g}" if math.isfinite(value) else "none"
