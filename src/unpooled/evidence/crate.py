"""A Five Safes RO-Crate of a finished run: files that may be shown, and their description as linked data. It holds no data and no transcript.

The crate claims an action only where something says that it happened: the run, an approval in a ledger or a policy, releases that were debited.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

import unpooled
from unpooled.errors import UsageError
from unpooled.evidence.document import Mark, counted
from unpooled.protocol.terms import as_csv
from unpooled.report.page import number, page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from unpooled.evidence.document import LedgerFacts
    from unpooled.study.finished import Run

#: An entity of linked data.
Entity = dict[str, Any]
#: The version of the crate, and that of the folder of the study: Workflow RO-Crate 1.0 builds on the older one.
_CRATE, _FORMER = "https://w3id.org/ro/crate/1.2", "https://w3id.org/ro/crate/1.1"
_WORKFLOW = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
_PROFILE = "https://w3id.org/5s-crate/0.4"
_METADATA = "ro-crate-metadata.json"
_DONE, _FAILED = "http://schema.org/CompletedActionStatus", "http://schema.org/FailedActionStatus"
#: The folder of the study's own text, which is a Workflow RO-Crate: the study file is the workflow, and unpooled runs it.
_STUDY = "workflow/"
_FORMATS = {
    "txt": "text/plain",
    "json": "application/json",
    "csv": "text/csv",
    "html": "text/html",
    "md": "text/markdown",
    "toml": "application/toml",
}
_NAMES = {
    "plan.txt": "Plan: every release of the study",
    "statement.txt": "Privacy statement of the plan",
    "result.json": "Result, as data",
    "result.csv": "Result, line by line",
    "report.html": "Report of the run, worked out from its messages",
    "dossier/dossier.md": "Dossier for those who approve",
    "dossier/dossier.html": "Dossier for those who approve, as a page",
    "workflow/study.json": "Study: its whole text with the cards of the organisations",
    "workflow/study.toml": "Study file",
}


def crate(
    run: Run, ledgers: Sequence[LedgerFacts] = (), more: Mapping[str, bytes] | None = None, licence: str = ""
) -> dict[str, bytes]:
    """Return the files of the crate by their paths. ``more``: a study file or a dossier, by their paths; ``licence``: a URL."""
    if licence and not re.fullmatch(r"https?://[^\s<>\"]+", licence):
        msg = f"--license is the address of a licence (https://...), not {licence!r}"
        raise UsageError(msg)
    files = {**_written(run), **(more or {})}
    today = datetime.now(UTC).date().isoformat()
    files[f"{_STUDY}{_METADATA}"] = _json(_of_workflow(files, today, licence), _FORMER)
    files[_METADATA] = _json([*_root(run, files, ledgers, today, licence)])
    return files


def _written(run: Run) -> dict[str, bytes]:
    """Return the run's own files, all worked out anew."""
    plan, terms = run.plan, run.terms
    result = {"plan": plan.hash, "result": run.result, "statement": plan.statement.to_dict()}
    files = {
        "plan.txt": f"{plan}\n".encode(),
        "statement.txt": f"{plan.statement}\n".encode(),
        "result.json": msgspec.json.format(msgspec.json.encode(result)),
        "report.html": page(run).encode(),
        f"{_STUDY}study.json": msgspec.json.format(msgspec.json.encode(plan.study)),
    }
    return files | ({"result.csv": as_csv(terms).encode()} if terms else {})


def _json(graph: list[Entity], version: str = _CRATE) -> bytes:
    text = json.dumps({"@context": f"{version}/context", "@graph": graph}, indent=1, ensure_ascii=False)
    return f"{text}\n".encode()


# --- the crate --------------------------------------------------------------------------------------------------------------------


