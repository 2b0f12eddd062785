r"""Block-coordinate Frank-Wolfe under arbitrary sampling (Lou & Cheung 2018, Algorithm 1), for linear models.

Minimises a smooth convex f over a product of l1 balls, one per block of columns: :math:`f(x) = |Ax - y|^2 / 2n`, or the mean
logistic loss. One block is the LASSO in its constrained form; more blocks with radii that add up to the same are a smaller
set, and a different problem. The matrix is dense (by columns) or sparse (CSC) and never made dense.

A round searches a random set of columns. In every block that has some of them it finds the best signed vertex
:math:`\pm\eta_k e_j`, and all these blocks step by one common :math:`\gamma`: :math:`2/(p t + 2)` with p the smallest probability
that a column is searched, or by line search. A block stays where it is if the vertex found does not lead downhill. Only so does
the expected gap obey Theorem 1 of Lou & Cheung when part of a block is searched: the best vertex is found with probability at least p, and a
worse one does no harm to first order. Without it (``descend=False``) the iterates of a sampled ball settle at the mean of
the vertices found, which is not the optimum.

With a temperature vertices are picked at random, as private picks are: the better, the likelier (the exponential mechanism).

What a round costs:

* all columns, least squares: the gradient :math:`A^T(Ax - y)` is kept up to date through the rows that the chosen column
  touches (after Raff, Khanna & Lu 2023), or for a dense matrix by products :math:`A^T a_j` that are made once per column
  chosen, several likely ones in one pass over the matrix. The factor :math:`1-\gamma` is one lazy scalar. What is left is one
  search for the largest of d numbers, and most of these are passed over by bounds. So is most of the noise of a noisy pick, which
  for a dense matrix costs more where it leads to ever new columns;
* sampled columns, least squares, one ball: the nonzeros of the sampled columns;
* several blocks of which some step: these, and the nonzeros of the present support of the blocks that step;
* logistic loss: in addition the number of rows.
"""

from unpooled.papers.frank_wolfe.engine import frank_wolfe
from unpooled.papers.frank_wolfe.theory import Sampling, bound, expected_curvature, interactions

__all__ = ["Sampling", "bound", "expected_curvature", "frank_wolfe", "interactions"]
