"""Requests to ``unpooled serve`` and its answers, as another program writes and reads them."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
from typer.main import get_command

from unpooled.cli import main as cli
from unpooled.cli.serve import Service

WARDS = ("a", "b", "c")


def texts(values: list[str | None]) -> dict[str, Any]:
    return {"kind": "texts", "values": values}


def numbers(values: Any) -> dict[str, Any]:
    return {"kind": "numbers", "values": base64.b64encode(np.asarray(values, dtype="<f8").tobytes()).decode()}


def factor(codes: Any, levels: tuple[str, ...] = WARDS) -> dict[str, Any]:
    return {
        "kind": "factor",
        "levels": list(levels),
        "codes": base64.b64encode(np.asarray(codes, dtype="<i4").tobytes()).decode(),
    }


def line(call: Any, name: Any = 1) -> bytes:
    return json.dumps({"schema": "unpooled/serve-request/1", "id": name, "ask": call}).encode() + b"\n"


def answers(*lines: bytes) -> list[dict[str, Any]]:
    out = io.BytesIO()
    Service(get_command(cli.app)).answer_all(io.BytesIO(b"".join(lines)), out)
    return [json.loads(one) for one in out.getvalue().splitlines()]


def ask(call: Any) -> dict[str, Any]:
    (found,) = answers(line(call))
    return found


def ok(call: Any) -> dict[str, Any]:
    found = ask(call)
    assert "error" not in found, found["error"]
    return found["ok"]


def error(call: Any) -> dict[str, Any]:
    found = ask(call)
    assert "ok" not in found
    return found["error"]
