"""``unpooled party ...``: what an organisation does before and during a study, from its first look at a file to its console."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from unpooled.cli import officer
from unpooled.cli.say import examples, say_json, write_new

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Plan
    from unpooled.privacy.unit import Target
    from unpooled.protocol.party import Party
    from unpooled.study.data import Findings
    from unpooled.study.files import PartySection
    from unpooled.study.reading import DataFormat
    from unpooled.study.run import Costs, KeptValues
    from unpooled.study.sniff import Sniffed
    from unpooled.study.sources.table import Source


# --- Init ------------------------------------------------------------------------------------------------------------------
# ``unpooled party init``: look at a data file, hold it against its declarations, and set up its party.

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
        "match); append ;complete (rows without a value are left out), ;model (and which are is modelled), ;absent or ;indicator for missing values, "
        ";<0.5 for a limit of detection, ;typical=12,8 for the centre and deviation that values are known to have, or the share of each category.",
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
    cap: int | None = typer.Option(
        None,
        "--cap",
        help="For hidden links: the most rows that the data may ever have, which the card tells in the place of their number.",
    ),
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
        _show_sniffed(data, sniffed)
    from unpooled.study.files import PartySection

    rows = household_rows if household else 1
    ledger, place = f"{name}.ledger", written_in(data, folder)
    party = PartySection(name, place, ledger, id_column, tuple(label), household, rows, household_elsewhere, cap)
    asked = _Total(epsilon, delta, unit or ("household" if household else "record"))
    if template:
        _template(folder, data, sniffed, asked, party, as_json=as_json)
        return
    if not column:
        if not as_json:
            _propose(sniffed, {id_column, household, *label})
        msg = f"declare at least one column of {data.name}: --column NAME=LOW:HIGH or NAME=A,B,C (or --template, and declare them in a file)"
        raise StudyError(msg)
    from unpooled.study.party import create_party
    from unpooled.study.sniff import declared

    columns = declared(column, [kind for kind in sniffed.kinds if kind not in {id_column, household, *label}])
    findings, people = _inspected(data, columns, party, sniffed.form, as_json=as_json)
    budget = asked.target(people["ids" if household else "rows"] if cap is None else cap)
    together: dict[str, Any] = {
        "cap": cap,
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
    from unpooled.study.sources.table import SourceSection, source_of

    return source_of(given, SourceSection(), folder, name) or Path(given)


def _sniffed(data: Path | Source, given: dict[str, Any]) -> Sniffed:
    from unpooled.study.data import SPARSE, must_exist, sparse_kinds
    from unpooled.study.reading import DataFormat
    from unpooled.study.sniff import Sniffed, read_or_words, sniff_source

    if not isinstance(data, Path):
        return sniff_source(data, given)
    must_exist(data)
    return Sniffed(DataFormat(**given), sparse_kinds(data)) if data.suffix == SPARSE else read_or_words(data, given)


def _show_sniffed(data: Path | Source, sniffed: Sniffed) -> None:
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
    from unpooled.study.data import inspect, read_table, refuse
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
    gaps = [{"columns": list(names), "rows": count} for names, count in findings.gaps]
    return {"format": form, "findings": faults, "gaps": gaps}


def _template(
    folder: Path, data: Path | Source, sniffed: Sniffed, asked: _Total, party: PartySection, *, as_json: bool
) -> None:
    from unpooled.errors import StudyError
    from unpooled.study.data import read_table
    from unpooled.study.sniff import template

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


# --- Kept ------------------------------------------------------------------------------------------------------------------
# ``unpooled party show`` and ``unpooled party export``: what a party keeps of a study, for the party itself.

_CONFIG = typer.Option(Path("party.toml"), "--config", help="The party file.")
_OWN = "computed from your raw data: for those who may see them, and for nobody else"


def show(
    study: Path | None = typer.Argument(None, help="The study file; without it, the plans for which something is kept."),
    config: Path = _CONFIG,
    *,
    analysis: str = typer.Option("", "--analysis", help="One of several analyses of the study, by name."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Show what this party keeps of a study: coefficients of its own columns in their own units, and the arrays behind them.

    All of it was computed from raw data and never left this party.
    """
    from unpooled.protocol.terms import as_table
    from unpooled.study.party import keeper_of
    from unpooled.study.run import KeptValues

    if study is None:
        keeper = keeper_of(config)
        plans = {plan: keeper.names(plan) for plan in keeper.plans()}
        if as_json:
            say_json("party-show-plans", {"plans": plans})
            return
        for plan, names in plans.items():
            typer.echo(f"plan {plan[:16]}  {', '.join(names)}")
        typer.echo("Give a study file to see what is kept of it." if plans else "Nothing is kept here.")
        return
    kept = KeptValues.of(config, study, analysis)
    if as_json:
        arrays = {name: values.tolist() for name, values in kept.arrays.items()}
        data = {"party": kept.party, "plan": kept.plan.hash, "terms": kept.terms, "arrays": arrays}
        say_json("party-show", data)
        return
    _some(kept, study)
    if kept.terms:
        typer.echo(f"{as_table(kept.terms)}\n")
    for name, values in kept.arrays.items():
        typer.echo(f"{name:<24}{values.dtype} {'x'.join(map(str, values.shape)) or 'number'}")
    typer.echo(f"({_OWN})")


