"""Bayesian regression with the paper's own noise: the classical formula and equation (12); no guarantee (THEORY.md)."""

from __future__ import annotations

from dataclasses import replace

from unpooled.models import bayes

MODEL = replace(bayes.MODEL, name="bayes-published")
