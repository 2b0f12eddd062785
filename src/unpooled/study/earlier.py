"""Earlier results that a study file cites: runs, public rows or numbers, whose people they are of, and the numbers that the study is about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import StudyError, UsageError, listed, warn_caller
from unpooled.estimation.earlier import CitedRun
from unpooled.inference.priors import EarlierModel
from unpooled.models import REGISTRY, load
from unpooled.models.analyses.fit import Failed
from unpooled.privacy.origin import OTHERS, PRIOR, SAME, SOURCE, ReleasedInput
from unpooled.study.data import read_table
from unpooled.study.record import RECORD, read_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from unpooled.estimation.earlier import TakesEarlier
    from unpooled.privacy.bounds import Column
    from unpooled.privacy.plan import Card
    from unpooled.privacy.table import Table
    from unpooled.protocol.registry import Citing


# --- Cited runs ------------------------------------------------------------------------------------------------------------
# ``prior = "run:FOLDER"`` in a study file: the run that is cited, whose people it is of, and where what it released comes from.

#: What a citation of a run begins with, and one of a file of public rows.
RUN, ROWS = "run:", "rows:"


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
        return CitedRun(self.key, run, load(plan.study.row), plan, own, (*inputs, origin))


# --- Cited -----------------------------------------------------------------------------------------------------------------
# What a study file cites, as the numbers that the study is about: they are public, and every party compiles its plan from them.

_WORDS = f'"{RUN}FOLDER" of an earlier run, "{ROWS}FILE" of public rows, or a table with name, coefficients and intercept'
#: The keys of ``[parameters]`` that cite something, or say something of a citation.
_KEYS = frozenset(f"{key}{of}" for key in (PRIOR, SOURCE) for of in ("", "_analysis", "_rows"))


def with_cited(
    model: str, parameters: Mapping[str, Any], cards: tuple[Card, ...], folder: Path
) -> tuple[dict[str, Any], tuple[ReleasedInput, ...]]:
    """Return the parameters with the numbers of what they cite, and the origin of these; ``folder`` is that of the study file."""
    found = dict(parameters)
    if not _KEYS & found.keys():
        return found, ()
    citing = _citing(model)
    former = {} if citing is None else citing.former(found)
    _warn_of_former_words(former, found)
    key = SOURCE if SOURCE in found and (citing is None or SOURCE in former) else PRIOR
    asked = found.get(key)
    several = asked if isinstance(asked, list) else [asked]
    cites = any(isinstance(one, str) for one in several)
    if citing is None:
        if not cites:
            return found, ()
        able = sorted(name for name in REGISTRY if load(name).earlier is not None)
        msg = f"{key}: earlier models are for models {', '.join(able)}, not for {model!r}: leave it out"
        raise StudyError(msg)
    runs = any(isinstance(one, str) and one.startswith(RUN) for one in several)
    citations = Citations.of(key, found, folder, cites=runs if citing.several else cites)
    if not cites:
        return found, ()
    if citing.several:
        return _with_earlier_models(several, citing, found, cards, citations)
    if not isinstance(asked, str) or not asked.startswith(RUN):
        msg = f'{key} is "{RUN}FOLDER" of an earlier run, or released weights per party'
        raise StudyError(msg)
    run = citations.read(asked)
    return found | {key: citing.taken(found, cards).of_run(run)}, run.origins


def _citing(model: str) -> Citing | None:
    """Return how studies of a model take what they cite; None where they cite nothing, and for a model that is not here (its plan is refused)."""
    try:
        return load(model).earlier
    except UsageError:
        return None


def _warn_of_former_words(former: Mapping[str, str], parameters: Mapping[str, Any]) -> None:
    """Warn of the names that the version before had."""
    for name, word in former.items():
        if name in parameters:
            warn_caller(f"[parameters] {name} is {word} now; the former name works for one version", FutureWarning)


def _with_earlier_models(
    several: Sequence[Any], citing: Citing, found: dict[str, Any], cards: tuple[Card, ...], citations: Citations
) -> tuple[dict[str, Any], tuple[ReleasedInput, ...]]:
    """Return the parameters with the earlier models that they cite as numbers, and the origins of these."""
    own: TakesEarlier = citing.taken(found, cards)
    models, origins = list[tuple[str, EarlierModel]](), list["ReleasedInput"]()
    runs = dict[str, Path]()
    for one in several:
        if isinstance(one, str) and one.startswith(RUN):
            run = citations.read(one)
            if runs.setdefault(run.plan.hash, run.folder) != run.folder:
                msg = f"prior: {runs[run.plan.hash]} and {run.folder} are runs of one plan: cite one of them"
                raise StudyError(msg)
            models.append((one.removeprefix(RUN), own.of_run(run)))
            origins += [origin for origin in run.origins if origin not in origins]
        elif isinstance(one, str) and one.startswith(ROWS):
            file = one.removeprefix(ROWS)
            models.append((file, own.of_rows(citations.folder / file, _rows_of)))
        else:
            table = _of_table(one)
            models.append((table.name, table))
    named = [model.name for _, model in models]
    # Two folders of one name, or two files, are called by their paths.
    apart = [m if named.count(m.name) == 1 else msgspec.structs.replace(m, name=path) for path, m in models]
    return found | {PRIOR: msgspec.to_builtins(apart)}, tuple(origins)


def _rows_of(path: Path, columns: Sequence[Column]) -> Table:
    """Return these columns of a file of public rows."""
    return read_table(path, tuple(column.name for column in columns), declared=columns)


def _of_table(given: object) -> EarlierModel:
    try:
        return msgspec.convert(given, EarlierModel, strict=True)
    except msgspec.ValidationError as error:
        msg = f"prior: each is {_WORDS}: {error}"
        raise StudyError(msg) from None
