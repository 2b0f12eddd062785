"""What a PRIDE study may set, and what of it does not fit together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from unpooled.models.families import FAMILIES
from unpooled.models.pride.curve import OTHERS
from unpooled.privacy.classes import DEFAULT, check_classes

if TYPE_CHECKING:
    from unpooled.models.families import Family
#: A sketch as large as is worth its noise.
AUTO = "auto"
#: Its share of the party's columns at epsilon 1 and below, the largest share, and the fewest columns (THEORY.md, section 9).
_SHARE, _LARGEST, _FEWEST = 0.05, 0.5, 2


def automatic_size(rows: int, columns: int, epsilon: float) -> int:
    """Columns of a sketch from what is public before any data: 5 % of the party's, times epsilon above 1, up to half; at most n."""
    share = min(_LARGEST, _SHARE * max(1.0, epsilon))
    return min(max(_FEWEST, round(share * columns)), columns, max(rows, 1))


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a study may set for this model."""

    #: The label column with the response, at every party that estimates; a party without it only sends (scenario B).
    response: str = "y"
    task: str = "regression"
    #: The two labels of a classification, which the response holds: the first is coded -1, the second 1.
    classes: tuple[str | int | float, str | int | float] = DEFAULT
    #: The family of the response: "squared" or "huber" (regression), "logistic" (classification); empty: the first of them.
    loss: str = ""
    #: Where Huber's loss becomes straight, in the response's own units; None: 1.345 robust deviations of what a first fit leaves.
    threshold: float | None = None
    sketch: str = "srht"
    #: Columns of the sketch: "auto" (from rows, columns and epsilon), a number, a fraction of the party's coded columns, or a number for
    #: every party; 0 sends nothing.
    sketch_dim: int | float | str | dict[str, int] = AUTO
    #: Shape of the grid a party's columns lie on, row by row (dct only; default: one axis).
    grids: dict[str, tuple[int, ...]] = {}
    #: A public matrix per party (sketch = "matrix").
    matrices: dict[str, tuple[tuple[float, ...], ...]] = {}
    #: Columns declared public (scenario A): sent plain, never sketched.
    public: tuple[str, ...] = ()
    #: "marginal-likelihood", "local-cv", "global-cv" (not private), or scikit-learn's alpha.
    alpha: float | str = "marginal-likelihood"
    #: What a party makes of the received sketches: a model of the others' Gram matrix, calibrated columns, or plain ones.
    noise_model: str = "gram"
    #: What the others' columns are to a party's own (noise_model = "gram"): "like mine", "copies" of them, or "unrelated".
    others: str = "like mine"
    fit_intercept: bool = True
    #: Bound C on the length of a sketched row in coded units (unit = "record"); None is 1.25 sqrt(columns / 3).
    clip_norm: float | None = None
    folds: int = 5
    #: Share of the squared budget that goes to publishing the coefficients; 0 keeps them at their parties.
    publish: float = 0.0
    #: Bound on |y| (regression with publish > 0 only); the response is clipped to it.
    response_bound: float | None = None
    #: The plan whose coefficients predict these (new) rows; None fits.
    fitted: str | None = None
    #: Which parties predict new rows, each of which has estimated under that plan; none named: all of them.
    predicting: tuple[str, ...] = ()

    def __post_init__(self) -> None:  # noqa: C901, PLR0912 - one line per rule
        choices = {
            "task": ("regression", "classification"),
            "sketch": ("srht", "gaussian", "dct", "matrix"),
            "noise_model": ("gram", "calibrated", "plain"),
            "others": OTHERS,
        }
        for name, words in choices.items():
            if getattr(self, name) not in words:
                msg = f"{name} must be one of {', '.join(words)}"
                raise ValueError(msg)
        check_classes(self.classes)
        if self.task == "regression" and self.classes != DEFAULT:
            raise ValueError("classes belong to task = classification")
        if self.loss and (self.loss not in FAMILIES or self.family.classes != (self.task == "classification")):
            fitting = [name for name, family in FAMILIES.items() if family.classes == (self.task == "classification")]
            msg = f"loss must be one of {', '.join(fitting)} where task = {self.task}"
            raise ValueError(msg)
        if self.threshold is not None and (self.loss != "huber" or not 0 < self.threshold < math.inf):
            raise ValueError("threshold is a positive finite number, and belongs to loss = huber")
        if isinstance(self.alpha, str):
            if self.alpha not in ("marginal-likelihood", "local-cv", "global-cv"):
                raise ValueError("alpha must be a number, marginal-likelihood, local-cv or global-cv")
        elif not 0 < self.alpha < math.inf:
            raise ValueError("alpha must be positive and finite")
        if self.alpha == "global-cv" and self.family is not FAMILIES["squared"]:
            raise ValueError("global-cv reproduces the paper's regressions only: choose another alpha")
        if isinstance(self.sketch_dim, str) and (self.sketch_dim != AUTO or self.fitted is not None):
            raise ValueError(
                "sketch_dim must be auto, a number, a fraction, or a number for every party; where new rows are predicted, the numbers "
                "that the fitted plan had"
            )
        sizes = self.sketch_dim.values() if isinstance(self.sketch_dim, dict) else [self.sketch_dim]
        given = [size for size in sizes if not isinstance(size, str)]
        if not all(0 <= size < math.inf for size in given):
            raise ValueError("sketch_dim must be >= 0 and finite")
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise ValueError("clip_norm must be positive and finite")
        if not 0 <= self.publish < 1:
            raise ValueError("publish must lie in [0, 1)")
        if self.publish and (isinstance(self.alpha, str) or self.fit_intercept or self.noise_model != "plain"):
            raise ValueError(
                "publish needs a number alpha, fit_intercept = false and noise_model = plain: anything else reads the data"
            )
        if self.publish and self.loss == "huber" and self.threshold is None:
            raise ValueError("publish needs a declared threshold of the Huber loss: the default reads the response")
        if (
            self.publish
            and self.family.slope == math.inf
            and not (self.response_bound and 0 < self.response_bound < math.inf)
        ):
            raise ValueError("publish needs response_bound, a declared bound on the absolute value of the response")
        if self.predicting and self.fitted is None:
            raise ValueError(
                "predicting names the parties that predict new rows: it needs fitted, the plan that they estimated under"
            )
        if self.folds < 2:  # noqa: PLR2004 - one fold leaves nothing to train on
            raise ValueError("folds must be at least 2")

    @property
    def family(self) -> Family:
        """The family of the response."""
        return FAMILIES[self.loss or ("squared" if self.task == "regression" else "logistic")]