def export(
    study: Path = typer.Argument(help="The study file."),
    config: Path = _CONFIG,
    *,
    analysis: str = typer.Option("", "--analysis", help="One of several analyses of the study, by name."),
    out: Path = typer.Option(..., "--out", help="A new file: .csv or .json (coefficients), or .npz (all arrays)."),
    as_json: bool = typer.Option(False, "--json", help="Print data for machines."),
) -> None:
    """Write what this party keeps of a study into a file that only its owner may read."""
    import io

    import msgspec
    import numpy as np

    from unpooled.errors import UsageError
    from unpooled.protocol.terms import as_csv
    from unpooled.study.run import KeptValues

    kept = KeptValues.of(config, study, analysis)
    _some(kept, study)
    if out.suffix == ".npz":
        whole = io.BytesIO()
        arrays: dict[str, Any] = dict(kept.arrays)
        np.savez(whole, **arrays)
        body = whole.getvalue()
    elif out.suffix not in {".csv", ".json"}:
        msg = f"{out.name}: name the file .csv or .json for coefficients, .npz for all arrays"
        raise UsageError(msg)
    elif not kept.terms and "predictions" in kept.arrays and out.suffix == ".csv":
        body = _predictions(kept, config)
    elif not kept.terms:
        msg = f"model {kept.plan.study.model!r} keeps nothing here that has a name of its own: export the arrays, --out NAME.npz"
        raise UsageError(msg)
    elif out.suffix == ".csv":
        body = as_csv(kept.terms).encode()
    else:
        body = msgspec.json.format(msgspec.json.encode({"party": kept.party, "plan": kept.plan.hash, "terms": kept.terms}))
    write_new(out, body)
    if as_json:
        say_json("party-export", {"written": str(out), "party": kept.party, "plan": kept.plan.hash})
    else:
        typer.echo(f"written: {out} ({_OWN})")


def _predictions(kept: KeptValues, config: Path) -> bytes:
    """New rows' predictions (the linear predictor), next to their ids where the party names a column of them."""
    from unpooled.study.files import read_party
    from unpooled.study.party import open_party

    name, ids = read_party(config).party.id, None
    if name is not None:
        with open_party(config) as party:
            ids = party.table.ids()
    return prediction_lines(kept.arrays["predictions"], name, ids)


