"""Where a party keeps what never leaves it (its own coefficients)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from unpooled.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import ItemsView, Mapping

    from numpy.typing import NDArray

#: What the row map of linked parties is kept as, under its digest.
ROW_MAP = "link_rows"
#: And beside it the digest of the data whose rows it names.
MAP_DATA = "link_data"


class Keeper(Protocol):
    """A store of arrays by plan and name."""

    def keep(self, plan: str, name: str, values: NDArray[Any]) -> None:
        """Store one value."""
        ...

    def kept(self, plan: str, name: str) -> NDArray[Any]:
        """Return one stored value."""
        ...

    def has(self, plan: str, name: str) -> bool:
        """Return True if there is a value of this name."""
        ...


class MemoryKeeper:
    """Kept values of an in-process party."""

    def __init__(self, values: Mapping[tuple[str, str], NDArray[Any]] | None = None) -> None:
        self._values: dict[tuple[str, str], NDArray[Any]] = dict(values or {})

    def keep(self, plan: str, name: str, values: NDArray[Any]) -> None:
        """Store one value."""
        self._values[plan, name] = values

    def kept(self, plan: str, name: str) -> NDArray[Any]:
        """Return one stored value."""
        if (plan, name) not in self._values:
            msg = f"nothing named {name!r} is kept for plan {plan[:16]}"
            raise UsageError(msg)
        return self._values[plan, name]

    def has(self, plan: str, name: str) -> bool:
        """Return True if there is such a value."""
        return (plan, name) in self._values

    def items(self) -> ItemsView[tuple[str, str], NDArray[Any]]:
        """Return everything kept, by (plan, name)."""
        return self._values.items()
