"""Where a query is asked, and with what: everything that is said of a source before anything is opened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from unpooled.errors import StudyError
from unpooled.study.sources.connection import Connection, check_attached, kinds_of
from unpooled.study.sources.credentials import no_password
from unpooled.study.sources.relations import People

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: How the data of a party file begin where they are a query.
SQL = "sql:"


class QueryAddress:
    """A query, the databases that it names, the engine's settings, and where credentials are. Nothing of the credentials themselves."""

    #: Where the engine may have its folder for what memory does not hold; None: where this system keeps such.
    scratch: str | None = None
    #: True for the reading of one file that this package writes itself, which numbers rows to cut them.
    own_words = False

    def __init__(
        self,
        query: str,
        *,
        attach: Mapping[str, str] | None = None,
        settings: Mapping[str, str | int | bool] | None = None,
        secrets: Any = None,  # noqa: ANN401 - path-like
        folder: Any = ".",  # noqa: ANN401 - path-like
        name: str = "query",
        id: str | None = None,  # noqa: A002 - the word of party files
        public: Sequence[str] = (),
        called: Sequence[str] = (),
    ) -> None:
        self.query, self.name, self.folder = query.strip(), name, Path(folder)
        self.attach, self.settings = dict(attach or {}), dict(settings or {})
        self.secrets = Path(secrets) if secrets else None
        self.people = People(id, public=tuple(public), called=tuple(called), attached=kinds_of(self.attach))
        if not self.query:
            msg = f"source {name!r}: the query is empty"
            raise StudyError(msg)
        check_attached(self.attach, self.settings)
        no_password(f"source {name!r}: the query", self.query)

    def of_people(self, id_column: str | None, household: str | None) -> None:
        """Take over what a party file says: whose a row is, and whether a person has one row or the rows of a household."""
        self.people = replace(self.people, id=household or id_column, once=household is None)

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
