"""The only file of this model that touches raw data."""

from __future__ import annotations

import numpy as np

from private_correlation.messages import MomentsReply
from private_correlation.plan import RELEASE, STEP
from unpooled.privacy.mechanisms import Vector
from unpooled.protocol.context import Context
from unpooled.protocol.messages import Nothing
from unpooled.protocol.registry import Step


def answer(context: Context, request: Nothing) -> MomentsReply:  # noqa: ARG001 - the request is no more than its name
    """Add up products of the two coded columns, exactly, block by block; the context debits, draws the noise and returns the result."""
    coding = context.design
    total = np.zeros(5, dtype=np.int64)
    for block in context.table.blocks(coding.names):
        u, v = coding.code(block)[0].T.astype(np.int64)
        total += [u.sum() * coding.grid, v.sum() * coding.grid, u @ v, u @ u, v @ v]
    return MomentsReply(context.release(RELEASE, Vector(total)))


STEPS = (Step(STEP, Nothing, MomentsReply, answer),)
