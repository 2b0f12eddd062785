"""``[parameters]`` of a stacking study, and the words that its files share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import StudyError, UsageError
from unpooled.models.stacking.fits import Noise
from unpooled.models.stacking.outcomes import MULTINOMIAL
from unpooled.privacy.classes import DEFAULT
from unpooled.privacy.origin import PRIOR, RATES, SOURCE
from unpooled.privacy.plan import TRUSTED, check_parameters
from unpooled.privacy.study import Study

if TYPE_CHECKING:
    from unpooled.estimation.earlier import CitedRun
    from unpooled.privacy.plan import Card

AUTO, SHORTEN, UNIT_ROWS, SCALE = "auto", "shorten", "unit", "scale"
BLOCK, PREDICTIONS, META = "block", "predictions", "meta"
LOW, HIGH = "low", "high"
#: The role of ``[trust]`` that sees predictions of single rows.
META_ROLE = "meta"
#: Grid of noisy probabilities.
GRID = 1 << 20
#: How far rates may be from adding up to 1.
_ALMOST = 1e-6
LOG_ODDS = "log-odds"
#: What is said to those who use both words for the same.
BOTH_RATES = "prior holds the rates of the classes, which is what rates is for: name them once, under rates"
BOTH_PRIORS = "source was the name of prior in the version before: name the released weights once, under prior"
COMBINERS = ("probability", "majority", "weighted-majority", LOG_ODDS)


class Meta(StrEnum):
    """Ways to combine low-level models."""

    PUBLIC = "public-weights"
    TRUSTED = TRUSTED
    PERTURBED = "perturbed"


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[parameters]`` of a stacking study."""

    response: str = "y"
    #: The labels that the response holds: of two the first is coded -1, the second 1.
    classes: tuple[str | int | float, ...] = DEFAULT
    #: More than two classes: "multinomial" tells them apart together, "one-vs-rest" each from the others.
    multi_class: str = MULTINOMIAL
    #: "features": parties hold columns; "samples": parties hold rows. One party alone is private logistic regression.
    split: str = "features"
    #: lambda of the mean loss; scikit-learn's C is 1 / (n lambda), on scaled rows.
    penalty: float | str = AUTO
    #: Law of the perturbation: "gamma" (pure epsilon), "gaussian" (needs a delta), or "auto". Where one fit is all that is released of its rows.
    noise: str = Noise.AUTO
    #: "unit": every row is scaled to the longest one's length; "shorten": only longer ones are.
    rows: str = SHORTEN
    #: How a party's part of a row comes to its share q of the length (columns split). "shorten": a whole row has length at most R, and a part
    #: that is longer than q R is shortened to it; "scale": a part may have any length that its own bounds allow, and is multiplied by q.
    #: "auto": shortened, but scaled in the published form.
    parts: str = AUTO
    #: L2 bound on a centred row of one party, in the data's own units; None: what the columns' bounds imply.
    norm: float | None = None
    fit_intercept: bool = True
    #: Public importance of each party (columns split); missing ones are 1, and 0 leaves a party out.
    importance: dict[str, float] = {}
    #: Falling importance that is given out by rank: every party releases a noisy score of its columns, and nothing but their order is used
    #: (columns split). Empty: the importance above. The scores get this share of the budget.
    ranks: tuple[float, ...] = ()
    ranking_share: float = 0.1
    #: Share of the budget that makes probabilities of scores (columns split, two classes, public weights and log odds, with a delta): a base rate,
    #: and counts of classes along every party's score. 0: the log odds of the models are averaged as they are.
    probabilities_share: float = 0.6
    #: The party that learns the high-level model; empty: the first (columns split), or none (rows split: public weights).
    holder: str = ""
    #: Share of the rows that the high-level model of a column split learns from.
    high_share: float = 0.2
    #: Share of the high-level rows' epsilon that their noisy predictions cost.
    predictions_share: float = 0.5
    #: Released weights of an earlier model per party, to which the penalty pulls instead of to 0.
    prior: dict[str, tuple[float, ...]] = {}
    #: How predictions of the low-level models are put together for new rows ("auto": by log odds where columns are split, else by
    #: probabilities as in the paper), and the public rate of the second class, or those of all classes, for ranks. None: equal ones.
    combiner: str = AUTO
    rates: float | tuple[float, ...] | None = None
    #: The model is a function of what this makes of the declared columns (docs/formulas.md, rows split); empty: of every one as it is.
    formula: str = ""

    @property
    def base_rates(self) -> tuple[float, ...]:
        """Return the public rates of all classes."""
        return rates_of(self.rates, len(self.classes))


