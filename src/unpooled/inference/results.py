"""One result for every model: lines, foot, panels and arrays, and from these the text, the page, the frames, the JSON and the figure of each."""

from __future__ import annotations

import base64
import html
import itertools
import math
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import msgspec
import numpy as np
from msgspec import Meta

from unpooled.errors import UsageError
from unpooled.inference.drawing import drawn
from unpooled.inference.saving import Savable
from unpooled.protocol.registry import Panel
from unpooled.protocol.terms import PrintedTable, finite

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: A cell of a line: a text, a number, or None where nothing is known.
Cell = str | float | int | bool | None
#: Panels of a page; of more there is no picture.
_MOST_PANELS = 12
#: What Markdown would read as more than text: marks (an underscore inside a word is text), tags and entities, and at the start of a line.
_MARKS = re.compile(r"([\\`*|~$]|(?<!\w)_|_(?!\w)|(?<=\])\()")
_TAGS = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?\w+;)")
_STARTS = re.compile(r"^([#>+-]|\d+(?=[.)]\s))")

# --- JSON ------------------------------------------------------------------------------------------------------------------
# The data of a result as JSON has them. There is one schema for the results of all models: ``unpooled schema table`` prints it.

Number = Annotated[float | None, Meta(description="A number; null where it is infinite or not known.")]


class CellsData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table as it is printed: every row has a cell for each column of the head."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    foot: Annotated[tuple[str, ...], Meta(description="The lines of text under the table.")]
    words: Annotated[int, Meta(description="The number of first columns that hold words; the others hold numbers.")]


class ArrayData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An array of numbers, row by row."""

    shape: tuple[int, ...]
    values: tuple[Number, ...]

    @classmethod
    def of(cls, values: Any) -> Self:  # noqa: ANN401 - an array, or a list of numbers
        """Return an array as plain data."""
        found = np.asarray(values, dtype=np.float64)
        return cls(found.shape, tuple(map(finite, found.ravel().tolist())))


class PanelData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers that belong into one figure, with intervals where there are any."""

    title: str
    names: tuple[str, ...]
    values: tuple[Number, ...]
    low: tuple[Number, ...]
    high: tuple[Number, ...]
    without_privacy: Annotated[
        tuple[Number, ...], Meta(description="The part of the way to each end that there would be without privacy.")
    ]
    ordered: Annotated[bool, Meta(description="Whether the names follow each other, so that a line joins the values.")]
    steps: Annotated[bool, Meta(description="Whether a value holds from its own place to the next one.")]
    places: Annotated[tuple[Number, ...], Meta(description="Where the values stand along the horizontal axis.")]
    axes: Annotated[tuple[str, str], Meta(description="The words at the horizontal and at the vertical axis.")]
    ratio: Annotated[bool, Meta(description="Whether the values are ratios, which are compared with 1.")]

    @classmethod
    def of(cls, panel: Panel) -> Self:
        """Return a panel as plain data."""
        shown = {name: getattr(panel, name) for name in cls.__struct_fields__}
        numbers = ("values", "low", "high", "without_privacy", "places")
        return cls(**shown | {name: tuple(finite(float(value)) for value in shown[name]) for name in numbers})


class TableOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="schema", tag="unpooled/table/1"):
    """A result of any model: the tables as they are printed, and everything as numbers."""

    kind: Annotated[str, Meta(description="The class of the result, such as GlmSummary.")]
    tables: Annotated[tuple[CellsData, ...], Meta(description="The tables, their cells as they are printed.")]
    foot: Annotated[tuple[str, ...], Meta(description="The lines of text under the tables.")]
    numbers: Annotated[
        tuple[dict[str, Cell], ...],
        Meta(
            description="The lines as numbers; null where one is infinite or not known. There may be more than are printed."
        ),
    ]
    panels: Annotated[tuple[PanelData, ...], Meta(description="What the figure draws.")]
    arrays: dict[str, ArrayData]


