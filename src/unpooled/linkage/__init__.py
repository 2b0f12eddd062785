"""Private record linkage: which people several parties have in common, found without showing anybody an id it did not hold; or, hidden, found by nobody."""

from unpooled.linkage.in_process import hidden_places
from unpooled.linkage.model import MODEL

__all__ = ["MODEL", "hidden_places"]
