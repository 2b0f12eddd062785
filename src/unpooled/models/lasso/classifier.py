"""``PrivateLassoClassifier``: a thin scikit-learn estimator over the LASSO study of two classes, run in process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from unpooled.estimation.base import ALL, Declared, DeclaredClassifier, cards_of, tables_of
from unpooled.estimation.columns import JOINING
from unpooled.estimation.parameters import NONE, NUMBER, SHARED, WORD, taking
from unpooled.estimation.priors import PRIORS, SAVED, Prior, log_odds
from unpooled.estimation.tables import RESPONSE
from unpooled.models.lasso import MODEL
from unpooled.models.lasso.declared import LOGISTIC
from unpooled.models.lasso.forms import Form
from unpooled.models.lasso.in_process import in_place, warn_if_full
from unpooled.models.lasso.joining import Joining
from unpooled.privacy.bounds import Column
from unpooled.privacy.study import PROOF

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from unpooled.estimation.columns import Frames, On
    from unpooled.privacy.bounds import Bounds
    from unpooled.privacy.budget import Budget
    from unpooled.privacy.plan import Study


class PrivateLassoClassifier(Joining, DeclaredClassifier):
    r"""Sparse logistic regression on column-split data, from the private moments of :class:`PrivateLasso`.

    Minimises the logistic loss over coefficients and a constant, expected where the columns of each class are normal about their
    own means with a common covariance: that loss follows from moments, which is all that parties release. A penalty of the standardised
    coefficients follows from the noise, or their sum is bounded: :math:`|x|_1\le` ``radius``.

    Parameters
    ----------
    parties : int or mapping from party names to columns (indices or names), default 2
        Who holds which columns. An int splits the columns evenly.
    radius : float, optional
        Bound on the sum of absolute coefficients of the scaled columns, in log odds. None: a penalty that follows from the noise, as of
        :class:`PrivateLasso`.
    epsilon : float, default 1.0
        The privacy asked for: smaller protects more. ``inf`` adds no noise and promises nothing.
    delta : float, optional
        The probability with which the promise may fail. None is min(1e-5, 0.1 / n).
    bounds : Bounds, (low, high), or mapping from column names to ranges or categories, optional
        Declared ranges of the features. None reads them off the data, warns, and promises nothing.
    classes : two labels, optional
        The declared classes, in any order. None reads them off the labels, warns, and promises nothing.
    unit : {"attribute", "record"}, default "attribute"
        Whom the promise is for: one value of one person, or a whole row.
    adjacency : {"replace"}, default "replace"
        How two neighbouring data sets differ: one becomes any other admissible one.
    calibration : {"sound"}, default "sound"
        The noise whose guarantee is proved; the paper has no classifier.
    method : {"auto", "moments", "joint"}, default "auto"
        "auto" is "moments", of each party's own columns. "joint": the columns of all parties are joined under masks, whole persons are protected
        (``unit="record"``), and one party alone has the classes.
    prior : mapping, fitted model, public rows (X, y), or a mapping from names to several of these, optional
        Earlier models of the same classes (docs/prior.md): log odds of ``classes_[1]``, to which the fit is drawn as far as the release agrees.
    helpers : {1, 0}, default 1
        Of method "joint", whether an outside organisation knows the masks; 0 with three parties or more: they help each other.
    response_at : str, optional
        Of method "joint", who holds the classes; None is the first party, or of frames the one that has them.
    check : {"proof", "none"}, default "proof"
        Of method "joint", whether every party proves that its masked rows are short.
    public_seed : int, default 0
        Seed of the public randomness.
    random_state : int, optional
        A seed makes the noise reproducible, and the fit a simulation that protects nobody. None draws real noise.
    budget : Budget, optional
        A total that several fits on the same people share.

    Attributes
    ----------
    coef_ : array
        Log odds in the data's own units, one for each category where categories are declared.
    intercept_ : float
        The constant.
    classes_ : array
        The two labels.
    drawn_ : DrawnTo
        The weight of each earlier model, and how far they drew each coefficient; absent without ``prior``.
    shared_ : list
        As of :class:`PrivateLasso`.
    statement_, plan_, ledger_, communication_
        What is promised and what is not; what was released, with which noise; what was debited; bytes sent and received.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import PrivateLassoClassifier
    >>> X = np.random.default_rng(0).uniform(-1, 1, (20_000, 8))
    >>> y = X[:, 0] - X[:, 5] > 0.2
    >>> model = PrivateLassoClassifier(2, bounds=(-1, 1), classes=(False, True), epsilon=2.0, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.8)
    True

    """

    _model = MODEL
    _saved_types: ClassVar = (*DeclaredClassifier._saved_types, *SAVED)  # noqa: SLF001 - its base
    _parameter_constraints: ClassVar = (
        SHARED | taking("radius", NUMBER, NONE) | taking("method", WORD) | taking("prior", PRIORS, NONE) | JOINING
    )

    def __init__(
        self,
        parties: int | Mapping[str, Sequence[int | str]] = 2,
        *,
        radius: float | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        bounds: Bounds | Mapping[str | int, Any] | tuple[Any, Any] | None = None,
        classes: Sequence[object] | None = None,
        unit: str = "attribute",
        adjacency: str = "replace",
        calibration: str = "sound",
        method: str = "auto",
        prior: Prior = None,
        helpers: int = 1,
        response_at: str | None = None,
        check: str = PROOF,
        public_seed: int = 0,
        random_state: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        super().__init__(epsilon, delta, bounds, adjacency, calibration, public_seed, random_state, budget)
        self.parties = parties
        self.radius = radius
        self.classes = classes
        self.unit = unit
        self.method = method
        self.prior = prior
        self.helpers, self.response_at, self.check = helpers, response_at, check

    def _publicly(self) -> Any:  # noqa: ANN401 - scikit-learn's own
        return log_odds()

    def _study(self, rows: Mapping[str, Any], declared: Declared, holder: str | None = None) -> Study:
        # Classes of -1 and 1 have a half range of 1.
        bound = {} if self.radius is None else {"radius_in_half_ranges": float(self.radius)}
        if self._joins:
            signed = replace(declared, response=Column(RESPONSE, -1.0, 1.0))
            return self._joint_study(rows[ALL], signed, {"loss": LOGISTIC, **bound}, holder)
        self._check_joining()
        cards = cards_of(self._groups(declared.names), declared, rows[ALL])
        asked = {"response": RESPONSE, "loss": LOGISTIC, **bound}
        asked |= {} if self.method == Form.AUTO else {"method": self.method}  # without a method a study keeps its hash
        asked |= self._prior_parameter(declared.columns)
        return self._asked(cards, asked, declared.derived)

    def fit(self, X: ArrayLike | Frames, y: ArrayLike | str, *, on: On | None = None) -> Self:
        """Release moments of in-process parties, and fit the log odds. ``on`` as of :class:`PrivateLasso`."""
        holder = self._held(X, y, on)
        rows, labels = self._joined(X, y, on)
        table, declared, _ = self._labelled(rows, labels)
        study = self._study({ALL: table.n_rows}, declared, holder)
        signs = np.where(np.asarray(labels) == self.classes_[1], 1.0, -1.0)
        if self._joins:
            warn_if_full(self._fit_joint(study, table, declared, signs), stacklevel=2)
            return self
        result = self._run(study, tables_of(study, table, signs)).outcome.result
        warn_if_full(result, stacklevel=2)
        self._keep_drawn(result)
        self.shared_, self._columns = result.shared, declared.columns
        self.coef_, self.intercept_ = in_place(study, declared.columns, result), result.intercept
        return self
