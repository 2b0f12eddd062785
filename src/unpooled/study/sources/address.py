"""Where a query is asked, and with what: everything that is said of a source before anything is opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import StudyError
from unpooled.study.sources.connection import Connection, check_attached
from unpooled.study.sources.credentials import no_password

if TYPE_CHECKING:
    from collections.abc import Mapping

#: How the data of a party file begin where they are a query.
SQL = "sql:"


class QueryAddress:
    """A query, the databases that it names, the engine's settings, and where credentials are. Nothing of the credentials themselves."""

    #: Where the engine may have its folder for what memory does not hold; None: where this system keeps such.
    scratch: str | None = None
    #: The columns of a party that say whose a row is; None for a program's own query.
    people: tuple[str, ...] | None = None

    def __init__(
        self,
        query: str,
        *,
        attach: Mapping[str, str] | None = None,
        settings: Mapping[str, str | int | bool] | None = None,
        secrets: Any = None,  # noqa: ANN401 - path-like
        folder: Any = ".",  # noqa: ANN401 - path-like
        name: str = "query",
    ) -> None:
        self.query, self.name, self.folder = query.strip(), name, Path(folder)
        self.attach, self.settings = dict(attach or {}), dict(settings or {})
        self.secrets = Path(secrets) if secrets else None
        if not self.query:
            msg = f"source {name!r}: the query is empty"
            raise StudyError(msg)
        check_attached(self.attach, self.settings)
        no_password(f"source {name!r}: the query", self.query)

    def connection(self) -> Connection:
        """Open everything that the query needs."""
        secrets = None if self.secrets is None else self.folder / self.secrets
        return Connection(self.name, self.query, self.attach, self.settings, secrets, self.folder, self.scratch)

    @property
    def place(self) -> str:
        """Return the key that distinguishes this source in the list of data whose budget is kept: the query, the databases, the folder."""
        told = msgspec.json.encode([self.query, sorted(self.attach.items()), str(self.folder.resolve())])
        return SQL + told.decode()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"
