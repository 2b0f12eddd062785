"""``unpooled party init``: look at a data file, hold it against its declarations, and set up its party."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from unpooled.cli.say import say_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.unit import Target
    from unpooled.study.files import PartySection
    from unpooled.study.inspect import Findings
    from unpooled.study.reading import DataFormat
    from unpooled.study.sniff import Sniffed
    from unpooled.study.sources.source import Source

#: So many columns are listed where none is declared.
_LISTED = 40


def init(
    given: str | None = typer.Argument(
        None,
        metavar="[DATA]",
        help="The data file (CSV, Parquet, Feather, Excel, or .npz of sparse columns), which stays where it is; or 'sql:SELECT ...' over files.",
    ),
    name: str | None = typer.Option(None, "--name", help="The party's name in studies."),
    column: list[str] = typer.Option(
        [],
        "--column",
        help="A declaration: age=0:100, smoker=never,former,current, seen=2015-01-01:2024-12-31, 'nm*=0:3' (all that "
        "match); append ;absent or ;indicator for missing values.",
    ),
    id_column: str | None = typer.Option(None, "--id", help="The column with row ids; it is never used as data."),
    label: list[str] = typer.Option([], "--label", help="A column the party uses itself (a response); it never leaves."),
    epsilon: float = typer.Option(1.0, help="What all studies together may spend."),
    delta: float | None = typer.Option(None, help="The delta of that total [default: min(1e-5, 0.1 / rows), as a study's]."),
    unit: str | None = typer.Option(
        None, help="The unit of that total: record, attribute or household [default: record, or household]."
    ),
    household: str | None = typer.Option(None, "--household", help="The column whose ids say which rows belong together."),
    household_rows: int = typer.Option(1, "--household-rows", help="So many rows of each of those ids count in any study."),
    folder: Path = typer.Option(Path(), "--folder", help="Where to write party.toml, the card and the ledger."),
    helper: str | None = typer.Option(
        None,
        "--helper",
        metavar="NAME",
        help="Set up a helper of this name: an organisation without data, for studies of joint moments.",
    ),
    contact: str = typer.Option("", "--contact", help="Of a helper: whom to ask."),
    config: Path | None = typer.Option(None, "--config", help="A party file that you wrote: make its ledger, key and card."),
    *,
    household_elsewhere: bool = typer.Option(
        True, "--held-elsewhere/--held-once", help="Whether other parties may hold rows of the same ids."
    ),
    separator: str | None = typer.Option(None, "--separator", help="What stands between cells; 'tab' for a tab."),
    decimal: str | None = typer.Option(None, "--decimal", help="The decimal sign: . or ,"),
    encoding: str | None = typer.Option(None, "--encoding", help="utf-8, windows-1252, latin-1, utf-16, ..."),
    quote: str | None = typer.Option(None, "--quote", help="What stands around texts."),
    null: list[str] = typer.Option([], "--null", help="A word for a missing value, beside an empty cell; repeat for each."),
    dates: str | None = typer.Option(None, "--dates", help="How dates are written: %Y-%m-%d, %d.%m.%Y, ..."),
    sheet: str | None = typer.Option(None, "--sheet", help="The sheet of an Excel file."),
    template: bool = typer.Option(False, "--template", help="Only write a commented party.toml, to be completed by hand."),
    new_budget: bool = typer.Option(
        False, "--new-budget", help="Set up a second budget for data that another ledger keeps."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Look at a data file, hold every row against its declarations, and write party.toml, the public card, the ledger and its key.

    How the file is written is found out and shown unless you say it. Columns' kinds are proposed, ranges never: they are
    yours to know. What a study would refuse is listed with its rows, for your eyes; then nothing is made.
    """
    from unpooled.errors import StudyError, UsageError

    declares = given is not None or bool(column) or template
    if helper is not None:
        _help(folder, helper, contact, alone=not declares and name is None and config is None, as_json=as_json)
        return
    if config is not None:
        _complete(config, alone=not declares, new_budget=new_budget, as_json=as_json)
        return
    if given is None or name is None:
        msg = "give the data file and --name, or --config with a party file that you wrote"
        raise UsageError(msg)
    from unpooled.study.party import written_in

    data = _named(given, folder, name)
    if not isinstance(data, Path):
        data.of_people(id_column, household)
    said: dict[str, Any] = {"decimal": decimal, "encoding": encoding, "quote": quote, "dates": dates, "sheet": sheet}
    said |= {"separator": "\t" if separator in {"tab", "\\t"} else separator, "nulls": tuple(null) or None}
    sniffed = _sniffed(data, {key: value for key, value in said.items() if value is not None})
    if not as_json:
        _show(data, sniffed)
    from unpooled.study.files import PartySection

    rows = household_rows if household else 1
    ledger, place = f"{name}.ledger", written_in(data, folder)
    party = PartySection(name, place, ledger, id_column, tuple(label), household, rows, household_elsewhere)
    asked = _Total(epsilon, delta, unit or ("household" if household else "record"))
    if template:
        _template(folder, data, sniffed, asked, party, as_json=as_json)
        return
    if not column:
        if not as_json:
            _propose(sniffed, {id_column, household, *label})
        msg = f"declare at least one column of {data.name}: --column NAME=LOW:HIGH or NAME=A,B,C (or --template, and declare them in a file)"
        raise StudyError(msg)
    from unpooled.study.declare import declared
    from unpooled.study.party import create_party

    columns = declared(column, [kind for kind in sniffed.kinds if kind not in {id_column, household, *label}])
    findings, people = _inspected(data, columns, party, sniffed.form, as_json=as_json)
    budget = asked.target(people["ids" if household else "rows"])
    together: dict[str, Any] = {
        "household": household,
        "household_rows": rows,
        "household_elsewhere": household_elsewhere,
    }
    config, card = create_party(
        folder, name, data, columns, budget, id_column, tuple(label), sniffed.form, new_budget=new_budget, **together
    )
    if as_json:
        made = {"party": str(config), "card": str(card), "budget": budget}
        say_json("party-init", {**made, **people, **_told(findings, sniffed.form)})
        return
    typer.echo(
        f"wrote {config} and the ledger with its key (keep these to yourself), and the public card {card} (give it to the study)"
    )


