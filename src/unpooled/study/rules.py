"""Policies as party files declare them: of a party with data, and of a helper without."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from unpooled.errors import UsageError
from unpooled.models import check_runnable
from unpooled.privacy.policy import BELIEVED, COUNTED, INTERSECTION, NO, Policy
from unpooled.privacy.study import ALLOWED, TRUSTING
from unpooled.privacy.unit import Calibration, Scope, Target, Unit

if TYPE_CHECKING:
    from unpooled.study.files import PartyFile
    from unpooled.study.helper_files import HelperFile


def policy_of(text: PartyFile) -> Policy:
    """Return the policy that a party file declares."""
    policy = text.policy
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


def rules_of(text: HelperFile) -> Policy:
    """Return the policy of a helper: it has no budget, for nobody's rows are there, and helps where its approval says so."""
    policy = text.policy
    if policy.models is not None:
        check_runnable(policy.models)
    return Policy(
        None,
        allow_simulation=policy.allow_simulation,
        approved=_approved(policy.approval),
        models=None if policy.models is None else frozenset(policy.models),
        joint=TRUSTING,
    )
