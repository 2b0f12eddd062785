"""The figure of a treatment effect: overlap, balance and, of survival, the weighted curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unpooled.errors import UsageError
from unpooled.inference.summary import (
    BAND,
    CURVES,
    INK,
    SOFT,
    new_figure,
    plain,
)

if TYPE_CHECKING:
    from unpooled.models.effects.result import EffectResult


def figure(result: EffectResult) -> Any:  # noqa: ANN401 - a matplotlib figure
    """Draw what a reader judges an effect by."""
    if result.overlap is None:
        raise UsageError("the g-formula has no weights, whose overlap and balance could be drawn")
    count = 2 + bool(result.life_tables)
    drawn, axes = new_figure(4.4 * count, max(3.4, 1.2 + 0.22 * len(result.balance)), count)
    _overlap(axes[0], result)
    _balance(axes[1], result)
    if result.life_tables:
        for k, (arm, table) in enumerate(zip(result.arms, result.life_tables, strict=True)):
            own = table.kaplan_meier(result.level)
            axes[2].fill_between(own.times, own.low, own.high, step="post", color=CURVES[k], alpha=BAND, lw=0)
            axes[2].step(own.times, own.survival, where="post", color=CURVES[k], label=arm)
        axes[2].set(xlabel="time", ylabel="weighted survival", ylim=(0, 1.02))
        axes[2].legend()
    return drawn


def _overlap(axes: Any, result: EffectResult) -> None:  # noqa: ANN401 - matplotlib axes
    """Bars of both arms, one upwards and one downwards, with twice the deviation of their noise."""
    assert result.overlap is not None
    edges = np.array([0.0, *result.overlap.cuts, 1.0])
    for k, (arm, own) in enumerate(zip(result.arms, result.overlap.counts.numpy(), strict=True)):
        sign = 2 * k - 1
        axes.bar(
            edges[:-1],
            sign * np.maximum(own, 0.0),
            np.diff(edges),
            align="edge",
            color=CURVES[k],
            alpha=0.7,
            edgecolor="white",
            label=plain(arm),
            yerr=2 * result.overlap.deviation,
            error_kw={"ecolor": INK, "lw": 0.8},
        )
    axes.axhline(0.0, color=SOFT, lw=0.8)
    axes.set(xlabel="propensity", ylabel=f"people ({plain(result.arms[1])} upwards)", xlim=(0, 1))
    axes.legend()


def _balance(axes: Any, result: EffectResult) -> None:  # noqa: ANN401
    """Standardised differences before and after weighting, with twice the deviation of their noise."""
    places = np.arange(len(result.balance))[::-1]
    for k, when in enumerate(("before", "after")):
        values = [getattr(one, when) for one in result.balance]
        near = [2 * getattr(one, f"{when}_noise") for one in result.balance]
        axes.errorbar(
            values,
            places + 0.12 - 0.24 * k,
            xerr=near,
            fmt="o",
            mfc="white" if not k else None,
            color=CURVES[k],
            label=f"{when} weighting",
        )
    axes.axvline(0.0, color=SOFT, lw=0.8)
    for end in (-0.1, 0.1):
        axes.axvline(end, color=SOFT, lw=0.8, linestyle=":")
    axes.set(yticks=places, yticklabels=[plain(one.term) for one in result.balance], xlabel="standardised difference")
    axes.legend()
