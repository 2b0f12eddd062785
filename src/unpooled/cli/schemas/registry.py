"""The outputs of every command, and of results in Python: a JSON schema for each, and the check of what is about to be printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from unpooled.cli.schemas import parties, serving, studies
from unpooled.inference.results import TableOutput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from unpooled.cli.schemas.studies import Output

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

#: Command -> the outputs that it may print.
OUTPUTS: Final[dict[str, tuple[type[Output], ...]]] = {
    "audit": (studies.AuditOutput,),
    "contrast": (studies.ContrastOutput,),
    "submodel": (studies.SubmodelOutput,),
    "crate": (studies.CrateOutput,),
    "demo": (studies.DemoOutput,),
    "doctor": (parties.DoctorOutput,),
    "dossier": (studies.DossierOutput,),
    "link": (studies.LinkOutput,),
    "network provision": (parties.NetworkProvisionOutput,),
    "network start": (parties.NetworkStartOutput,),
    "network up": (parties.NetworkUpOutput,),
    "new": (studies.NewOutput,),
    "party card": (parties.PartyCardOutput,),
    "party check": (parties.PartyCheckOutput,),
    "party console": (parties.PartyConsoleOutput,),
    "party export": (parties.PartyExportOutput,),
    "party forget": (parties.PartyForgetOutput,),
    "party init": (
        parties.PartyInitOutput,
        parties.PartyInitHelperOutput,
        parties.PartyInitTemplateOutput,
        parties.PartyInitRefusedOutput,
    ),
    "party ledger": (parties.PartyLedgerOutput,),
    "party rows": (parties.PartyRowsOutput,),
    "party show": (parties.PartyShowOutput, parties.PartyShowPlansOutput),
    "party verify": (parties.PartyVerifyOutput,),
    "party withdraw": (parties.PartyWithdrawOutput, parties.PartyWithdrawAllOutput),
    "plan": (studies.PlanOutput,),
    "predict": (studies.PredictOutput,),
    "propose": (studies.ProposeOutput,),
    "register": (studies.RegisterOutput,),
    "report": (studies.ReportOutput, studies.ReportVerifyOutput),
    "result": (studies.ResultOutput,),
    "run": (studies.RunOutput,),
    "schema": (studies.SchemaOutput,),
    "serve": (serving.ServeOutput, serving.ServeRequest),
}

#: What ``to_json`` of a result returns in Python, by the name of its schema; and all that has one.
RESULTS: Final = {"table": (TableOutput,)}
DESCRIBED: Final[dict[str, tuple[type[msgspec.Struct], ...]]] = {**OUTPUTS, **RESULTS}
#: Of these, what a command reads instead of printing it.
READ: Final = frozenset({"serve-request"})


def tag(output: type[msgspec.Struct]) -> str:
    """Return the name and version of an output, such as ``unpooled/plan/1``."""
    return str(output.__struct_config__.tag)


#: The outputs by their names without the version.
_NAMED: Final = {tag(one).split("/")[1]: one for every in OUTPUTS.values() for one in every}


def encoded(name: str, data: Mapping[str, Any], *, lines: bool = True) -> bytes:
    """Return an output as JSON, ``schema`` first; raises ``msgspec.ValidationError`` where it does not match its schema. Not in ``lines``: in one.

    >>> print(encoded("network-up", {"up": ["north"]}).decode())
    {
      "schema": "unpooled/network-up/1",
      "up": [
        "north"
      ]
    }
    """
    output = _NAMED[name]
    body = msgspec.json.encode({"schema": tag(output), **data})
    msgspec.json.decode(body, type=output)
    return msgspec.json.format(body) if lines else body


def schema_of(command: str) -> dict[str, Any]:
    """Return the JSON Schema of what a command prints with ``--json``, or of results in Python."""
    outputs = DESCRIBED[command]
    # All kinds of output together, as type checkers know no union that is made at run time.
    found, parts = msgspec.json.schema_components(outputs, ref_template="#/$defs/{name}")
    shape = found[0] if len(found) == 1 else {"oneOf": list(found)}
    return {
        "$schema": _DIALECT,
        "title": "to_json() of a result" if command in RESULTS else f"unpooled {command} --json",
        **shape,
        "$defs": parts,
    }


def document(command: str) -> bytes:
    """Return the JSON Schema of a command, or of results, as the text of a file."""
    return msgspec.json.format(msgspec.json.encode(schema_of(command))) + b"\n"


def file_name(command: str) -> str:
    """Return the name of the file that holds a JSON Schema."""
    return f"{command.replace(' ', '-')}.json"
