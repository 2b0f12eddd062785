"""Data that fit a study's cards and mean nothing, under the name by which audits have always had them."""

from unpooled.study.made_up import made_up

__all__ = ["made_up"]
