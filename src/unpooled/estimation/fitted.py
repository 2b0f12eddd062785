"""What a fitted estimator gives: itself as scikit-learn's own, predictions at sites, and the tables of a generalised linear model."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError, listed, warn_caller
from unpooled.inference.coding import SITE
from unpooled.inference.profiles import Profile, profile
from unpooled.privacy.bounds import Coding
from unpooled.privacy.table import Table
from unpooled.protocol.registry import KEPT, RELEASED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from unpooled.inference.sites import SiteConstants
    from unpooled.inference.summary import SummaryTable
    from unpooled.inference.tables import Anova, Contrast, JointTest, Tables
    from unpooled.linear.layout import MomentsLayout
    from unpooled.privacy.bounds import Column

    Rows = NDArray[np.float64]


# --- Exporting -------------------------------------------------------------------------------------------------------------
# A fitted linear estimator as scikit-learn's own, and the estimator that an object stands for, by what its row declares of coefficients.


def stands_for(given: Any) -> Any:  # noqa: ANN401 - whatever a user passes
    """Return the estimator that an object stands for: of a pipeline its last step, of anything else the object."""
    steps = getattr(given, "steps", None)
    return steps[-1][1] if isinstance(steps, list) and steps and isinstance(steps[-1], tuple) else given


def declared_of(given: Any) -> str:  # noqa: ANN401 - as above
    """Return what the row of a model declares of its coefficients; empty where the object says nothing.

    A subclass inherits its row, a wrapper hands it on, a pipeline is asked for that of its last step, and an unpickled object has its class's.
    """
    return str(getattr(getattr(stands_for(given), "_model", None), "coefficients", ""))


def refuse_kept(given: Any) -> None:  # noqa: ANN401 - as above
    """Refuse a model whose coefficients stay at the parties: they are raw functions of what the parties hold, and a prior is public."""
    if declared_of(given) == KEPT:
        raise UsageError(
            "the coefficients of this model stay at its parties, so no later study can take them as a prior: fit a model that releases its coefficients "
            "(PrivateLinearRegression, PrivateGLM), and pass that"
        )


def released_model(given: Any, what: str) -> Any:  # noqa: ANN401 - as above
    """Return the estimator that an object stands for, whose coefficients were released; ``what`` asks for it."""
    declared = declared_of(given)
    if declared == KEPT:
        msg = (
            "the coefficients of this model stay at the parties: a fitted value then moves with every row of theirs, and its cells are no "
            "private histogram. Diagnose a model that was released"
        )
        raise UsageError(msg)
    if declared != RELEASED:
        msg = (
            f"{type(given).__name__} does not say whether its coefficients were released, so {what} refuses it: pass the fitted estimator of unpooled "
            'itself (a model of another package declares coefficients = "released" in its row)'
        )
        raise UsageError(msg)
    found = stands_for(given)
    before = (
        [name for name, step in getattr(given, "steps", [])[:-1] if step not in (None, "passthrough")]
        if found is not given
        else []
    )
    if before:
        msg = f"the steps {listed(before)} come before the model: they were fitted to rows, and no statement counts them. Pass the model itself"
        raise UsageError(msg)
    return found


def linear_model(estimator: Any, columns: tuple[Column, ...]) -> Any:  # noqa: ANN401 - scikit-learn ships no types
    """Return a ``LinearRegression``, or a ``LogisticRegression`` where the estimator has classes, with these coefficients."""
    from sklearn.linear_model import LinearRegression, LogisticRegression

    if any(column.categories or column.may_be_absent for column in columns):
        raise UsageError(
            "to_sklearn is for number columns without missing values: scikit-learn's linear models code no categories and fill in nothing"
        )
    several = np.ndim(estimator.intercept_) == 1 and np.size(estimator.intercept_) > 1
    coefficients = np.asarray(estimator.coef_ if several else np.ravel(estimator.coef_), dtype=np.float64)
    if not np.isfinite(coefficients).all():
        raise UsageError("some coefficients are unknown here (their parties only send), so there is no model of all columns")
    intercept = float(np.ravel(estimator.intercept_)[0])
    if hasattr(estimator, "classes_"):
        found = LogisticRegression()
        found.classes_, found.n_iter_ = np.array(estimator.classes_), np.array([0], dtype=np.int32)
        found.coef_, found.intercept_ = coefficients[None, :], np.array([intercept])
        if several:  # of two classes scikit-learn has one row: that of the second against the first
            two = coefficients.shape[0] == 2  # noqa: PLR2004
            found.coef_ = np.diff(coefficients, axis=0) if two else coefficients
            found.intercept_ = np.diff(estimator.intercept_) if two else np.array(estimator.intercept_)
    else:
        found = LinearRegression()
        found.coef_, found.intercept_ = coefficients, np.array(estimator.intercept_) if several else intercept
    found.n_features_in_ = estimator.n_features_in_
    if hasattr(estimator, "feature_names_in_"):
        found.feature_names_in_ = estimator.feature_names_in_
    return found


def mean_of_lines(model: Any, lines: tuple[tuple[float, float], ...]) -> Any:  # noqa: ANN401 - scikit-learn ships no types
    """Return a ``VotingClassifier`` of the logistic regressions whose log odds are constant + factor * (those of ``model``), a line for each."""
    from sklearn.ensemble import VotingClassifier
    from sklearn.preprocessing import LabelEncoder
    from sklearn.utils import Bunch

    members = []
    for constant, factor in lines:
        member = copy.deepcopy(model)
        member.coef_, member.intercept_ = factor * model.coef_, constant + factor * model.intercept_
        members.append(member)
    names = [f"line{place}" for place in range(len(members))]
    found = VotingClassifier(list(zip(names, members, strict=True)), voting="soft")
    found.estimators_, found.named_estimators_ = members, Bunch(**dict(zip(names, members, strict=True)))
    found.le_, found.classes_ = LabelEncoder(), model.classes_
    found.le_.classes_ = model.classes_
    if hasattr(model, "feature_names_in_"):
        found.feature_names_in_ = model.feature_names_in_
    return found


# --- At sites --------------------------------------------------------------------------------------------------------------
# New rows of a model whose sites have constants of their own.


def layout_of(source: Any) -> MomentsLayout | None:  # noqa: ANN401 - moments, or the design of any model
    """Return the layout of a fit; None where there is none."""
    found: MomentsLayout | None = getattr(source, "layout", None)
    return found


def sites_in(source: Any) -> SiteConstants | None:  # noqa: ANN401 - as above
    """Return the sites of a fit that have constants of their own; None where they share one."""
    found: SiteConstants | None = getattr(layout_of(source), "sites", None)
    return found


def at_sites(source: Any, sites: Any = None) -> bool:  # noqa: ANN401 - as above
    """Return True if the sites of a fit have constants; refuse labels of sites where they share one."""
    if sites_in(source) is not None:
        return True
    if sites is not None:
        raise UsageError(
            "sites: this model has one constant for all sites, so its predictions are the same at all of them: leave sites out"
        )
    return False


def natural_at(source: Any, new: Mapping[str, NDArray[Any]], sites: Any) -> Rows:  # noqa: ANN401 - as above, array-like
    """Return new rows as the fit coded them, at these sites (a label each); without sites as the mean over all rows of the fit would be."""
    layout, known = layout_of(source), sites_in(source)
    assert layout is not None  # it has sites
    assert known is not None
    count = next(iter(new.values())).size
    if sites is None:
        rows = [
            part * _coded(layout, new, np.full(count, name)) for name, part in zip(known.names, known.parts, strict=True)
        ]
        return np.asarray(np.sum(rows, axis=0))
    labels = np.array([str(label) for label in np.asarray(sites).ravel().tolist()])
    if labels.size != count:
        msg = f"sites has {labels.size} labels for {count} rows: give one label per row"
        raise UsageError(msg)
    unknown = sorted(set(labels.tolist()) - set(known.names))
    if unknown:
        msg = f"site {unknown[0]!r} has no constant in this model, which knows {listed(known.names)}: leave sites out for the mean of all sites"
        raise UsageError(msg)
    return _coded(layout, new, labels)


def _coded(layout: MomentsLayout, new: Mapping[str, NDArray[Any]], labels: NDArray[np.str_]) -> Rows:
    columns = {**new, SITE: labels.astype(object)}
    # A table has at least two rows.
    table = layout.seen(Table({name: np.resize(values, max(2, labels.size)) for name, values in columns.items()}))
    blocks = table.blocks(tuple(column.name for column in layout.features))
    return np.concatenate([Coding(layout.features, 1).natural(block) for block in blocks])[: labels.size]


# --- Tabled ----------------------------------------------------------------------------------------------------------------
# The tables of a generalised linear model, whichever estimator fitted it: its summary, contrasts, and tests of whole columns.


class Profiled:
    """The part of an estimator that draws curves; the estimator says in :meth:`_tables` what they are made of."""

    def _tables(self) -> Tables:
        """Return what the tables are made of, or raise an error that says which method has standard errors."""
        raise NotImplementedError

    def profile(
        self,
        variable: str,
        confidence: float = 0.95,
        *,
        reference: float | None = None,
        label: object = None,
        against: object = None,
    ) -> Profile:
        """Return the fitted curve of a number that the formula names (``bs(dose)``, ``I(age**2)``), with a pointwise band, free of charge.

        The curve is given over the declared range, as differences from its value at ``reference``: of the response of a linear model, of the
        linear predictor of another one. Without ``reference`` that is the middle knot of a spline, and the middle of the range where there is none.
        Of several classes ``label`` names one, and ``against`` the one that it is compared with.
        """
        return profile(self._tables(), variable, confidence, reference=reference, label=label, against=against)


class Tabled(Profiled):
    """The part of an estimator that prints tables."""

    def summary(
        self,
        confidence: float = 0.95,
        adjust: str | None = None,
        *,
        reference: Mapping[str, str] | None = None,
        coding: str | None = None,
        against: object = None,
        exponentiate: bool = False,
    ) -> SummaryTable:
        """Return the table to publish: estimates with standard errors, tests and intervals, free of charge; ``adjust="holm"`` for many tests.

        Levels of a column are compared with its first declared one (with the commonest where the release shows that the first is rare), with
        ``reference={"ward": "b"}``, or with their mean (``coding="sum"``);
        the classes of the multinomial family with the first one, likewise, or with ``against``. ``exponentiate=True`` gives odds, rate or hazard ratios.
        Estimates are those of the Newton step, unshrunk: ``coef_``, which predicts, may differ from them.
        """
        tables = self._tables()
        if reference is not None and not isinstance(reference, Mapping) and tables.classes:
            warn_caller("`reference` names levels of columns; a class is named by `against`", FutureWarning)
            reference, against = None, reference
        asked: dict[str, Any] = {"reference": reference, "coding": coding, "against": against, "exponentiate": exponentiate}
        return tables.summary(confidence, adjust, **asked)

    def contrast(
        self,
        C: Any,  # noqa: ANN401 - weights in several forms
        value: Any = 0.0,  # noqa: ANN401 - a number, or one for each
        confidence: float = 0.95,
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
        return self._tables().contrast(C, value, confidence, **asked)

    def anova(self, smaller: Sequence[str] | None = None) -> Anova | JointTest:
        """Return a Wald test for every column; ``smaller``: whether the columns that it does not name explain anything."""
        return self._tables().anova(smaller)
