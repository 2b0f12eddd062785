"""Rounds of ``PrivateLasso`` before any data are touched: their noise, their expected results, and good settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.models.lasso import planner
from unpooled.models.lasso.forms import Form
from unpooled.models.lasso.messages import Term
from unpooled.models.lasso.plan import RESPONSE_WEIGHT, LassoDesign
from unpooled.models.lasso.plan import design_of as rounds_of
from unpooled.models.lasso.planner import VARIANCE, ScoreOutlook

if TYPE_CHECKING:
    from collections.abc import Callable

    from unpooled.privacy.plan import Plan, Study


class BeforeRounds:
    """The methods of an estimator whose study may take the form of rounds."""

    plan: Callable[[int, int], Plan]

    def predicted_noise(self, n_samples: int, n_features: int) -> dict[str, float]:
        """Return the noise of the rounds (``method="frank-wolfe"``) compared with the signal, before any data are touched.

        ``column``: its standard deviation in a released column, whose values lie in [-1, 1]; ``pick``: the Gumbel scale of a pick, and ``score``: the
        deviation of a score, both as parts of the largest score there can be (radius + half width of y); ``refit``: the deviation of a
        chosen column's mean product with y, as a part of the largest there can be (half width of y); ``clip``: where
        predictions of a full-sized iterate are clipped.
        """
        design: LassoDesign = rounds_of(self._rounds(n_samples, n_features))
        largest = design.eta + design.parameters.response_bound
        end = design.clip((Term("", 0, design.eta),))
        reach = 2 * (end + design.parameters.response_bound) / n_samples
        return {
            "column": design.column_scale,
            "pick": 2 * reach / design.choice_epsilon / largest,
            "score": design.score_multiplier * reach / largest,
            "refit": 2 * design.refit_multiplier / (RESPONSE_WEIGHT * n_samples),
            "clip": end,
        }

    def recommended(
        self, n_samples: int, n_features: int, relevant: int = 6, *, variance: float = VARIANCE
    ) -> dict[str, Any]:
        """``rounds``, ``refit`` and ``shares`` for data of this shape, for :meth:`set_params`: no data are touched.

        A simulation chooses them (:mod:`unpooled.models.lasso.planner`): independent columns, of which ``relevant`` carry half of the response's
        variance. ``variance`` is what you expect of a column scaled to [-1, 1]: (standard deviation / half width of its range) squared. Ranges
        much wider than four standard deviations make it small, and everything harder: then say so. :meth:`outlook` tells what it expects of
        the settings as they are.

        Examples
        --------
        >>> from unpooled import PrivateLasso
        >>> model = PrivateLasso(4, bounds=(-1, 1), y_bounds=(-2, 2))
        >>> sorted(model.recommended(20_000, 50))
        ['refit', 'rounds', 'shares']

        """
        return planner.recommend(self._rounds(n_samples, n_features), relevant=relevant, variance=variance)[0]

    def rounds_outlook(
        self, n_samples: int, n_features: int, relevant: int = 6, *, variance: float = VARIANCE
    ) -> ScoreOutlook:
        """Return the relative excess risk that a simulation expects of the rounds (``method="frank-wolfe"``), and how many relevant columns they find."""
        return planner.outlook(self._rounds(n_samples, n_features), relevant=relevant, variance=variance)

    def _rounds(self, n_samples: int, n_features: int) -> Study:
        """Return the study of these parameters in the form of rounds."""
        study = self.plan(n_samples, n_features).study
        return msgspec.structs.replace(study, parameters={**study.parameters, "method": Form.ROUNDS.value})
