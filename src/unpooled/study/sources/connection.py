"""A locked connection of the query engine, its extensions from installed packages; users, passwords and keys from the environment or a private file."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from unpooled.errors import SourceError, StudyError
from unpooled.totals.threads import threads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duckdb import DuckDBPyConnection


# --- Credentials -----------------------------------------------------------------------------------------------------------
# Users, passwords and keys of databases: from the environment or from a file that only its owner can read, never from a party file.
#
# Nothing in here is ever part of an error, of a ``repr`` or of a plan.

#: What a database may ask for.
LOGIN = ("user", "password")
#: What an object store may ask for, and the variables in which its own programs look for it.
STORE = {"key_id": "AWS_ACCESS_KEY_ID", "secret": "AWS_SECRET_ACCESS_KEY", "session_token": "AWS_SESSION_TOKEN"}
#: How the object store's part of a credentials file is called.
S3 = "s3"
#: Other people's permissions.
_OTHERS = 0o077
#: ``password=...`` between other settings, or ``//user:password@host``.
_PASSWORD = re.compile(r"\b(password|passwd|sslpassword|passfile)\s*=|://[^/@\s]*:[^/@\s]*@", re.IGNORECASE)


class Credentials:
    """The logins that a source's databases ask for, by the name under which each is attached."""

    def __init__(self, file: Path | None) -> None:
        self._stored = {} if file is None else _read(file)

    def login(self, name: str) -> dict[str, str]:
        """User and password of a database, as far as either is given: the environment goes before the file."""
        return self._found(name, {part: f"UNPOOLED_{name.upper()}_{part.upper()}" for part in LOGIN})

    def store(self) -> dict[str, str]:
        """Return the keys of an object store."""
        return self._found(S3, STORE)

    def _found(self, name: str, variables: Mapping[str, str]) -> dict[str, str]:
        stored = self._stored.get(name, {})
        found = {part: os.environ.get(variable) or stored.get(part, "") for part, variable in variables.items()}
        return {part: value for part, value in found.items() if value}

    def __repr__(self) -> str:
        return "Credentials(...)"


def no_password(what: str, text: str) -> None:
    """Refuse an address that holds a password: party files are copied, mailed and kept under version control."""
    if _PASSWORD.search(text):
        msg = (
            f"{what} holds a password, and party files are no place for one: take it out (and change it), and give it in the environment or in "
            "a file that only its owner can read (`secrets` under [source])"
        )
        raise StudyError(msg)


def _read(file: Path) -> dict[str, dict[str, str]]:
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            raw = opened.read()
    except OSError as error:
        msg = f"{file.name}: the credentials file cannot be read ({error.strerror}): correct `secrets` under [source]"
        raise StudyError(msg) from None
    if mode & _OTHERS:
        msg = f"{file.name}: others can read this credentials file (mode {mode:o}), so it is not used: chmod 600, and change what was in it"
        raise StudyError(msg)
    try:
        return msgspec.toml.decode(raw, type=dict[str, dict[str, str]])
    except (msgspec.DecodeError, UnicodeDecodeError):  # its text may quote a password
        msg = f'{file.name}: credentials are TOML tables of texts: [NAME] (or [s3]), then password = "..."'
        raise StudyError(msg) from None


# --- Connection ------------------------------------------------------------------------------------------------------------
# A locked connection of the query engine: its extensions come from installed packages, nothing is downloaded, databases are read only.
#
# The engine's files outside memory lie in a folder of its own that only its owner can read and that is gone when the connection is.

#: What a database may be, the extension that reads it (none: the engine itself), and whether its address is a path.
DATABASES = {"postgres": ("postgres_scanner", False), "sqlite": ("sqlite_scanner", True), "duckdb": ("", True)}
#: The engine's own settings that a party may set: where object stores are, and how much memory and how many threads a query has.
SETTINGS = (
    "s3_region",
    "s3_endpoint",
    "s3_url_style",
    "s3_use_ssl",
    "s3_url_compatibility_mode",
    "s3_requester_pays",
    "ca_cert_file",
    "force_download",
    "http_timeout",
    "http_retries",
    "http_keep_alive",
    "memory_limit",
    "threads",
)
#: Memory of a query; what it does not fit into goes to its folder on the disk.
_MEMORY = "1GB"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_REMOTE = re.compile(r"\b(s3|s3a|s3n|gs|gcs|r2|hf|https?)://", re.IGNORECASE)
_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gcs", "gcs": "gcs", "r2": "r2"}


