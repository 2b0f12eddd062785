"""Messages of the default form: its requests, and the replies that may leave a party: noisy sums, picks, moments, axes and products."""

from __future__ import annotations

import msgspec

from unpooled.protocol.messages import Array, Released


class Standards(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Released means and deviations in coded units: of a party's columns (all, or the chosen ones), and of the response."""

    middle: tuple[float, ...]
    width: tuple[float, ...]
    response: tuple[float, float]


class StandardSumsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Noisy sums and sums of squares."""

    sums: Released


class ChooseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Choose a column that is not among those already chosen."""

    standards: Standards
    taken: tuple[int, ...]


class ChooseReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Its place among the others, of the signed ones."""

    choice: Released


class ProductsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Release the moments of these columns, standardised."""

    standards: Standards
    columns: tuple[int, ...]


class ProductsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Their noisy second moments, and products with the response."""

    products: Released


class AxisRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Release the score of every row along a public direction of these columns."""

    standards: Standards
    columns: tuple[int, ...]
    direction: tuple[float, ...]


class AxisReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Noisy scores of the rows."""

    scores: Released


class CrossingRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Release the products of your scores along the same direction with the others' released ones, a column for each."""

    axis: AxisRequest
    others: Array


class CrossingReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Those products, with noise."""

    products: Released