def _help(folder: Path, name: str, contact: str, *, alone: bool, as_json: bool) -> None:
    """Write the files of a helper, unless data or declarations were given too."""
    from unpooled.errors import UsageError
    from unpooled.study.party import create_helper

    if not alone:
        raise UsageError("a helper has no data and no declarations: give --helper NAME alone, with --folder and --contact")

    config, card = create_helper(folder, name, contact)
    if as_json:
        say_json("party-init-helper", {"helper": name, "party": str(config), "card": str(card)})
        return
    typer.echo(
        f"wrote {config} and a ledger with its key (keep these to yourself), and the public card {card} (give it to the study). {name} has no data: "
        "it learns that a study runs, its size and shape, and nothing is debited here"
    )


@dataclass(frozen=True)
class _Total:
    """The total that all studies together may spend, as it was typed."""

    epsilon: float
    delta: float | None
    unit: str

    def target(self, people: int) -> Target:
        from unpooled.privacy.plan import default_delta
        from unpooled.privacy.unit import Target, Unit

        return Target(self.epsilon, default_delta(people) if self.delta is None else self.delta, Unit.parse(self.unit))


def _named(given: str, folder: Path, name: str) -> Path | Source:
    from unpooled.study.sources.source import SourceSection, source_of

    return source_of(given, SourceSection(), folder, name) or Path(given)


def _sniffed(data: Path | Source, given: dict[str, Any]) -> Sniffed:
    from unpooled.study.data import SPARSE, must_exist, sparse_kinds
    from unpooled.study.reading import DataFormat
    from unpooled.study.sniff import Sniffed, read_or_words, sniff_source

    if not isinstance(data, Path):
        return sniff_source(data, given)
    must_exist(data)
    return Sniffed(DataFormat(**given), sparse_kinds(data)) if data.suffix == SPARSE else read_or_words(data, given)


