"""``TreatmentEffect``: the study of a treatment effect run in process on a frame, and its result."""

from __future__ import annotations



