"""Policies as party files declare them: of a party with data, and of a helper without."""

from __future__ import annotations

import re

import msgspec

from unpooled.errors import UsageError
from unpooled.models import check_runnable
from unpooled.privacy.policy import BELIEVED, COUNTED, INTERSECTION, NO, Policy
from unpooled.privacy.study import ALLOWED, TRUSTING
from unpooled.privacy.unit import Calibration, Scope, Target, Unit


class FileSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A strict table of a TOML file."""


class PolicySection(FileSection, frozen=True):
    """``[policy]``: the total that all studies together may spend, and what else is allowed."""

    epsilon: float
    delta: float
    unit: str = "record"
    calibrations: tuple[str, ...] = ("sound",)
    #: The models that this party runs; left out: every model of unpooled itself, and none of another distribution.
    models: tuple[str, ...] | None = None
    trust: tuple[str, ...] = ()
    #: Of a column-split study the total bounds what all its parties release about a person ("person"), or what this one does ("party").
    bounds: str = "person"
    #: "ask": a plan runs after `unpooled party check --approve`; or the list of plan hashes that may run.
    approval: str | tuple[str, ...] = "ask"
    allow_simulation: bool = False
    #: "intersection": others may learn, by linking rows, whom this party shares with all of them. "no": they may not.
    psi: str = NO
    #: How often with the same set of parties, over all studies, and how many rows another party may bring (default: ten times the own rows).
    psi_runs: int = 1
    psi_max_rows: int | None = None
    #: How many ids all other parties may test against this one's, over all studies and all parties (default: no limit).
    psi_max_guesses: int | None = None
    #: "allowed": masked rows may travel where every party proves that its rows are short; "trusting": without a proof too; "no": not at all.
    joint: str = NO
    #: "believed": a household card may say that its ids are nowhere else; "counted": such cards are refused.
    elsewhere: str = BELIEVED
    #: The public keys of coordinators whose proposals have the room of the inbox; those of all others share a small one.
    coordinators: tuple[str, ...] = ()


class HelperPolicy(FileSection, frozen=True):
    """``[policy]`` of a helper: which plans it helps with."""

    approval: str | tuple[str, ...] = "ask"
    models: tuple[str, ...] | None = None
    allow_simulation: bool = False
    coordinators: tuple[str, ...] = ()


def policy_of(policy: PolicySection) -> Policy:
    """Return the policy that a party file declares."""
    limits = (policy.psi_runs, *(limit for limit in (policy.psi_max_rows, policy.psi_max_guesses) if limit is not None))
    if policy.psi not in {NO, INTERSECTION} or min(limits) < 1:
        msg = f'psi is "{INTERSECTION}" or "{NO}", and psi_runs, psi_max_rows and psi_max_guesses are at least 1'
        raise UsageError(msg)
    if policy.models is not None:
        check_runnable(policy.models)
    if policy.elsewhere not in {BELIEVED, COUNTED}:
        msg = f'elsewhere is "{BELIEVED}" or "{COUNTED}"'
        raise UsageError(msg)
    if policy.joint not in {NO, ALLOWED, TRUSTING}:
        msg = f'joint is "{NO}", "{ALLOWED}" or "{TRUSTING}"'
        raise UsageError(msg)
    _check_keys(policy.coordinators)
    return Policy(
        Target(policy.epsilon, policy.delta, Unit.parse(policy.unit)),
        frozenset(Calibration.parse(word) for word in policy.calibrations),
        frozenset(policy.trust),
        scope=Scope.parse(policy.bounds),
        allow_simulation=policy.allow_simulation,
        approved=_approved(policy.approval),
        psi=policy.psi,
        psi_runs=policy.psi_runs,
        psi_max_rows=policy.psi_max_rows,
        psi_max_guesses=policy.psi_max_guesses,
        elsewhere=policy.elsewhere,
        joint=policy.joint,
        models=None if policy.models is None else frozenset(policy.models),
    )


def _check_keys(coordinators: tuple[str, ...]) -> None:
    """Refuse a coordinator that is no public key."""
    if not all(re.fullmatch("[0-9a-f]{64}", key) for key in coordinators):
        msg = "coordinators lists something that is no public key: give all 64 hexadecimal digits that the coordinator's kit shows"
        raise UsageError(msg)


def _approved(approval: str | tuple[str, ...]) -> frozenset[str]:
    """Return the hashes of plans that need no further approval."""
    if isinstance(approval, str):
        if approval != "ask":
            msg = 'approval must be "ask" or a list of plan hashes'
            raise UsageError(msg)
        return frozenset()
    if not all(re.fullmatch(r"[0-9a-f]{64}", plan) for plan in approval):
        msg = "approval lists something that is not a plan hash: give all 64 hexadecimal digits"
        raise UsageError(msg)
    return frozenset(approval)


def rules_of(policy: HelperPolicy) -> Policy:
    """Return the policy of a helper: it has no budget, for nobody's rows are there, and helps where its approval says so."""
    if policy.models is not None:
        check_runnable(policy.models)
    _check_keys(policy.coordinators)
    return Policy(
        None,
        allow_simulation=policy.allow_simulation,
        approved=_approved(policy.approval),
        models=None if policy.models is None else frozenset(policy.models),
        joint=TRUSTING,
    )