def parameters_of(study: Study) -> Parameters:
    """Return the parameters of a study, which may have the words of the version before."""
    return check_parameters(msgspec.structs.replace(study, parameters=in_new_words(study.parameters)), Parameters)


def in_new_words(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``[parameters]`` in the words of this version: what was ``source`` is ``prior``, and the rates that were ``prior`` are ``rates``."""
    found = dict(given)
    if are_rates(found.get(PRIOR)):
        if found.get(RATES) is not None:
            raise UsageError(BOTH_RATES)
        found[RATES] = found.pop(PRIOR)
    if not found.get(PRIOR, True):
        del found[PRIOR]
    if source := found.pop(SOURCE, None):
        if PRIOR in found:
            raise UsageError(BOTH_PRIORS)
        found[PRIOR] = source
    return found


def are_rates(prior: object) -> bool:
    """Return True of what the version before took as ``prior``: the rate of the second class, or a list of all rates."""
    several = list(prior) if isinstance(prior, list | tuple) else [prior]
    return bool(several) and all(isinstance(one, int | float) and not isinstance(one, bool) for one in several)


def combiner_of(combiner: str, split: str) -> str:
    """Return the combiner that is meant; refuses one that nobody knows."""
    if combiner == AUTO:
        return LOG_ODDS if split == "features" else COMBINERS[0]
    if combiner not in COMBINERS:
        msg = f"combiner is {AUTO} or one of {', '.join(COMBINERS)}, not {combiner!r}"
        raise UsageError(msg)
    return combiner


def rates_of(given: float | Sequence[float] | None, classes: int) -> tuple[float, ...]:
    """Return the public rates of all classes; refuses rates that are none."""
    if given is None:
        return (1 / classes,) * classes
    rates = tuple(float(r) for r in given) if isinstance(given, Sequence) else (1 - float(given), float(given))
    if len(rates) != classes or not all(0 < rate < 1 for rate in rates) or abs(math.fsum(rates) - 1) > _ALMOST:
        msg = f"rates lie between 0 and 1: the rate of the second of two classes, or {classes} rates that add up to 1"
        raise UsageError(msg)
    return rates


# --- Cited -----------------------------------------------------------------------------------------------------------------
# ``prior`` in a study file: the run whose models a stack starts from.

#: What must be alike for the weights of a run to mean the same: they are of scaled and coded rows.
_ALIKE: dict[str, Any] = {
    "classes": ["-1", "1"],
    "norm": None,
    "fit_intercept": True,
    "rows": "shorten",
    "importance": {},
    "split": "features",
}


@dataclass(frozen=True)
class EarlierWeights:
    """The study that starts from the models of an earlier run: its parameters and cards."""

    parameters: Mapping[str, Any]
    cards: tuple[Card, ...]

    def of_run(self, cited: CitedRun) -> dict[str, list[float]]:
        """Return the weights of every party's model of a run; refused where they would mean something else in this study."""
        key, run, study = cited.key, cited.folder, cited.plan.study
        if study.model != "stacking":
            msg = f"{key}: {run} is a run of model {study.model!r}; a stack starts from a run of stacking, which releases models to start from"
            raise StudyError(msg)
        for name, default in _ALIKE.items():
            if self.parameters.get(name, default) != study.parameters.get(name, default):
                msg = f"{key}: {run} was run with another {name}, so its weights would mean something else here"
                raise StudyError(msg)
        weights = {model.party: list(model.weights) for model in cited.result.models}
        own = {card.name: card.columns for card in self.cards}
        for name in weights:
            if own.get(name) != study.card(name).columns:
                msg = f"{key}: {run} has a model of party {name!r}; this study needs a party of that name with the same declared columns"
                raise StudyError(msg)
        return weights


def former_words(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return the names that parameters had in the version before, with what they are called now."""
    former = {name: name.replace(SOURCE, PRIOR, 1) for name in (SOURCE, f"{SOURCE}_rows", f"{SOURCE}_analysis")}
    return former | ({PRIOR: RATES} if are_rates(parameters.get(PRIOR)) else {})
