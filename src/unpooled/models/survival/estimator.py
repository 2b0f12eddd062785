"""``unpooled.survival``: the study run in process on arrays, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from unpooled.errors import UsageError, listed
from unpooled.estimation.calls import Summing, asked_of
from unpooled.estimation.releasing import OfRows, asks, study_of_rows
from unpooled.estimation.running import PlannedResult, run
from unpooled.models.survival import MODEL
from unpooled.models.survival.declared import Parameters
from unpooled.models.survival.fit import ArmMean, ArmsTest, CurveDifference, SurvivalResult, curve
from unpooled.privacy.plan import Plan
from unpooled.protocol.messages import Array

if TYPE_CHECKING:
    from unpooled.inference.life_table import KaplanMeier
    from unpooled.privacy.ledger import Entry


@dataclass(frozen=True, repr=False)
class SurvivalComparison(PlannedResult):
    """Private survival of arms, and tests of one against the other; printing it gives a table.

    Attributes
    ----------
    result_ : SurvivalResult
        ``counts`` of persons and events, ``tests``, restricted ``means`` with ``mean_differences``, and ``curve_differences``.
    statement_ : Statement
        What is promised, and what is not.
    plan_ : Plan
        What was released, with which noise.
    ledger_ : tuple of Entry
        What was debited.
    communication_ : dict
        Bytes sent to and received from each party.

    """

    _model: ClassVar = MODEL
    _saved_types: ClassVar = (Array, ArmMean, ArmsTest, CurveDifference, SurvivalResult)
    result_: SurvivalResult
    plan_: Plan
    ledger_: tuple[Entry, ...]
    communication_: dict[str, dict[str, int]]

    def curve(self, arm: str) -> KaplanMeier:
        """Return the survival curve of an arm with its band; free of charge."""
        if arm not in self.result_.arms:
            msg = f"there is no arm {arm!r}: there are {listed(list(self.result_.arms))}"
            raise KeyError(msg)
        return curve(self.result_, arm)

    def curves_as_lists(self) -> dict[str, dict[str, list[float]]]:
        """Return the survival curves of the arms that the noise does not hide, as data."""
        return {arm: self.curve(arm).as_lists() for arm in self.result_.arms if arm not in self.result_.hidden}

    def test(self, name: str = "log-rank") -> ArmsTest:
        """Return a test by its name."""
        for test in self.result_.tests:
            if test.name == name:
                return test
        msg = f"there is no test {name!r}: there are {listed([test.name for test in self.result_.tests])}"
        raise KeyError(msg)

    def mean_difference(self, arm: str = "") -> ArmMean:
        """Return the difference of restricted mean survival between an arm (the second one) and the first."""
        arm = arm or self.result_.arms[1]
        for one in self.result_.mean_differences:
            if one.arm == arm:
                return one
        msg = f"no difference of {arm!r} from {self.result_.arms[0]!r} is identified"
        raise KeyError(msg)

    def _what(self) -> str:
        return " against ".join(self.result_.arms)


@asks(OfRows, Summing, Parameters, leading="data time event by bounds", left=("nodes",))
def survival(asked: Any) -> SurvivalComparison:  # noqa: ANN401 - its arguments
    """Return the survival of arms with private curves, log-rank tests, and restricted mean survival with its differences.

    Examples
    --------
    >>> import numpy as np, unpooled
    >>> rng = np.random.default_rng(0)
    >>> arm = rng.choice(np.array(["usual", "new"]), 8000)
    >>> until = rng.exponential(np.where(arm == "new", 900, 500))
    >>> data = {"arm": arm, "days": np.minimum(until, 365), "died": (until <= 365).astype(float)}
    >>> bounds = {"arm": ["usual", "new"], "days": (0, 365), "died": (0, 1)}
    >>> found = unpooled.survival(data, "days", "died", "arm", bounds, epsilon=1.0, random_state=0)
    >>> found.test().p_value < 0.01
    True
    >>> found.mean_difference().low > 0
    True

    """
    if asked.bounds is None:
        raise UsageError(
            "declare bounds: the end of follow-up and the levels of the arms are no secrets to be read off the data"
        )
    names = [asked.time, asked.event, asked.by, *([] if asked.strata is None else [asked.strata])]
    parameters = asked_of(Parameters, vars(asked))
    study, tables = study_of_rows("survival", asked, names, parameters, (asked.cuts, asked.horizon))
    plan, found = run(MODEL, study, tables, budget=asked.budget)
    return SurvivalComparison(found.outcome.result, plan, found.ledger, found.outcome.communication)
