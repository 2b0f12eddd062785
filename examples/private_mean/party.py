"""The only file of this model that touches raw data."""

from __future__ import annotations

import numpy as np

from private_mean.messages import SumReply
from private_mean.plan import RELEASE, STEP
from unpooled.privacy.mechanisms import Vector
from unpooled.protocol.context import Context
from unpooled.protocol.messages import Nothing
from unpooled.protocol.step import Step


def answer(context: Context, request: Nothing) -> SumReply:  # noqa: ARG001 - the request is no more than its name
    """Add up the coded column, exactly, block by block; the context debits, draws the noise and hands out the result."""
    coding = context.design
    total = np.zeros(1, dtype=np.int64)
    for block in context.table.blocks(coding.names):
        coded, _ = coding.code(block)
        total += coded.sum(axis=0)
    return SumReply(context.release(RELEASE, Vector(total)))


STEPS = (Step(STEP, Nothing, SumReply, answer),)
