"""The JSON Schemas of the files that people write: studies with the parameters of every model, parties, helpers and cards; editors complete by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from unpooled.models import load
from unpooled.privacy.plan import Card, HelperCard
from unpooled.protocol.registry import OWN
from unpooled.study.files import HelperFile, StudyFile, WrittenParty

if TYPE_CHECKING:
    from collections.abc import Iterable

DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: What a file is called -> the kinds of it.
FILES: Final[dict[str, tuple[type[msgspec.Struct], ...]]] = {
    "study file": (StudyFile,),
    "party file": (WrittenParty, HelperFile),
    "card file": (Card, HelperCard),
}


def declared_parameters(models: Iterable[str] = OWN) -> dict[str, list[type[msgspec.Struct]]]:
    """Return the structs of the parameters of these models: one, or also that of a study whose parties hold columns."""
    found: dict[str, list[type[msgspec.Struct]]] = {}
    for name in models:
        own = load(name).template
        both = [] if own is None else [own, own.with_helpers]
        found[name] = list(dict.fromkeys(one.fields for one in both if one is not None and one.fields is not None))
    return {name: kinds for name, kinds in found.items() if kinds}


def schema_of_file(name: str, models: Iterable[str] = OWN) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file; of studies with the parameters of these models."""
    parameters = declared_parameters(models) if name == "study file" else {}
    kinds = [*FILES[name], *(kind for each in parameters.values() for kind in each)]
    # Structs of several models have one name: each is read by its model's.
    found, parts = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    own, others = found[: len(FILES[name])], iter(found[len(FILES[name]) :])
    shape = own[0] if len(own) == 1 else {"oneOf": list(own)}
    schema = {"$schema": DIALECT, "title": f"unpooled {name}", **shape, "$defs": parts}
    rules = {model: [next(others) for _ in each] for model, each in parameters.items()}
    if rules:
        schema["allOf"] = [_where(("study", "model"), model, shapes) for model, shapes in rules.items()]
        parts["AnalysisSection"]["allOf"] = [_where(("model",), model, shapes) for model, shapes in rules.items()]
    return schema


def _where(path: tuple[str, ...], model: str, shapes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rule that the parameters of this model are of one of these shapes."""
    named: dict[str, Any] = {"const": model}
    for key in reversed(path):
        named = {"properties": {key: named}, "required": [key]}
    return {"if": named, "then": {"properties": {"parameters": shapes[0] if len(shapes) == 1 else {"anyOf": shapes}}}}


def file_document(name: str, models: Iterable[str] = OWN) -> bytes:
    """Return the JSON Schema of a kind of file as the text of a file."""
    return msgspec.json.format(msgspec.json.encode(schema_of_file(name, models))) + b"\n"