class Connection:
    """An open connection, and the folder that dies with it."""

    def __init__(
        self,
        label: str,
        query: str,
        attach: Mapping[str, str],
        settings: Mapping[str, Any],
        secrets: Path | None,
        folder: Path,
        scratch: str | None = None,
    ) -> None:
        duckdb = engine()
        own = tempfile.mkdtemp(prefix="unpooled-", dir=scratch)  # of mode 700
        self._gone = weakref.finalize(self, shutil.rmtree, own, ignore_errors=True)
        credentials = Credentials(secrets)
        config = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "allow_persistent_secrets": False,
            "temp_directory": own,
            "memory_limit": _MEMORY,
            "threads": threads(),
            "file_search_path": str(folder.resolve()),
            "python_enable_replacements": False,  # a table's name never means a variable of this program
        }
        self.raw: DuckDBPyConnection = duckdb.connect(":memory:", config=config)
        try:
            remote = {found.lower() for found in _REMOTE.findall(" ".join((query, *attach.values())))}
            for name in dict.fromkeys([kind_of(address)[0] for address in attach.values()] + ["httpfs"] * bool(remote)):
                if name:
                    self.raw.execute(f"LOAD {_quoted(str(extension(name)))}")
            for name, value in settings.items():
                self._set(name, value)
            for kind in sorted({_STORES[scheme] for scheme in remote if scheme in _STORES}):
                if keys := credentials.store():
                    self._secret(f"store_{kind}", kind, keys)
            for name, address in attach.items():
                self._attach(name, address, credentials.login(name), folder)
        except duckdb.Error as error:
            self.close()
            refuse(label, error)

    def lock(self, *, streams: bool = False) -> None:
        """Let no query change a setting. One that only streams a file is decoded fastest by one thread, while other threads add up."""
        if streams:
            self.raw.execute("SET GLOBAL threads = 1")
        self.raw.execute("SET lock_configuration = true")

    def close(self) -> None:
        """Give everything back."""
        self.raw.close()
        self._gone()

    def _set(self, name: str, value: object) -> None:
        self.raw.execute(f"SET GLOBAL {name} = {_quoted(str(value))}")

    def _secret(self, name: str, kind: str, parts: dict[str, str]) -> None:
        told = "".join(f", {part} {_quoted(value)}" for part, value in parts.items())
        self.raw.execute(f'CREATE SECRET "{name}" (TYPE {kind}{told})')

    def _attach(self, name: str, address: str, login: dict[str, str], folder: Path) -> None:
        kind, _, where = address.partition(":")
        if DATABASES[kind][1]:
            where = str(folder / where)
        options = [f"TYPE {kind}", "READ_ONLY"]
        if kind == "postgres":  # also where it holds nothing: the engine would look for one on the disk
            self._secret(name, kind, login)
            options.append(f'SECRET "{name}"')
        self.raw.execute(f'ATTACH {_quoted(where)} AS "{name}" ({", ".join(options)})')


def engine() -> Any:  # noqa: ANN401 - a module
    """Return the query engine, or what to install."""
    try:
        import duckdb
        import nanoarrow  # noqa: F401 - what its rows come through
    except ModuleNotFoundError:
        msg = "queries need the extra: pip install 'unpooled[sql]'"
        raise StudyError(msg) from None
    return duckdb


def extension(name: str) -> Path:
    """Where an extension of the engine was installed, of the engine's own version."""
    version, package = engine().__version__, f"duckdb_extension_{name}"
    try:
        places = list(importlib.import_module(package).__path__)
    except ModuleNotFoundError:
        places = []
    for place in places:
        file = Path(place) / "extensions" / f"v{version}" / f"{name}.duckdb_extension"
        if file.is_file():
            return file
    msg = f"the package {package.replace('_', '-')} {version} is needed for this source and never downloaded by unpooled: pip install 'unpooled[sql]'"
    raise StudyError(msg)


def kind_of(address: str) -> tuple[str, bool]:
    """Return the extension that reads a database, and whether its address is a path."""
    return DATABASES[address.partition(":")[0]]


def kinds_of(attach: Mapping[str, str]) -> dict[str, str]:
    """Return the kind of each attached database."""
    return {name: address.partition(":")[0] for name, address in attach.items()}


def check_attached(attach: Mapping[str, str], settings: Mapping[str, Any]) -> None:
    """Refuse databases and settings that are none, before anything is opened."""
    for name, address in attach.items():
        if not _NAME.fullmatch(name) or address.partition(":")[0] not in DATABASES or not address.partition(":")[2]:
            msg = f"[source] attach: {name} is not NAME = 'KIND:ADDRESS' with a name of small letters and a kind of {', '.join(DATABASES)}"
            raise StudyError(msg)
        no_password(f"[source] attach: the address of {name}", address)
    for name in settings:
        if name not in SETTINGS:
            msg = f"[source] settings: {name!r} is none that a party may set: {', '.join(SETTINGS)} (keys of stores are credentials)"
            raise StudyError(msg)


def refuse(label: str, error: Exception) -> NoReturn:
    """Raise an error in words of our own: those of databases quote rows, addresses and passwords."""
    msg = f"source {label!r}: {_words(error)}"
    raise SourceError(msg) from None


def _words(error: Exception) -> str:
    text, kind = str(error).lower(), type(error).__name__
    if any(
        part in text
        for part in ("authentication failed", "no password supplied", "does not exist\n", "no pg_hba.conf entry")
    ):
        return "the database refuses the user or the password: look at the credentials (environment, or `secrets` under [source])"
    if any(
        part in text for part in ("unable to connect", "could not connect", "connection refused", "could not translate host")
    ):
        return "the database cannot be reached: look at its address, and whether it runs"
    if any(
        part in text
        for part in ("server closed the connection", "terminating connection", "connection to server", "ssl syscall")
    ):
        return "the connection broke while rows were read: nothing was released from them. Try again"
    known = {
        "ParserException": "the query is not written in the engine's SQL",
        "BinderException": "the query names a column, a function or a type that is not there",
        "CatalogException": "the query names a table or a function that is not there",
        "ConversionException": "a value does not fit the type that the query or the database declares for it",
        "MismatchException": "a value does not fit the type that the query or the database declares for it",
        "OutOfMemoryException": "the query needs more memory than it has: raise memory_limit under [source.settings], or order fewer columns",
        "InterruptException": "the query was interrupted",
    }
    return known.get(
        kind,
        f"it cannot be read ({kind}): look at paths, addresses and rights; the database's own words may quote data, so they are not shown",
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
