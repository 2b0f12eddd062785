"""Template of a new study file, in a row of the registry: its purpose, its split, its unit and its parameters."""

from __future__ import annotations

from dataclasses import dataclass

#: What the parties of a study hold.
COLUMNS, ROWS = "columns of the same people", "rows of different people, with the same columns"
DEFAULT_CARDS = ("first.card.toml", "second.card.toml")

#: How the line begins that says, in a comment, what the default of a formula is.
FORMULA = '# formula = ""'


@dataclass(frozen=True, slots=True)
class Template:
    """The text that ``unpooled new`` writes for one row of the registry."""

    #: One sentence about what the model is for, and what its parties hold.
    purpose: str
    split: str
    unit: str
    #: The lines of ``[parameters]``: required keys as they stand, the other ones in comments with their defaults.
    parameters: str
    #: The paper's delta; None writes the default in a comment.
    delta: float | None = None
    calibration: str = "sound"
    #: Lines of ``[trust]``; empty: the model trusts nobody.
    trust: str = ""
    #: The cards that a study names where the caller gives none.
    cards: tuple[str, ...] = DEFAULT_CARDS
    #: Lines of the parameters that are others where there is a formula, each with what stands in its place.
    beside_formula: tuple[tuple[str, str], ...] = ()
    #: Whether a formula may have an offset.
    offsets: bool = False
    #: The template of studies with the cards of helpers; None: the model has no use for a helper.
    with_helpers: Template | None = None

    @property
    def takes_formula(self) -> bool:
        """Return whether a study of this kind may say what its model is a function of."""
        return f"\n{FORMULA}" in self.parameters
