"""``prior = "run:FOLDER"`` in a study file: the run that is cited, whose people it is of, and where what it released comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import StudyError, listed
from unpooled.models.analyses.coordinator import Failed
from unpooled.privacy.origin import OTHERS, SAME, ReleasedInput
from unpooled.study.record import RECORD, read_record

if TYPE_CHECKING:
    from pathlib import Path

    from unpooled.privacy.plan import Plan

#: What a citation of a run begins with.
RUN = "run:"


@dataclass(frozen=True)
class CitedRun:
    """A run, or one analysis of it, as a study finds it."""

    folder: Path
    plan: Plan
    result: Any
    #: The origins of the run's own inputs, and of what it released.
    origins: tuple[ReleasedInput, ...]


@dataclass(frozen=True)
class Citations:
    """Citations under one key of ``[parameters]``, and what the study says of all runs that it cites there."""

    #: The key, by which the keys next to it and the origin are called too.
    key: str
    #: The folder of the study file.
    folder: Path
    analysis: str = ""
    rows: str = SAME

    @classmethod
    def of(cls, key: str, parameters: dict[str, Any], folder: Path, *, cites: bool) -> Citations:
        """Return what the study says of its citations, and take it out of the parameters; refused where it ``cites`` no run."""
        analysis, rows = (parameters.pop(f"{key}_{what}", "") for what in ("analysis", "rows"))
        if rows not in ("", SAME, OTHERS) or (rows == OTHERS and not cites):
            msg = f'{key}_rows is "{OTHERS}" where the people of the cited run are not those of this study, else "{SAME}"'
            raise StudyError(msg)
        if analysis and not cites:
            msg = f'{key}_analysis names an analysis of a cited run, and {key} cites none: write {key} = "{RUN}FOLDER"'
            raise StudyError(msg)
        return cls(key, folder, str(analysis), rows or SAME)

    def read(self, cited: str) -> CitedRun:
        """Return the run of this citation; refused where nothing can rest on it."""
        run = self.folder / cited.removeprefix(RUN)
        if not (run / RECORD).is_file():
            msg = f"{self.key}: {run} holds no record of a run ({RECORD}): give the folder that `unpooled run` wrote"
            raise StudyError(msg)
        _, whole, result, _ = read_record(run)
        plan = whole.analysis(self.analysis) if self.analysis else whole
        own = result[self.analysis] if self.analysis else result
        if isinstance(own, Failed):
            msg = f"{self.key}: analysis {self.analysis!r} of {run} has no result: {own.failed}"
            raise StudyError(msg)
        if plan.analyses:
            msg = (
                f"{self.key}: {run} has several analyses: name one with {self.key}_analysis ({listed(list(plan.analyses))})"
            )
            raise StudyError(msg)
        *inputs, origin = whole.origins(self.key)
        if self.rows == OTHERS:
            origin = msgspec.structs.replace(origin.of_others(), events=())
        elif not origin.holds:
            msg = (
                f"{self.key}: no guarantee holds for {run}, so none would hold here: start from a run that has one, or say "
                f"{self.key}_rows = '{OTHERS}' if its people are not those of this study"
            )
            raise StudyError(msg)
        return CitedRun(run, plan, own, (*inputs, origin))
