"""``unpooled link STUDY``: link rows of parties on this disk, or take over what a networked run of it left at one party."""

from __future__ import annotations

from pathlib import Path

import typer

from unpooled.cli.progress import progress, stopped, waiting


def link(
    study: Path = typer.Argument(help='The study file, whose model is "link".'),
    *,
    party: list[Path] = typer.Option([], "--party", help="The party.toml of one participant on this disk; repeat for each."),
    config: Path | None = typer.Option(None, "--config", help="After a run over a network: your party.toml."),
    folder: str | None = typer.Option(
        None,
        "--folder",
        help="Where linked parties are written, next to each party.toml [default: linked; linked-2 where that holds the rows of another linking].",
    ),
    out: Path | None = typer.Option(None, "--out", help="Folder for transcript and result [default: STUDY.run]."),
    as_json: bool = typer.Option(False, "--json", help="Print the result for machines."),
) -> None:
    """Link rows, and write for each party the party file and card of the people whom all have. A run that was cut short is continued.

    The policy of linked rows is that of the party's own file. Nothing is overwritten.
    """
    from unpooled.cli.say import say_json
    from unpooled.errors import UsageError
    from unpooled.study.about import write_about
    from unpooled.study.files import read_study
    from unpooled.study.linked_party import check_same_data, folder_of, linked_party, map_of
    from unpooled.study.run import compile_study, run_study

    plan = compile_study(read_study(study))
    if not plan.links:
        msg = f'{study.name} is a study of model {plan.study.model!r}: `unpooled run` runs it; rows are linked by model = "link"'
        raise UsageError(msg)
    if bool(party) == (config is not None):
        raise UsageError(
            "say where the parties are: --party PATH/TO/party.toml for each of them; or, after `unpooled run --network`, --config party.toml"
        )
    configs = party or ([] if config is None else [config])
    for one in configs:
        check_same_data(one, plan)
        folder_of(one, plan, folder)
    if party:
        where = out or study.with_suffix(".run")
        with progress(quiet=as_json) as say, stopped("run the same command again"):
            run_study(study, party, where, waiting(say))
            write_about(where, study, plan, party)
        if not as_json:
            typer.echo((where / "result.txt").read_text())
            typer.echo(plan.statement)
    written = []
    for one in configs:
        target, there = folder_of(one, plan, folder)
        written.append((target / "party.toml" if there else linked_party(one, study, target)[0], there))
    ids = f"psi:{map_of(configs[0], plan)}"
    if as_json:
        say_json(
            "link",
            {
                "plan": plan.hash,
                "ids": ids,
                "parties": [str(one) for one, _ in written],
                "statement": plan.statement.to_dict(),
            },
        )
        return
    for file, there in written:
        typer.echo(
            f"linked rows: {file} and its card were there already"
            if there
            else f"linked rows: wrote {file}, its card next to it"
        )
    typer.echo(f'a study of these cards says: ids = "{ids}"')
