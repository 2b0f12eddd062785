"""The forms of five models as their papers print them, and the algorithms and bounds of these papers: kept for comparison, none of them private.

Nothing of the package imports this folder. Its rows join the registry through the entry points of the distribution, as those of any other package
(:mod:`unpooled.protocol.registry`), so an installation without it fits every sound model.
"""
