"""The policy of a party: the total it may spend, the calibrations and trust that it allows, and who approves a plan."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unpooled.errors import PolicyRefusal
from unpooled.privacy.plan import AGGREGATION
from unpooled.privacy.study import ALLOWED, TRUSTING
from unpooled.privacy.unit import Calibration, Scope

if TYPE_CHECKING:
    from unpooled.privacy.plan import Plan, Study
    from unpooled.privacy.unit import Target


#: Words a study may use under [trust] that ask for no trust at all.
HARMLESS = frozenset(
    {(AGGREGATION, "distributed"), (AGGREGATION, "local"), ("meta", "public-weights"), ("meta", "perturbed")}
)

#: What is made of a household card that says that its ids are nowhere else.
BELIEVED, COUNTED = "believed", "counted"
#: A name in the list of models that stands for all of them (in-process estimators only: no party file may say it).
EVERY = "*"
#: The ways in which rows are linked, of which the first allows the second too, that they are not, and how many times the own rows another party may bring if
#: nothing else is said.
INTERSECTION, HIDDEN_LINK, NO, _FOLD = "intersection", "hidden", "no", 10


@dataclass(frozen=True, slots=True)
class Policy:
    """A party's standing rules. :meth:`check` refuses in words and changes nothing."""

    #: The total of all studies, for the policy's unit; None is no limit (in-process estimators only).
    budget: Target | None
    calibrations: frozenset[Calibration] = frozenset({Calibration.SOUND})
    #: Trust values (such as "trusted" aggregation) that are acceptable beyond the models' safest ones.
    trust: frozenset[str] = frozenset()
    #: What that total bounds in a column-split study: what all its parties release about a person, or what this party does.
    scope: Scope = Scope.PERSON
    allow_simulation: bool = False
    allow_derived: bool = False
    #: Whether studies may run whose members have no keys: those among parties of one process.
    allow_in_process: bool = False
    #: Hashes of plans that need no further approval; None approves every plan that passes the other rules.
    approved: frozenset[str] | None = frozenset()
    #: Whether this party links its rows with others' ("intersection"), or where nobody learns who is in common alone ("hidden"), or not ("no").
    psi: str = NO
    #: How often with one and the same set of parties, over all studies.
    psi_runs: int = 1
    #: The most rows that another party may bring, each of which is a guess; None is ten times the own rows.
    psi_max_rows: int | None = None
    #: The most ids that all other parties may test against this one's set, over all studies and all parties; None is no limit.
    psi_max_guesses: int | None = None
    #: The models that this party runs. None is every model of unpooled itself, and none of another distribution.
    models: frozenset[str] | None = None
    #: Whether masked rows of this party may travel: "allowed" (rows that are proved to be short), "trusting" (unproved ones too), or "no".
    joint: str = NO
    #: Whether cards are believed that say that no other party holds rows of the same ids ("believed"), or not ("counted").
    elsewhere: str = BELIEVED

    @classmethod
    def in_process(cls) -> Policy:
        """Return the policy that allows everything: the caller of an estimator in one process has all the data already."""
        return cls(
            None,
            frozenset(Calibration),
            frozenset({"*"}),
            allow_simulation=True,
            allow_derived=True,
            allow_in_process=True,
            approved=None,
            psi=INTERSECTION,
            joint=TRUSTING,
            models=frozenset({EVERY}),
        )

    @property
    def psi_limits(self) -> tuple[int, int | None]:
        """Return the most plans that may link rows with one set of parties, and the most ids that all others may test in total."""
        return self.psi_runs, self.psi_max_guesses

    @property
    def allows_unbounded(self) -> bool:
        """Return True if releases of unknown cost (published calibrations) may be recorded."""
        return Calibration.PUBLISHED in self.calibrations

    def check_link(self, plan: Plan, party: str) -> None:
        """Refuse to link rows where these rules do not allow it: each party can try out a guessed id with each of its rows."""
        if plan.hides and self.psi not in {INTERSECTION, HIDDEN_LINK}:
            msg = f'this party\'s policy does not link rows: set psi = "{HIDDEN_LINK}" under [policy] if they may be linked without telling others whom it shares with them'
            raise PolicyRefusal(msg)
        if not plan.hides and self.psi != INTERSECTION:
            msg = f'this party\'s policy does not link rows: set psi = "{INTERSECTION}" under [policy] if others may learn whom it shares with them'
            raise PolicyRefusal(msg)
        own = plan.study.card(party).rows
        most = _FOLD * own if self.psi_max_rows is None else self.psi_max_rows
        for card in plan.study.parties:
            if card.name != party and card.rows > most:
                msg = f"party {card.name!r} brings {card.rows} rows, each of them a guess; this party's policy allows {most} (psi_max_rows)"
                raise PolicyRefusal(msg)

    def check_model(self, study: Study, maker: str, *, links: bool) -> None:
        """Refuse a model that this party does not run, by its name and distribution alone. Studies that link rows are a matter of ``psi``."""
        # A form of one of our models that another distribution makes is listed by its own name.
        name = study.row if maker else study.model
        if links or (self.models is None and not maker) or (self.models or frozenset()) & {EVERY, name}:
            return
        if self.models is None:
            msg = (
                f"model {name!r} is of distribution {maker}, and this party's policy runs unpooled's own models only: to allow it, "
                f'add models = ["{name}"] under [policy], with every other model that this party runs'
            )
        else:
            listed = ", ".join(f'"{one}"' for one in sorted({*self.models, name}))
            whose = f" of distribution {maker}" if maker else ""
            msg = f"this party's policy does not list model {name!r}{whose}: to allow it, write models = [{listed}] under [policy]"
        raise PolicyRefusal(msg)

    def check(self, plan: Plan, *, approved_in_ledger: bool, party: str = "this party") -> None:
        """Refuse a plan that these rules do not allow."""
        study = plan.study
        for one in (*plan.analyses.values(),) or (plan,):
            self.check_model(one.study, one.maker, links=one.links)
        self._check_joint(plan)
        if Calibration(study.calibration) not in self.calibrations:
            allowed = ", ".join(sorted(self.calibrations))
            msg = f"this party's policy allows calibration {allowed}, not {study.calibration}: ask for a sound study"
            raise PolicyRefusal(msg)
        if study.epsilon == math.inf and not plan.discloses and self.budget is not None:
            msg = "the study asks for epsilon = inf, which is no privacy at all: ask for a finite epsilon"
            raise PolicyRefusal(msg)
        if study.simulation_seed is not None and not self.allow_simulation:
            msg = (
                "the study carries a simulation seed, whose noise protects nobody: remove it, or set allow_simulation = true"
            )
            raise PolicyRefusal(msg)
        if study.derived and not self.allow_derived:
            msg = f"the study's {' and '.join(study.derived)} were read off data: declare them"
            raise PolicyRefusal(msg)
        self._check_trust(plan)
        alone = [card.name for card in study.parties if card.household is not None and not card.household.elsewhere]
        if self.elsewhere == COUNTED and alone and len(study.parties) > 1:
            msg = (
                f"the cards of {', '.join(alone)} say that no other party holds rows of the same ids, and this party's policy does not believe it "
                f'(elsewhere = "{COUNTED}"): use cards with household_elsewhere = true, which count the rows of an id at every party'
            )
            raise PolicyRefusal(msg)
        if study.in_process and not self.allow_in_process:
            msg = (
                f"the cards of {', '.join(card.name for card in study.members)} hold no public key, so anybody could take their place: use the cards "
                "that `unpooled party init` writes"
            )
            raise PolicyRefusal(msg)
        if self.approved is not None and plan.hash not in self.approved and not approved_in_ledger:
            msg = (
                f"plan {plan.hash[:16]} is not approved here ({party}): look at it with `unpooled party check STUDY --config party.toml`, "
                "then add --approve, or list its hash in the policy"
            )
            raise PolicyRefusal(msg)

    def _check_trust(self, plan: Plan) -> None:
        """Refuse a plan, or one of its analyses, that trusts somebody whom this policy does not list."""
        asked = {pair for one in (plan, *plan.analyses.values()) for pair in one.study.trust.items()}
        for role, trusted in sorted(asked):
            if not self.trust & {"*", trusted} and (role, trusted) not in HARMLESS:
                msg = f"the study asks to trust {role} = {trusted!r}, which this party's policy does not list"
                raise PolicyRefusal(msg)

    def _check_joint(self, plan: Plan) -> None:
        """Refuse a plan in which masked rows travel where this policy does not allow it, or not without a proof."""
        if not plan.joint:
            return
        if self.joint not in {ALLOWED, TRUSTING}:
            msg = (
                "masked rows of this party would travel to other parties, and its policy does not allow that: "
                f'set joint = "{ALLOWED}" under [policy] if they may'
            )
            raise PolicyRefusal(msg)
        if plan.joint == TRUSTING != self.joint:
            msg = (
                'the study asks for check = "none": no party proves that its rows are short, so one that deviates can read others\' rows. '
                f'This party\'s policy wants a proof: leave check out, or set joint = "{TRUSTING}" under [policy]'
            )
            raise PolicyRefusal(msg)