def _root(
    run: Run, files: Mapping[str, bytes], ledgers: Sequence[LedgerFacts], today: str, licence: str
) -> Iterator[Entity]:
    """Yield the entities of the whole crate, the descriptor and the root first."""
    plan, shown = run.plan, [path for path in files if not path.startswith(_STUDY)]
    actions = [_ran(run, shown), *_actions(ledgers, holds=plan.statement.holds)]
    yield _descriptor(_CRATE)
    yield {
        "@id": "./",
        "@type": "Dataset",
        "conformsTo": {"@id": _PROFILE},
        "name": f"Study of model {plan.study.row}, plan {plan.hash[:16]}",
        "description": plan.statement.headline,
        "datePublished": today,
        **_licensed(licence),
        "hasPart": [{"@id": _STUDY}, *({"@id": path} for path in shown)],
        "mainEntity": {"@id": _STUDY},
        "mentions": [{"@id": action["@id"]} for action in actions],
        "sourceOrganization": {"@id": "#project"},
    }
    yield {"@id": _PROFILE, "@type": "Profile", "name": "Five Safes RO-Crate profile"}
    if licence:
        yield {"@id": licence, "@type": "CreativeWork", "name": licence}
    yield {
        "@id": _STUDY,
        "@type": "Dataset",
        "name": f"The study as a workflow: model {plan.study.row}",
        "conformsTo": {"@id": _WORKFLOW},
    }
    yield from (_file(path, path, files[path]) for path in shown)
    yield from actions
    yield from _inputs(run)
    yield from _people(run, ledgers)
    yield {"@id": "#unpooled", "@type": "SoftwareApplication", "name": "unpooled", "softwareVersion": unpooled.__version__}


def _descriptor(*kept: str) -> Entity:
    """Return the entity of the description itself, which keeps to these specifications."""
    specifications = [{"@id": one} for one in kept]
    conforms = specifications[0] if len(kept) == 1 else specifications
    return {"@id": _METADATA, "@type": "CreativeWork", "about": {"@id": "./"}, "conformsTo": conforms}


def _licensed(licence: str) -> Entity:
    return {"license": {"@id": licence} if licence else f"Licence: {Mark.FILL}"}


def _file(at: str, path: str, body: bytes) -> Entity:
    """Return the entity of a file; ``at`` is its path in this crate, ``path`` in the whole."""
    return {
        "@id": at,
        "@type": "File",
        "name": _NAMES[path],
        "encodingFormat": _FORMATS[path.rpartition(".")[2]],
        "contentSize": str(len(body)),
        "sha256": sha256(body).hexdigest(),
    }


# --- actions ----------------------------------------------------------------------------------------------------------------------


def _ran(run: Run, shown: Sequence[str]) -> Entity:
    ended = _moment(run.about.finished) if run.about else ""
    results = [path for path in shown if path.startswith("result.")]
    return {
        "@id": "#run",
        "@type": "CreateAction",
        "name": f"Run of plan {run.plan.hash[:16]}",
        "description": "Name and time are as those who ran the study wrote them down.",
        "agent": {"@id": "#run-by"},
        "instrument": {"@id": _STUDY},
        "object": [{"@id": f"#{name}"} for name in _asked(run)],
        "result": [{"@id": path} for path in results],
        "actionStatus": _DONE,
        **({"endTime": ended} if ended else {}),
    }


def _actions(ledgers: Sequence[LedgerFacts], *, holds: bool) -> Iterator[Entity]:
    """Yield the approvals that ledgers or policies hold, and the releases that were debited and answered under a guarantee."""
    for one in ledgers:
        said = one.withdrawal or one.approval
        if said is not None or one.listed:
            gone = one.withdrawal is not None
            when = _time(said.time) if said else ""
            yield {
                "@id": f"#sign-off-{quote(one.party)}",
                "@type": "AssessAction",
                "additionalType": {"@id": "https://w3id.org/shp#SignOff"},
                "name": f"Approval of the plan {'withdrawn ' if gone else ''}by {one.party}",
                **({"description": said.reason} if said and said.reason else {}),
                "object": [{"@id": "./"}, {"@id": _STUDY}, {"@id": "#project"}],
                "instrument": {"@id": f"#policy-{quote(one.party)}"},
                "agent": {"@id": _signer(one)},
                "actionStatus": _FAILED if gone else _DONE,
                **({"endTime": when} if when else {}),
            }
        if holds and one.answered:
            when = _time(one.last)
            yield {
                "@id": f"#disclosure-{quote(one.party)}",
                "@type": "AssessAction",
                "additionalType": {"@id": "https://w3id.org/shp#DisclosureCheck"},
                "name": f"Disclosure control at {one.party}: {one.debited} releases, made random as planned and debited",
                "description": "The party's software checked that nothing left but planned releases. No person looked at the values.",
                "object": {"@id": "./"},
                "agent": {"@id": "#unpooled"},
                "actionStatus": _DONE,
                **({"endTime": when} if when else {}),
            }