def _show(data: Path | Source, sniffed: Sniffed) -> None:
    if sniffed.words:
        typer.echo(f"{data.name} is read with {sniffed.words} (written down under [format]; say otherwise if that is wrong)")
    for note in sniffed.notes:
        typer.echo(f"Note: {note}")


def _propose(sniffed: Sniffed, others: set[str | None]) -> None:
    from unpooled.study.sniff import proposal

    columns = [(name, kind) for name, kind in sniffed.kinds.items() if name not in others]
    for name, kind in columns[:_LISTED]:
        typer.echo(f"{kind:<32} " + (f"--id '{name}'" if kind.endswith("(ids?)") else f"--column '{proposal(name, kind)}'"))
    if len(columns) > _LISTED:
        typer.echo(f"and {len(columns) - _LISTED:,} more")


def _inspected(
    data: Path | Source, columns: Sequence[Column], party: PartySection, form: DataFormat, *, as_json: bool
) -> tuple[Findings, dict[str, int]]:
    """Return the columns that were found, and the number of rows (and of ids, where rows belong together)."""
    from unpooled.study.data import read_table
    from unpooled.study.inspect import inspect, refuse
    from unpooled.study.party import check_household, data_of

    names = (*(column.name for column in columns), *party.labels)
    check_household(party, names)
    table = read_table(data, names, party.id, form, columns)
    findings = inspect(data, columns, party.id, party.labels, form, table, party.household)
    if as_json and findings.refused:
        say_json("party-init-refused", _told(findings, form))
    elif not as_json:
        for line in findings.lines():
            typer.echo(line)
    refuse(findings, data.name)
    together = data_of(data, names, party, form, columns).household
    return findings, {"rows": findings.rows, **({} if together is None else {"ids": together[0]})}


def _told(findings: Findings, form: DataFormat) -> dict[str, Any]:
    faults = [
        {"column": f.column, "what": f.what, "refused": f.refused, "count": f.count, "rows": f.rows} for f in findings.faults
    ]
    return {"format": form, "findings": faults}


def _template(
    folder: Path, data: Path | Source, sniffed: Sniffed, asked: _Total, party: PartySection, *, as_json: bool
) -> None:
    from unpooled.errors import StudyError
    from unpooled.study.data import read_table
    from unpooled.study.declare import template

    budget = asked.target(read_table(data, tuple(sniffed.kinds)[:1], form=sniffed.form).n_rows)
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / "party.toml"
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(template(party, sniffed, budget))
    except FileExistsError:
        msg = f"{out} exists already: edit it, or choose another folder"
        raise StudyError(msg) from None
    if as_json:
        say_json("party-init-template", {"party": str(out), "format": sniffed.form, "kinds": sniffed.kinds})
    else:
        typer.echo(
            f"wrote {out}: declare its columns there, then make the ledger and the card: unpooled party init --config {out}"
        )


def _complete(config: Path, *, alone: bool, new_budget: bool, as_json: bool) -> None:
    """Make what a party file that somebody wrote asks for, unless data or declarations were given too."""
    from unpooled.errors import UsageError
    from unpooled.study.files import read_party
    from unpooled.study.party import complete_party, place_in

    if not alone:
        msg = "a party file says all of it: give --config alone (with --new-budget, if it is meant), or the data and its declarations"
        raise UsageError(msg)
    text = read_party(config)
    data = place_in(config.parent, text)
    findings, people = _inspected(data, text.columns, text.party, text.format, as_json=as_json)
    card = complete_party(config, new_budget=new_budget)
    if as_json:
        say_json("party-init", {"party": str(config), "card": str(card), **people, **_told(findings, text.format)})
    else:
        typer.echo(
            f"made the ledger of {config} with its key (keep them to yourself), and the public card {card} (give it to the study)"
        )