def prediction_lines(values: NDArray[Any], name: str | None, ids: Sequence[object] | None) -> bytes:
    """Comma-separated values: one column of predictions, or one for each decision of a row (a class, or a level but the last)."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rows = values.reshape(len(values), -1).tolist()
    columns = ["prediction"] if values.ndim == 1 else [f"prediction {k + 1}" for k in range(values.shape[1])]
    if name is None or ids is None:
        writer.writerows([columns, *rows])
    else:
        writer.writerows([[name, *columns], *([each, *row] for each, row in zip(ids, rows, strict=True))])
    return text.getvalue().encode()


def _some(kept: KeptValues, study: Path) -> None:
    from unpooled.errors import UsageError

    if not kept.arrays:
        msg = f"party {kept.party!r} keeps nothing of {study.name} (plan {kept.plan.hash[:16]}): has it run, with this very study file?"
        raise UsageError(msg)


# --- Console ---------------------------------------------------------------------------------------------------------------
# ``unpooled party console``: pages on this machine where a party's people read studies, decide about them, and see the budget.


def console(
    config: Path = typer.Option(Path("party.toml"), "--config", help="The party file."),
    *,
    inbox: Path | None = typer.Option(
        None, "--inbox", help="The folder of studies to decide about [default: inbox, next to the party file]."
    ),
    runs: Path | None = typer.Option(None, "--runs", help="A folder of finished runs [default: that of the party file]."),
    port: int = typer.Option(0, "--port", min=0, max=65535, help="The port on this machine; 0: any free one."),
    read_only: bool = typer.Option(
        False, "--read-only", help="For an auditor: everything is shown, nothing can be decided."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the address as data for machines."),
) -> None:
    """Open the console: read studies, approve or decline them, withdraw, audit, and see the budget, in a browser on this machine.

    It prints an address that opens once, in one browser. Nobody else on the network can reach it. Ctrl-C ends it.
    """
    from unpooled.errors import UsageError
    from unpooled.study.party import open_account

    try:
        from unpooled.console.app import serve
        from unpooled.console.desk import OfficeDesk
    except ModuleNotFoundError as error:
        if error.name not in {"starlette", "uvicorn"}:
            raise
        raise UsageError("this needs the console extra: pip install 'unpooled[console]'") from None

    with open_account(config) as party:  # what is wrong with the party file or the ledger is said here, and not on a page
        name = party.name
    folder = inbox or config.parent / "inbox"

    def opened(address: str) -> None:
        if as_json:
            say_json("party-console", {"party": name, "address": address, "inbox": str(folder), "read_only": read_only})
            return
        typer.echo(
            f"The console of {name} is open{' (read-only)' if read_only else ''}. This address opens once, in one browser of this machine:\n\n  {address}\n"
        )
        typer.echo(f"Studies to decide about lie in {folder}. Ctrl-C ends the console.")

    serve(OfficeDesk(config, folder, runs or config.parent), port, opened, read_only=read_only)


# --- Party -----------------------------------------------------------------------------------------------------------------
# ``unpooled party ...``: what an organisation does before and during a study.

app = typer.Typer(no_args_is_help=True, help="Set up a party, check a study against its policy, look at its ledger.")

app.command(epilog=examples("party init"))(init)
app.command(epilog=examples("party ledger"))(officer.ledger)
app.command(epilog=examples("party console"))(console)
app.command(epilog=examples("party show"))(show)
app.command(epilog=examples("party export"))(export)
for command in (officer.withdraw, officer.card, officer.rows, officer.forget, officer.verify):
    app.command(epilog=examples(f"party {command.__name__}"))(command)

_JSON = typer.Option(False, "--json", help="Print data for machines.")


@app.command(epilog=examples("party check"))
def check(
    study: Path = typer.Argument(help="The study file."),
    config: Path = _CONFIG,
    *,
    approve: bool = typer.Option(False, "--approve", help="Approve the plan without asking."),
    by: str = typer.Option("", "--by", help="Who approves it; the ledger keeps the name [default: your account's name]."),
    reason: str = typer.Option("", "--reason", help="Why; the ledger keeps it."),
    data_changed: str = typer.Option(
        "",
        "--data-changed",
        metavar="REASON",
        help="Approve it for other data than before: why they changed; the ledger keeps it.",
    ),
    as_json: bool = _JSON,
) -> None:
    """Show what a study would release here and cost, hold it against the policy, and approve it.

    In a terminal it asks before it approves; elsewhere nothing is approved without --approve.
    """
    import sys

    from unpooled.errors import PolicyRefusal
    from unpooled.study.files import purpose_of, read_study
    from unpooled.study.finished import account
    from unpooled.study.party import open_party
    from unpooled.study.run import advice, approve_other_data, compile_study, costs_of, record_approval

    compiled, purpose = compile_study(read_study(study)), purpose_of(study)
    with open_party(config) as party:
        notes = advice(compiled)
        costs = costs_of(party, compiled)
        if not as_json:
            _show(study, party, compiled, purpose, costs, notes)
        party.consider(compiled, approved=True)
        if data_changed:
            approve_other_data((party,), compiled, purpose, data_changed, by)
        elif other := party.other_data(compiled):
            raise PolicyRefusal(other)
        already = party.ledger.approved(compiled.hash)
        asked = not (already or approve or as_json) and sys.stdin.isatty()
        if not as_json:
            typer.echo("policy: this plan fits.")
        if not already and (approve or (asked and typer.confirm(f"Approve plan {compiled.hash[:16]}?"))):
            record_approval(party, compiled, purpose, by=by, reason=reason)
            said = f"Approved{f' by {name}' if (name := by or account()) else ''}, and written into the ledger."
        else:
            said = (
                f"It is already approved, {standing.data_words}."
                if (standing := party.ledger.approval(compiled.hash))
                else "Not approved. Run again with --approve once you agree."
            )
        if not as_json:
            typer.echo(said)
            return
        told: dict[str, Any] = {
            "party": party.name,
            "plan": compiled.hash,
            "statement": compiled.statement.to_dict(),
            "notes": notes,
            "purpose": purpose,
        }
        if costs is None:
            told |= {"spent_epsilon": 0.0, "spent": "nothing", "after_this_plan": 0.0}
        else:
            told |= {
                "spent_epsilon": costs.spent.number,
                "spent": costs.spent.words,
                "after_this_plan": costs.after.number,
            }
        told |= {"approved": party.ledger.approved(compiled.hash)}
        say_json("party-check", told)


def _show(study: Path, party: Party, compiled: Plan, purpose: str, costs: Costs | None, notes: Sequence[str]) -> None:
    """Print a plan, its promise, what it costs here, and what speaks against it."""
    from unpooled.study.files import is_forced
    from unpooled.study.run import costs_in_words, expectations_of, waiting_plans

    if purpose:
        typer.echo(f"Purpose, as {study.name} says (the plan's hash does not hold it): {purpose}\n")
    typer.echo(f"{compiled}\n\n{compiled.statement}\n\n{costs_in_words(party, compiled, costs)}\n")
    for note in notes:
        typer.echo(f"Note: {note}.")
    expected = expectations_of(compiled)
    for table in expected.words:
        typer.echo(f"{table}\n")
    for doubt in expected.doubts:
        forced = "The study says force = true: it runs all the same" if is_forced(study) else "A run of it will be refused"
        typer.echo(f"Warning: {doubt}. {forced}.")
    if waiting := waiting_plans(party, compiled.hash):
        typer.echo(
            f"Note: {len(waiting)} more {'study is' if len(waiting) == 1 else 'studies are'} approved here and not run yet; what they cost is not in these numbers."
        )
