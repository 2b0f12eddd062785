"""The exit code and the words of an error: the command line prints them, and ``unpooled serve`` answers with them."""

from __future__ import annotations

from unpooled.errors import Refusal, UnpooledError

#: A usage error exits with 2 (as the shell's own tools do), a refusal by a policy or ledger with 3.
USAGE, REFUSED = 2, 3


def failure(error: BaseException) -> tuple[int, str] | None:
    """Return the exit code and the message of an error that people can mend; None of any other."""
    if isinstance(error, Refusal):
        return REFUSED, str(error)
    if isinstance(error, UnpooledError):
        return USAGE, str(error)
    if isinstance(error, OSError):
        return USAGE, f"{error.filename or 'a file'}: {error.strerror}: check the path"
    if isinstance(error, ModuleNotFoundError) and error.name == "fcntl":
        return USAGE, "networks need Linux or macOS (on Windows: WSL)"
    if isinstance(error, ModuleNotFoundError) and error.name in {"nvflare", "psutil"}:
        return USAGE, "this needs the network extra: pip install 'unpooled[network]'"
    return None