def _cell(value: Any) -> Cell:  # noqa: ANN401 - of any result
    """Return a value as a cell of plain data; a number of NumPy, or one that carries its origins, is a plain one."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    return finite(float(value)) if isinstance(value, float) else str(value)


# --- Result ----------------------------------------------------------------------------------------------------------------


class Result(Savable):
    """A result that prints a table. A class says its lines, foot, panels and arrays; every form that it is read in follows from them."""

    # --- what a class says -----------------------------------------------------------------------------------------------

    def _lines(self) -> Sequence[tuple[str, ...]]:
        """Return the cells of the table as they are printed, its head first."""
        return ()

    def _foot(self) -> Sequence[str]:
        """Return the lines of text under the table."""
        return ()

    def _printed(self) -> tuple[PrintedTable, ...]:
        """Return the tables, where there are others than that of the lines."""
        head, *rows = self._lines() or ((),)
        return (PrintedTable(head, tuple(rows)),) if head else ()

    def _numbers(self) -> Sequence[Mapping[str, Any]]:
        """Return the lines as numbers, by the names of columns, of which the first one names the line: the terms, where there are any."""
        return records(getattr(self, "terms", ()))

    def _panels(self) -> Sequence[Panel]:
        """Return the numbers that the figure draws."""
        return ()

    def _arrays(self) -> Mapping[str, Any]:
        """Return the arrays of the result, by name."""
        return {}

    def _said(self) -> str:
        """Return the words between the brackets of the short form."""
        count = sum(len(table.rows) for table in self._printed())
        return f"{count} line{'' if count == 1 else 's'}"

    # --- what follows ----------------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return "\n".join((*map(str, self._printed()), *self._foot()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._said()})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ANN401 - as IPython calls it
        """Print the table in IPython, where an object is shown in its long form."""
        printer.text(repr(self) if cycle else str(self))

    def _repr_html_(self) -> str:
        """Return the tables for notebooks, with the foot and a picture of the figure; names are text, whatever they are."""
        tables = "".join(map(_html_table, self._printed()))
        return tables + "".join(f"<p>{html.escape(line)}</p>" for line in self._foot()) + self._picture()

    def _picture(self) -> str:
        """Return the figure as an image for a page; empty where there is nothing to draw, and where matplotlib is not installed."""
        panels = self._panels()
        if not any(panel.names for panel in panels) or len(panels) > _MOST_PANELS:
            return ""
        try:
            shown = base64.b64encode(self.figure()._repr_png_()).decode()
        except (ModuleNotFoundError, UsageError):
            return ""
        said = html.escape("; ".join(panel.title for panel in panels))
        return f'<img alt="{said}" src="data:image/png;base64,{shown}">'

    def figure(self) -> Any:  # noqa: ANN401 - a matplotlib figure
        """Return what the result draws as a matplotlib figure, which a notebook shows; the darker part of an interval would be there without privacy, too."""
        panels = self._panels()
        if not panels:
            msg = f"{self!r} has nothing to draw: print it, or take its numbers by to_pandas() or to_json()"
            raise UsageError(msg)
        return drawn(panels)

    def to_pandas(self) -> Any:  # noqa: ANN401 - a frame of a package that need not be there
        """Return the lines as a pandas data frame, indexed by their names."""
        rows = [dict(line) for line in self._numbers()]
        unknown = dict.fromkeys(
            (name for name in (rows[0] if rows else ()) if all(row[name] is None for row in rows)), math.nan
        )
        frame = _package("pandas", "to_pandas").DataFrame([row | unknown for row in rows])  # it would hold None as objects
        return frame.set_index(next(iter(rows[0]))) if rows else frame

    def to_polars(self) -> Any:  # noqa: ANN401 - as above
        """Return the lines as a polars data frame; null stands where nothing is known."""
        pl = _package("polars", "to_polars")
        rows = self._numbers()
        kinds = {str: pl.String, bool: pl.Boolean, int: pl.Int64}
        columns = {name: [_known(line[name]) for line in rows] for name in (rows[0] if rows else ())}
        found = {name: {type(value) for value in values} - {type(None)} for name, values in columns.items()}
        schema = {
            name: kinds.get(next(iter(own)), pl.Float64) if len(own) == 1 else pl.Float64 for name, own in found.items()
        }
        return pl.DataFrame(columns, schema=schema)

    def to_markdown(self) -> str:
        """Return the tables in Markdown, for a paper or an issue: numbers as they are printed, and the foot as lines under them."""
        parts = list(itertools.chain.from_iterable(map(_markdown_table, self._printed())))
        return "\n\n".join((*parts, *map(_line, self._foot()))) + "\n"

    def to_json(self, path: str | Path | None = None) -> str:
        """Return everything as JSON that ``unpooled schema table`` describes, and write it to a file where ``path`` names one; a number that is infinite or not known is null."""
        text = msgspec.json.format(msgspec.json.encode(self._data())).decode()
        msgspec.json.decode(text, type=TableOutput)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def _data(self) -> TableOutput:
        return TableOutput(
            type(self).__name__,
            tuple(CellsData(t.title, t.head, t.rows, t.foot, t.words) for t in self._printed()),
            tuple(self._foot()),
            tuple({name: _cell(value) for name, value in line.items()} for line in self._numbers()),
            tuple(map(PanelData.of, self._panels())),
            {name: ArrayData.of(values) for name, values in self._arrays().items()},
        )


def records(parts: Iterable[Any]) -> list[dict[str, Any]]:
    """Return dataclasses or structs as lines of numbers."""
    return [
        {field.name: getattr(part, field.name) for field in fields(part)}
        if is_dataclass(part)
        else msgspec.structs.asdict(part)
        for part in parts
    ]


def ends(confidence: float) -> tuple[str, str]:
    """Return the heads of the two columns of an interval."""
    return f"[{(1 - confidence) / 2:.3g}", f"{(1 + confidence) / 2:.3g}]"


def _package(name: str, asked: str) -> Any:  # noqa: ANN401 - a module
    """Return a package that need not be there."""
    try:
        return __import__(name)
    except ModuleNotFoundError:
        msg = f"{asked} needs {name}: pip install {name}, or use to_json()"
        raise UsageError(msg) from None


def _known(value: Any) -> Any:  # noqa: ANN401 - a cell
    """Return a value as a frame holds it: plain, and None where it is no number."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return None if value != value else float(value)  # noqa: PLR0124 - nan alone is not itself
    return value


