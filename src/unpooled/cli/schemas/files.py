"""The JSON Schemas of the files that people write: studies with the parameters of every model, parties, helpers and cards; editors complete by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from unpooled.models import load
from unpooled.privacy.origin import OTHERS, SAME
from unpooled.privacy.plan import Card, HelperCard
from unpooled.protocol.registry import OWN
from unpooled.study.earlier import ROWS, RUN
from unpooled.study.files import HELPERS, HelperFile, StudyFile, WrittenParty

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
    for kind in parts.values():
        for one in kind.get("properties", {}).values():
            _with_words(one)
    own, others = found[: len(FILES[name])], iter(found[len(FILES[name]) :])
    shape = own[0] if len(own) == 1 else {"oneOf": list(own)}
    schema = {"$schema": DIALECT, "title": f"unpooled {name}", **shape, "$defs": parts}
    rules = {model: [next(others) for _ in each] for model, each in parameters.items()}
    if rules:
        for model, shapes in rules.items():
            for shape in shapes if load(model).earlier else ():
                _with_citations(parts[str(shape["$ref"]).rpartition("/")[2]]["properties"])
        schema["allOf"] = [_where(("study", "model"), model, shapes) for model, shapes in rules.items()]
        parts["AnalysisSection"]["allOf"] = [_where(("model",), model, shapes) for model, shapes in rules.items()]
        for section in ("StudySection", "AnalysisSection"):
            one = parts[section]["properties"]["model"]
            one["anyOf"] = [{"enum": list(rules)}, {"type": one.pop("type")}]  # another distribution's has a name too
    return schema


def _with_words(one: dict[str, Any]) -> None:
    """Let a property take the words that are listed of it where it is a word: other types have none, and an empty default is a choice."""
    if "enum" in one and (forms := one.get("anyOf")):
        words = one.pop("enum")
        one["anyOf"] = [form | {"enum": words} if form == {"type": "string"} else form for form in forms]
    if "enum" in one and one.get("default") == "":
        one["enum"] = [*one["enum"], ""]


def _with_citations(properties: dict[str, Any]) -> None:
    """Let a study name earlier models by the run or the file that has them, and say whose rows those are."""
    if "prior" not in properties:  # of a model of two kinds of study, one takes none
        return
    own, cited = properties["prior"], {"type": "string", "pattern": f"^({RUN}|{ROWS}).+"}
    words = {key: own.pop(key) for key in ("description", "default", "examples") if key in own}
    if own.get("type") == "array":
        own["items"] = {"anyOf": [own["items"], cited]}
    properties["prior"] = words | {"anyOf": [dict(own), cited]}
    of = "of the runs that ``prior`` cites."
    properties["prior_rows"] = {"enum": [SAME, OTHERS], "default": SAME, "description": f"Whose rows they are {of}"}
    properties["prior_analysis"] = {"type": "string", "description": f"Which analysis is meant {of}"}


def _where(path: tuple[str, ...], model: str, shapes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the rule that the parameters of this model are of one of these shapes, and its roles those of its row."""
    named: dict[str, Any] = {"const": model}
    for key in reversed(path):
        named = {"properties": {key: named}, "required": [key]}
    asked = {
        "parameters": shapes[0] if len(shapes) == 1 else {"anyOf": shapes},
        "trust": {"propertyNames": {"enum": [*load(model).roles, HELPERS]}},
    }
    return {"if": named, "then": {"properties": asked}}


def file_document(name: str, models: Iterable[str] = OWN) -> bytes:
    """Return the JSON Schema of a kind of file as the text of a file."""
    return msgspec.json.format(msgspec.json.encode(schema_of_file(name, models))) + b"\n"
