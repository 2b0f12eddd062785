"""A parameter declared once: its type, its default, and the words that every page, file and error has for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta, Struct

#: How a study says that columns are split over its parties, and that every party proves its masked rows to be short, or does not.
COLUMNS, PROOF, UNPROVED = "columns", "proof", "none"


def says(
    words: str,
    example: Any = None,  # noqa: ANN401 - of the parameter's type
    *,
    choices: Iterable[str] = (),
    call: str = "",
    column: bool = False,
    study: bool = False,
    lean: bool = False,
    shown: bool = False,
    kinds: tuple[Any, ...] = (),
    written: str = "",
) -> Meta:
    """Return the words of a parameter, and an ``example`` for a new study file.

    ``choices``: the words that it takes. ``call``: what a Python call says in place of the words. ``column``: the value names a column of the data.
    ``study``: a study file has it, and no call. ``lean``: a study leaves it out at its default, and so keeps its hash. ``shown``: a new study file has
    its line, not in a comment. ``kinds``: the kinds of value that a call takes, and ``written`` its annotation, where the type does not say it.
    """
    given = tuple(map(str, choices))
    return Meta(
        description=words,
        examples=None if example is None else [example],
        extra_json_schema={"enum": list(given)} if given else None,
        extra={
            "choices": given,
            "call": call,
            "column": column,
            "study": study,
            "lean": lean,
            "shown": shown,
            "kinds": kinds,
            "written": written,
        },
    )


@dataclass(frozen=True)
class Parameter:
    """One declared parameter."""

    name: str
    type: Any
    says: Meta
    default: Any = NODEFAULT

    @property
    def required(self) -> bool:
        """Return whether it has no default."""
        return self.default is NODEFAULT

    @property
    def words(self) -> str:
        """Return what it means, in sentences."""
        return self.says.description or ""

    @property
    def example(self) -> Any:  # noqa: ANN401 - of the parameter's type
        """Return a value for a new study file; None where the default will do."""
        return self.says.examples[0] if self.says.examples else None

    def flag(self, name: str) -> Any:  # noqa: ANN401 - a word, a truth value or kinds
        """Return what :func:`says` was given under this name."""
        return (self.says.extra or {}).get(name)


def parameters_of(group: type) -> dict[str, Parameter]:
    """Return the declared parameters of a study's struct, or of a class of annotated names: its own in their order, then those of its bases."""
    hints = get_type_hints(group, include_extras=True)
    if issubclass(group, Struct):
        own = {one.name: _default(one.default, one.default_factory) for one in msgspec.structs.fields(group)}
    else:
        own = {name: getattr(group, name, NODEFAULT) for name in hints}
    found = {}
    for name, default in sorted(own.items(), key=lambda one: one[0] not in vars(group).get("__annotations__", {})):
        kind, *rest = get_args(hints[name]) if hasattr(hints[name], "__metadata__") else (hints[name],)
        said = next((one for one in rest if isinstance(one, Meta)), Meta(description=""))
        found[name] = Parameter(name, kind, said, default)
    return found


def _default(value: Any, factory: Any) -> Any:  # noqa: ANN401 - of the parameter's type
    return value if factory is NODEFAULT else factory()


#: How the data are split, where a model takes both.
SplitWord: TypeAlias = Annotated[
    str,
    says("The parties hold columns of the same people.", choices=(COLUMNS,), study=True, shown=True),
]
#: Whether masked rows are proved to be short.
CheckWord: TypeAlias = Annotated[
    str,
    says(
        "Of joint sums, whether every party proves that its masked rows are short. Without it nothing holds against a party that deviates, and "
        'every policy must have joint = "trusting".',
        choices=(PROOF, UNPROVED),
    ),
]
#: Who may know each other's noise.
Colluding: TypeAlias = Annotated[
    int, says("Of joint sums, members that may know each other's noise, or stay silent about their own.")
]
#: Which part of the rows is expected to have gaps.
ExpectedMissing: TypeAlias = Annotated[
    float,
    says(
        'The part of the rows, from 0 to below 1, that are expected to lack a value of a column of missing = "complete": public, and decided without '
        "looking. Rounds, clips and outlooks are then those of the other rows.",
        lean=True,
    ),
]
ExpectedPeople: TypeAlias = Annotated[
    int,
    says(
        'Of hidden people (ids = "hidden:..."), how many are expected at both parties: public, known from elsewhere and never counted by comparing the '
        "lists. Limits and the plan by line follow from it.",
        lean=True,
    ),
]
#: The confidence of the intervals that are reported; of a table whose call asks for it when it is printed, in study files alone.
TableConfidence: TypeAlias = Annotated[
    float, says("Of the intervals that are reported, which contain the noise.", study=True)
]
Confidence: TypeAlias = Annotated[float, says("Of the intervals that are reported, which contain the noise.")]


class OverParties(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Parameters of every study whose parties add up their rows."""

    tolerate: Annotated[
        int,
        says(
            "Parties that may collude or drop out: T costs a factor N / (N - T - 1) in noise variance where N parties share the noise."
        ),
    ] = 0
    nodes: Annotated[
        tuple[str, ...],
        says("Parties that may be nodes of the secure sum, or the trusted aggregator. Empty: all of them, or the first."),
    ] = ()
