"""Work that takes longer than a page may: done one after the other in the background, with its words while it lasts and its result afterwards."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unpooled.errors import UnpooledError

if TYPE_CHECKING:
    from collections.abc import Callable

    #: A piece of work: it is given what to call with its words, and returns its result.
    Work = Callable[[Callable[[str], None]], Any]


@dataclass
class Job:
    """One piece of work."""

    words: str = "waiting for its turn"
    done: bool = False
    result: Any = None
    trouble: str = ""


class Jobs:
    """Pieces of work by kind and plan; the same one is not done twice at a time, and never two at once."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], Job] = {}
        self._lock, self._turn = threading.Lock(), threading.Lock()

    def find(self, kind: str, plan: str) -> Job | None:
        """Return the work of this kind on this plan, if it was begun."""
        return self._jobs.get((kind, plan))

    def begin(self, kind: str, plan: str, work: Work) -> None:
        """Begin the work unless it is under way."""
        with self._lock:
            known = self._jobs.get((kind, plan))
            if known is not None and not known.done:
                return
            job = self._jobs[kind, plan] = Job()
        # A daemon: work on made-up data need not end before the console does.
        threading.Thread(target=self._do, args=(job, work), daemon=True).start()

    def _do(self, job: Job, work: Work) -> None:
        def say(words: str) -> None:
            job.words = words

        with self._turn:
            try:
                job.result = work(say)
            except UnpooledError as error:
                job.trouble = str(error)
            except Exception as error:  # noqa: BLE001 - its words might hold anything; the page says that it failed
                job.trouble = f"it failed ({type(error).__name__}); `unpooled audit STUDY` on the command line says where"
            finally:
                job.done = True
