"""The outputs of the commands that write documents for those who sign: ``unpooled dossier``, ``register`` and ``crate``."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from unpooled.cli.schemas.shared import Hash, Output, Path


class DossierOutput(Output, tag="unpooled/dossier/1"):
    """``unpooled dossier``: the files that were written."""

    plan: Hash
    holds: Annotated[bool, Meta(description="Whether a guarantee holds for the study.")]
    written: list[Path]
    fill: Annotated[int, Meta(description="The number of lines that the reader fills in.")]
    lawyer: Annotated[int, Meta(description="The number of lines that a lawyer decides.")]


class RegisterOutput(Output, tag="unpooled/register/1"):
    """``unpooled register``: the record, and what is left to fill in."""

    plan: Hash
    record: Annotated[dict[str, Any], Meta(description="The record, as the registry's own schema describes it.")]
    fill: Annotated[list[str], Meta(description="The keys of the record whose text has to be filled in.")]
    written: Annotated[str | None, Meta(description="The file that was written; null without --out.")]


class CrateOutput(Output, tag="unpooled/crate/1"):
    """``unpooled crate``: the files that were written."""

    plan: Hash
    holds: Annotated[bool, Meta(description="Whether a guarantee holds for the study.")]
    written: list[Path]
