"""The settings of a paper in a study of its form: what a study leaves out is the paper's own, and what the paper does not have is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import UsageError
from unpooled.privacy.sentence import Sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from unpooled.privacy.plan import Study


def lacking(names: str) -> frozenset[str]:
    """Return the parameters, in one line of words, that a paper does not have."""
    return frozenset(names.split())


def with_settings(study: Study, kind: type[msgspec.Struct], own: Mapping[str, Any], lacks: frozenset[str]) -> Study:
    """Return a study with the paper's settings for parameters that it does not name; refuse those that the paper does not have."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in sorted(lacks & set(study.parameters) & set(fields)):
        if not _same(study.parameters[name], own.get(name, _usual(fields[name]))):
            msg = f"{name} is not in the paper: leave it out, or use calibration = 'sound'"
            raise UsageError(msg)
    filled = {name: value for name, value in own.items() if name in fields and name not in study.parameters}
    return msgspec.structs.replace(study, parameters=filled | dict(study.parameters))


def settings_of(study: Study, own: Mapping[str, Any], roles: Mapping[str, str] | None = None) -> Sentence:
    """Return the sentence that says which settings are the paper's, and where a study departs from them."""
    given = {"delta": study.delta, "unit": study.unit, **study.trust, **(roles or {}), **study.parameters}
    departs = [f"{name} = {_said(given[name])}" for name in own if name in given and not _same(given[name], own[name])]
    return Sentence(
        "papers.settings",
        "The paper's own settings are {settings}; this study {departs}.",
        settings=", ".join(f"{name} = {_said(value)}" for name, value in own.items()),
        departs=f"has {', '.join(departs)} in their place" if departs else "has them",
    )


def _usual(field: msgspec.structs.FieldInfo) -> Any:  # noqa: ANN401 - the parameter's own type
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def _same(one: object, other: object) -> bool:
    """Return True of equal values, lists and tuples alike, and of the empty ways to say nothing."""
    if not one and not other and not isinstance(one, bool | int | float) and not isinstance(other, bool | int | float):
        return True
    plain = [list(value) if isinstance(value, tuple) else value for value in (one, other)]
    return isinstance(one, bool) == isinstance(other, bool) and bool(plain[0] == plain[1])


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value}"
