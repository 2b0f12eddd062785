"""Exceptions of unpooled, and the remedy that each one asks for.

::

    UnpooledError
    ├── UsageError (also ValueError)   something you passed is wrong; the text says what and how to mend it
    │   ├── DataError                  a column, a row count or a value kind does not fit what was declared
    │   │   ├── RowsError              rows cannot be used; their numbers are given to their own party alone
    │   │   ├── SourceError            a database or a query cannot be read, or not exactly, or no longer says what it said
    │   │   └── ClusterError           workers on which a party's rows lie cannot be reached, or are not what they must be
    │   └── StudyError                 a study, party or card file is wrong: file, key, remedy
    ├── Refusal                        everything was understood and the answer is no; nothing has changed
    │   ├── PolicyRefusal              the party's policy does not allow this plan
    │   ├── BudgetRefusal              the ledger has no room for this release
    │   ├── PlanMismatch               the request belongs to another plan than the one approved
    │   ├── ReleaseConflict            the same release key was used with other content or other data
    │   ├── LedgerMoved                the ledger is not where it was made: a copy, until its owner says that it was moved
    │   └── LedgerDamaged              the ledger is missing, edited or rolled back; it is never re-created
    ├── StudyAborted                   too many parties are missing for a result; nothing was opened
    ├── AccountingError                an event whose privacy cost is not known
    └── ProtocolError                  a message that is malformed, too large or not allowed to leave a party

    PrivacyLeakWarning (UserWarning)   bounds or classes were read off the data: no guarantee holds
    BudgetWarning (UserWarning)        rows are fitted again without a budget that several fits share
    UtilityWarning (UserWarning)       a fit whose budget buys no more than a mean, or that its radius limits

No message of any of them carries a data value: they travel to other organisations and into log files.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

#: An error lists at most so many names: a party of documents may have tens of thousands of columns.
_LISTED = 5


def listed(names: Sequence[str]) -> str:
    """Return names as a message lists them: all of a few, the first of many."""
    more = len(names) - _LISTED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_LISTED])}, ... ({more:,} more)"


class UnpooledError(Exception):
    """Base of everything unpooled raises on purpose. Programs read where it came about from its attributes, people from its text."""

    #: The party that refuses or fails, the declared column that does not fit, the planned release that was asked for; None where it is not about one.
    party: str | None = None
    column: str | None = None
    release: str | None = None

    def at(self, *, party: str | None = None, column: str | None = None, release: str | None = None) -> Self:
        """Return the same error with what is known here of where it came about; what was known before stays."""
        self.party = self.party or party
        self.column = self.column or column
        self.release = self.release or release
        return self


@contextmanager
def raised_at(*, party: str | None = None, release: str | None = None) -> Iterator[None]:
    """Whatever of ours is raised inside came about here."""
    try:
        yield
    except UnpooledError as error:
        error.at(party=party, release=release)
        raise


class UsageError(UnpooledError, ValueError):
    """Something passed in is wrong; the message says what, where and what to do next."""


class JointRowsError(UsageError):
    """A party's card says that its masked rows do not travel, or not in this study."""


class DataError(UsageError):
    """The data do not fit their declaration. Names the column, never the value."""


class RowsError(DataError):
    """Rows of a party cannot be used. Names their numbers, which are for this party alone; ``outside`` says it without them."""

    def __init__(self, message: str, outside: str) -> None:
        super().__init__(message)
        self.outside = outside

    def told(self) -> DataError:
        """Return the error that others receive: row numbers are only for the holder of the rows."""
        return DataError(self.outside).at(party=self.party, column=self.column, release=self.release)


class SourceError(DataError):
    """A database or a query cannot be read, or not exactly, or no longer says what it said. Names the source, never a value."""


class ClusterError(DataError):
    """A cluster on which a party's rows are added up fails. Names the engine and the shard; nothing was released or debited."""


class StudyError(UsageError):
    """A study, party or card file is wrong. Names the file, the key and the remedy."""


class Refusal(UnpooledError):  # noqa: N818 - to be refused is an answer, not an error
    """A well-formed request that is not granted. A refusal changes nothing."""


class PolicyRefusal(Refusal):
    """The party's policy does not allow the plan."""


class BudgetRefusal(Refusal):
    """The ledger has no room left for the release."""


class PlanMismatch(Refusal):
    """The request names another plan than the one this party compiled and approved."""


class ReleaseConflict(Refusal):
    """A release key was used before with other content, or the data behind it have changed."""


class LedgerMoved(Refusal):
    """The ledger lies elsewhere than where it was made: a copy would spend its budget a second time."""


class LedgerDamaged(Refusal):
    """The ledger is missing, truncated, edited or rolled back. It is never re-created silently."""


class StudyAborted(UnpooledError):  # noqa: N818 - an outcome
    """Too many parties are missing. Nothing was opened; the study can be continued once they are back."""


class AccountingError(UnpooledError):
    """An event whose privacy cost is not known is refused, never guessed."""


class ProtocolError(UnpooledError):
    """A message is malformed, too large, or holds something that may not leave a party."""


class PrivacyLeakWarning(UserWarning):
    """Bounds or classes were derived from the data: the result is useful for exploration, its guarantee does not hold."""


class BudgetWarning(UserWarning):
    """Rows that were fitted before are fitted again: what their people lose adds up, and no statement of a single fit says so."""


class UtilityWarning(UserWarning):
    """A fit is worse than it could be: its budget buys no more than a mean, or its radius limits it."""


_WITHIN = __name__.partition(".")[0]


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn whoever called this package: the warning names the first line outside of it."""
    level, frame = 1, sys._getframe()  # noqa: SLF001 - as the standard library's own warnings do
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _WITHIN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


#: Words of other libraries, and what to do here.
_OTHER_WORDS = {
    "sample_weight": "weights= of fit are weights of rows, inside a declared weights_bounds (PrivateLinearRegression, PrivateGLM)",
    "n_jobs": "a fit uses every core that the process may use, and none twice: limit them with the environment variable NUMBA_NUM_THREADS",
    "level": "the confidence of intervals is that of summary(confidence=...), and in R of summary(), confint() and tidy()",
    "conf.level": "the confidence of intervals is that of summary(confidence=...), and in R of summary(), confint() and tidy()",
    "data_norm": "a bound on the length of a row is Bounds(norm=R)",
}
#: Words of other libraries, and the parameters that are meant by them: of those the one that a call has.
_SAME = {
    "level": ("confidence",),
    "conf.level": ("confidence",),
    "alpha": ("ridge", "penalty", "prior_precision"),
    "C": ("ridge", "penalty"),
}


def not_taken(name: str, word: str, known: Sequence[str]) -> str:
    """Return the words that refuse an argument: what it is called here, or which ones there are."""
    same = [one for one in _SAME.get(word, ()) if one in known]
    if same and word == "C":
        return f"{name} takes no 'C': the strength of its penalty is {same[0]}, 1 / (n C)"
    if word in _OTHER_WORDS and not same:
        return f"{name} takes no {word!r}: {_OTHER_WORDS[word]}"
    near = same or get_close_matches(word, known, n=1)
    return f"{name} takes no {word!r}: {f'did you mean {near[0]!r}?' if near else f'it takes {listed(known)}'}"
