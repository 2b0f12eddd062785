"""The tables of a generalised linear model, whichever estimator fitted it: its summary, contrasts, and tests of whole columns."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unpooled.aggregation.profiles import Profile, profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from unpooled.aggregation.summary import SummaryTable
    from unpooled.aggregation.tables import Anova, Contrast, JointTest, Tables


class Profiled:
    """The part of an estimator that draws curves; the estimator says in :meth:`_tables` what they are made of."""

    def _tables(self) -> Tables:
        """Return what the tables are made of, or raise an error that says which method has standard errors."""
        raise NotImplementedError

    def profile(self, variable: str, level: float = 0.95, *, label: object = None, against: object = None) -> Profile:
        """Return the fitted curve of a number that the formula names (``bs(dose)``, ``I(age**2)``), with a pointwise band, free of charge.

        The curve is given over the declared range, as differences from its value at the lower end: of the response of a linear model, of the
        linear predictor of another one. Of several classes ``label`` names one, and ``against`` the one that it is compared with.
        """
        return profile(self._tables(), variable, level, label=label, against=against)


class Tabled(Profiled):
    """The part of an estimator that prints tables."""

    def summary(
        self,
        level: float = 0.95,
        adjust: str | None = None,
        *,
        reference: Mapping[str, str] | None = None,
        coding: str | None = None,
        against: object = None,
        exponentiate: bool = False,
    ) -> SummaryTable:
        """Return the table to publish: estimates with standard errors, tests and intervals, free of charge; ``adjust="holm"`` for many tests.

        Levels of a column are compared with its first declared one, with ``reference={"ward": "b"}``, or with their mean (``coding="sum"``);
        the classes of the multinomial family with the first one, or with ``against``. ``exponentiate=True`` gives odds, rate or hazard ratios.
        Estimates are those of the Newton step, unshrunk: ``coef_``, which predicts, may differ from them.
        """
        tables = self._tables()
        if reference is not None and not isinstance(reference, Mapping) and tables.classes:
            warnings.warn("`reference` names levels of columns; a class is named by `against`", FutureWarning, stacklevel=2)
            reference, against = None, reference
        asked: dict[str, Any] = {"reference": reference, "coding": coding, "against": against, "exponentiate": exponentiate}
        return tables.summary(level, adjust, **asked)

    def contrast(
        self,
        C: Any,  # noqa: ANN401 - weights in several forms
        value: Any = 0.0,  # noqa: ANN401 - a number, or one for each
        level: float = 0.95,
        *,
        reference: Mapping[str, str] | None = None,
        against: object = None,
        exponentiate: bool = False,
    ) -> Contrast:
        """Return combinations of coefficients with standard errors, intervals and a joint test, free of charge.

        Given as words ("ward: b - a", "2 * age - dose"; of several classes "sick: ward: b - a"), as mappings from the names of coefficients
        to weights, or as rows of weights. ``value``: what they are compared with.
        """
        asked: dict[str, Any] = {"reference": reference, "against": against, "exponentiate": exponentiate}
        return self._tables().contrast(C, value, level, **asked)

    def anova(self, smaller: Sequence[str] | None = None) -> Anova | JointTest:
        """Return a Wald test for every column; ``smaller``: whether the columns that it does not name explain anything."""
        return self._tables().anova(smaller)
