"""Several analyses in one study: each is a study of its own columns and parameters, with its share of the budget.

The shares are fixed before data. Under Gaussian noise a share is one of mu squared, which adds up over releases: analyses that each spend their
share cost together what the whole study asks for (Theorem F.26).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import UsageError, listed
from unpooled.privacy.accounting import budget_mu, gaussian_epsilon
from unpooled.privacy.study import ANALYSES, NAME, check_parameters

if TYPE_CHECKING:
    from unpooled.privacy.study import Card, Study

#: How far the sum of the shares may be from 1: what decimal fractions lose.
_ROUNDED = 1e-9


class Analysis(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One analysis of a study: its name, its model, its part of the budget, and everything that a study of this model asks."""

    name: str
    model: str
    #: Its share of the budget. Given for every analysis or for none; without shares all have the same.
    share: float | None = None
    #: The columns and labels that it uses, of those that the cards declare, in this order; without it all of them.
    columns: tuple[str, ...] = ()
    parameters: dict[str, Any] = {}
    trust: dict[str, str] = {}
    #: The helpers of the study that help in this analysis.
    helpers: tuple[str, ...] = ()
    #: Its own names of columns that the cards call otherwise, because other analyses declare other ranges for the same name.
    named: dict[str, str] = {}
    #: Which of the study's origins are those of its own inputs, by number.
    origins: tuple[int, ...] = ()
    #: Whether it is fitted at every party by itself, each with the whole share: a row is at one party.
    apart: bool = False
    #: The terms of such fits that are pooled over the parties.
    pool: tuple[str, ...] = ()


class Analyses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[parameters]`` of a study with several analyses."""

    analyses: tuple[Analysis, ...]

    @property
    def shares(self) -> tuple[float, ...]:
        """Return the share of every analysis; refused where they are not all given, or do not sum to 1."""
        given = [one.share for one in self.analyses]
        if all(share is None for share in given):
            return (1 / len(given),) * len(given)
        if not all(share is not None and 0 < share <= 1 for share in given):
            raise UsageError("every analysis needs a share of the budget between 0 and 1, or none of them names one")
        total = math.fsum(share for share in given if share is not None)
        if abs(total - 1) > _ROUNDED:
            msg = f"the shares of the analyses sum to {total:g}: they are parts of one budget, so make them sum to 1"
            raise UsageError(msg)
        return tuple(share / total for share in given if share is not None)


def analyses_of(study: Study) -> Analyses:
    """Return the analyses that a study contains, checked as far as they can be without their models."""
    asked = check_parameters(study, Analyses)
    if not asked.analyses:
        raise UsageError("a study of several analyses lists at least one under [[analysis]]")
    for name, times in Counter(one.name for one in asked.analyses).items():
        if not re.fullmatch(NAME, name):
            raise UsageError("the name of an analysis is 1 to 40 letters, digits, spaces, dots, dashes or underscores")
        if times > 1:
            msg = f"{times} analyses are called {name!r}: give each a name of its own"
            raise UsageError(msg)
    for one in asked.analyses:
        if one.model == ANALYSES:
            msg = f"analysis {one.name!r} contains analyses itself: list them all under [[analysis]]"
            raise UsageError(msg)
        if unknown := [name for name in one.helpers if name not in {card.name for card in study.helpers}]:
            msg = f"analysis {one.name!r} names helper {unknown[0]!r}, which is none of the study"
            raise UsageError(msg)
        if not all(0 <= number < len(study.origins) for number in one.origins):
            msg = f"analysis {one.name!r} names an origin that the study does not have"
            raise UsageError(msg)
    if study.trust:
        raise UsageError("whom an analysis trusts stands with it: [analysis.trust]")
    return asked


def part_of(
    study: Study, one: Analysis, digest: str, epsilon: float, delta: float, name: str = "", party: str = ""
) -> Study:
    """Return the study that one analysis is: its columns, its parameters, its part of the budget; ``party``: of the rows of this one alone."""
    cards = cards_of(tuple(card for card in study.parties if party in ("", card.name)), one)
    known = {name for card in cards for name in (*(column.name for column in card.columns), *card.labels)}
    if missing := [name for name in one.columns if name not in known]:
        declared = sorted({column.name for card in study.parties for column in card.columns})
        msg = f"analysis {one.name!r} uses column {missing[0]!r}, which no card declares; they declare {listed(declared)}"
        raise UsageError(msg).at(column=missing[0])
    return msgspec.structs.replace(
        study,
        model=one.model,
        parties=cards,
        epsilon=epsilon,
        delta=delta,
        parameters=one.parameters,
        trust=one.trust,
        helpers=tuple(card for card in study.helpers if card.name in one.helpers),
        origins=tuple(study.origins[number] for number in one.origins),
        justification="",
        within=f"{digest} {name or one.name}",
        whole=study.of_whole,
        scattered=False,
    )


def cards_of(cards: tuple[Card, ...], one: Analysis) -> tuple[Card, ...]:
    """Return what an analysis uses of these parties, without those of whom it uses nothing."""
    return tuple(used for used in (_card(card, one) for card in cards) if used is not None)


def _card(card: Card, one: Analysis) -> Card | None:
    """Return what an analysis uses of a party, by its own names; None where it uses nothing there."""
    own = {whole: name for name, whole in one.named.items()}
    # A name that stands for another column here hides the column of that name.
    columns = {
        own.get(c.name, c.name): msgspec.structs.replace(c, name=own.get(c.name, c.name))
        for c in card.columns
        if c.name in own or c.name not in one.named
    }
    labels = tuple(own.get(label, label) for label in card.labels if label in own or label not in one.named)
    if one.columns:
        columns = {name: columns[name] for name in one.columns if name in columns}
        labels = tuple(label for label in labels if label in one.columns)
    return msgspec.structs.replace(card, columns=tuple(columns.values()), labels=labels) if columns or labels else None


def budget_of(study: Study, share: float, scale: float) -> tuple[float, float]:
    """Return (epsilon, delta) of an analysis with this share of the study's budget, of which the factor ``scale`` is spent."""
    if math.isinf(study.epsilon):
        return study.epsilon, share * study.delta
    if not study.delta:
        return study.epsilon * share * scale, 0.0
    mu = budget_mu(study.epsilon, study.delta) * math.sqrt(share) * scale
    return gaussian_epsilon(share * study.delta, mu), share * study.delta
