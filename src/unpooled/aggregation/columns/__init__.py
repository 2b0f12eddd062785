"""Columns of the same people at different parties: their joint second moments, released once with noise.

The protocol that adds up the moments lies in :mod:`unpooled.aggregation.joint`. This package says which integers every party puts into it
(``rows``), by which public limits they are bounded (``limits``, ``design``), and which moments follow from the noisy total (``decoded``).
"""
