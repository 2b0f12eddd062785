r"""The subsampled randomised Hadamard transform, fused and trimmed: ``X -> X D H[:, columns] / sqrt(m)``.

``D`` holds tau random signs, ``H`` is the +-1 Walsh-Hadamard matrix (Sylvester's order) of size ``P = 2^ceil(log2 tau)`` and m of
its P columns are kept without replacement (Ailon and Chazelle 2009; Tropp 2011). Orthonormal H has entries ``P^-1/2``, the scale is
``sqrt(P/m)``, so every entry of ``Pi = D H[:, columns] / sqrt(m)`` is ``+-1/sqrt(m)`` and every row of Pi has norm 1. Integers
get the unscaled product, whose entries are sums of at most tau signed inputs: exact when ``bound * tau`` fits the output.

How a row is transformed. Write an index as ``(piece, block, lane)`` = (index // 2048, index // 32 % 64, index % 32); H is the
Kronecker product of three smaller ones.

1. block: six levels as two radix-8 passes inside a piece of 2048, which stay in the L1 cache; the first multiplies by the signs.
   Pieces beyond tau are zero and never computed.
2. piece: radix-8 (then radix-2) passes across pieces, in the constant geometry of Pease (1968): every pass reads its operands
   ``blocks / radix`` apart and writes them side by side, which rotates the digits once around. Only blocks with a wanted column.
3. lane: not transformed. Each wanted output is a product of 32 lanes with one row of ``H_32``.

That is ``P log2(P/32) + 32 m`` operations instead of ``P log2 P`` and a second pass over P outputs. Two things make LLVM vectorise
it and must survive any edit: strides and trip counts are literals (so unrolled operands provably do not overlap), and every
arithmetic result is cast back to the scratch type (numba would widen int32 to int64). Every row takes the same path, hence float
results do not depend on blocking or threads; on another processor the sums of step 3 may be ordered otherwise, so their last bits
may differ, while integers are equal everywhere. No function in this package knows what privacy is.
"""

from unpooled.kernels.hadamard.transform import Srht, srht

__all__ = ["Srht", "srht"]