def _signer(one: LedgerFacts) -> str:
    """Return the id of who approved or withdrew: a person where the ledger names one, else the organisation."""
    said = one.withdrawal or one.approval
    return f"#signed-by-{quote(one.party)}" if said and said.by else f"#organisation-{quote(one.party)}"


def _moment(finished: str) -> str:
    """Return the time in a run's note as RFC 3339; empty where it is no time."""
    found = re.fullmatch(r"(\d{4}-\d{2}-\d{2}) (\d{2}:\d{2}) UTC", finished)
    return f"{found[1]}T{found[2]}:00Z" if found else ""


def _time(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds > 0 else ""
    except (ValueError, OverflowError, OSError):  # after the year 9999
        return ""


# --- people, organisations, inputs ------------------------------------------------------------------------------------------------


def _people(run: Run, ledgers: Sequence[LedgerFacts]) -> Iterator[Entity]:
    """Yield the project, the organisations and the people."""
    members, about = run.plan.study.members, run.about
    yield {
        "@id": "#project",
        "@type": "Project",
        "name": about.purpose if about and about.purpose else f"Project: {Mark.FILL}",
        "member": [{"@id": f"#organisation-{quote(card.name)}"} for card in members],
    }
    for card in members:
        contact = {"contactPoint": {"@id": f"#contact-{quote(card.name)}"}} if card.contact else {}
        yield {"@id": f"#organisation-{quote(card.name)}", "@type": "Organization", "name": card.name, **contact}
        if card.contact:
            yield {"@id": f"#contact-{quote(card.name)}", "@type": "ContactPoint", "name": card.contact}
    ran_by = about.by if about and about.by else f"Run by: {Mark.FILL}"
    yield {"@id": "#run-by", "@type": "Person", "name": ran_by, "memberOf": {"@id": "#project"}}
    for one in ledgers:
        said = one.withdrawal or one.approval
        if said and said.by:
            here = {"@id": f"#organisation-{quote(one.party)}"}
            yield {"@id": _signer(one), "@type": "Person", "name": said.by, "affiliation": here}
        if said or one.listed:
            yield {
                "@id": f"#policy-{quote(one.party)}",
                "@type": "CreativeWork",
                "name": f"Policy of {one.party} (its party file)",
            }


def _asked(run: Run) -> dict[str, str]:
    """Return the privacy that the study asks for, by name."""
    study = run.plan.study
    return {"epsilon": number(study.epsilon), "delta": f"{study.delta:g}", "unit": study.unit}


def _inputs(run: Run) -> Iterator[Entity]:
    """Yield the privacy that the study asks for, as inputs of the workflow."""
    for name, value in _asked(run).items():
        yield {
            "@id": f"#{name}",
            "@type": "PropertyValue",
            "name": name,
            "value": value,
            "exampleOfWork": {"@id": f"#{name}-parameter"},
        }
        yield {"@id": f"#{name}-parameter", "@type": "FormalParameter", "name": name}


# --- the study as a workflow ------------------------------------------------------------------------------------------------------


def _of_workflow(files: Mapping[str, bytes], today: str, licence: str) -> list[Entity]:
    """Return the description of the folder that holds the study."""
    paths = [path for path in files if path.startswith(_STUDY)]
    main = max(paths, key=lambda path: path.endswith(".toml")).removeprefix(_STUDY)
    described = [_file(path.removeprefix(_STUDY), path, files[path]) for path in paths]
    for entity in described:
        if entity["@id"] == main:
            entity["@type"] = ["File", "SoftwareSourceCode", "ComputationalWorkflow"]
            entity["programmingLanguage"] = {"@id": "#unpooled-study"}
    return [
        _descriptor(_FORMER, _WORKFLOW),
        {
            "@id": "./",
            "@type": "Dataset",
            "conformsTo": {"@id": _WORKFLOW},
            "name": "A study of unpooled",
            "description": f"The study file is the workflow, and unpooled {unpooled.__version__} runs it. Files: {counted(sorted(p['@id'] for p in described))}.",
            "datePublished": today,
            **_licensed(licence),
            "hasPart": [{"@id": one["@id"]} for one in described],
            "mainEntity": {"@id": main},
        },
        *([{"@id": licence, "@type": "CreativeWork", "name": licence}] if licence else []),
        *described,
        {
            "@id": "#unpooled-study",
            "@type": "ComputerLanguage",
            "name": "Study file of unpooled",
            "version": unpooled.__version__,
        },
    ]