def _html_table(table: PrintedTable) -> str:
    """Return a table for notebooks; the first cell of a row is its head."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.head)
    rows = "".join(
        f"<tr><th>{html.escape(name)}</th>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"
        for name, *cells in table.rows
    )
    below = "".join(f"<p>{html.escape(line)}</p>" for line in table.foot)
    if not table.head:
        return (f"<p>{html.escape(table.title)}</p>" if table.title else "") + below
    title = f"<caption>{html.escape(table.title)}</caption>" if table.title else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{below}"


def _marked(text: str) -> str:
    """Return a text of which Markdown reads nothing as a mark or a tag, on one line."""
    return _TAGS.sub(lambda found: html.escape(found[0]), _MARKS.sub(r"\\\1", " ".join(text.split())))


def _line(text: str) -> str:
    """Return the same as a line of its own, whose start Markdown reads as no list, title or quotation."""
    return _STARTS.sub(lambda found: f"{found[0]}\\" if found[0].isdigit() else f"\\{found[0]}", _marked(text))


def _markdown_table(table: PrintedTable) -> Iterable[str]:
    """Yield the title, the table and the lines under it."""
    if table.title:
        yield f"**{_marked(table.title)}**"
    if table.head:
        sides = [":---" if k < table.words else "---:" for k in range(len(table.head))]
        rows = (map(_marked, table.head), sides, *(map(_marked, row) for row in table.rows))
        yield "\n".join(f"| {' | '.join(row)} |" for row in rows)
    yield from map(_line, table.foot)
