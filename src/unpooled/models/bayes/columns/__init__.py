"""Linear regression on columns that lie at different parties: the statistics before and after one noisy release of joint second moments.

The protocol that adds up the moments lies in :mod:`unpooled.aggregation.joint`. This package says which integers every party puts into it
(``rows``), by which public limits they are bounded (``limits``, ``design``), and which model follows from the noisy total (``decoded``).
"""
