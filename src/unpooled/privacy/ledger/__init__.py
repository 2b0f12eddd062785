"""The durable privacy ledger of one party: what was approved, what was paid for, and what was answered.

A release is one act: :meth:`Ledger.reserve` debits it, the party draws its noise, :meth:`Ledger.commit` stores the
reply, and only then are the bytes sent. The same request again is answered by :meth:`Ledger.reply` from the store, so
retries, crashes and replays cost nothing and leak nothing. An error or a refusal changes nothing.

A ledger also knows its place (file and machine): a copy elsewhere is refused until its owner says that it was moved. It says which
file's budget it keeps. One that unpooled 0.1.0 wrote is taken over with everything it spent (:meth:`Ledger.migrate`).

Four files belong together: ``<path>`` (SQLite), its ``-journal`` while a write is under way, ``<path>.anchor`` and
``<path>.key``, the root key of the party's noise. Rows are only ever appended, and each carries the SHA-256 of the row
before it and of its own content: a row edited, inserted or removed breaks the chain. The anchor tells which end of the
chain is the present one. Each write

1. inserts its rows inside a transaction,
2. writes the anchor "the old end or the new one" (temporary file, fsync, rename, fsync of the directory),
3. commits the transaction,
4. takes the lock again and writes the anchor "the new end", unless another process has done so.

Whatever is killed wherever, the end of the database is one of the anchor's, so the ledger opens again; and an older copy
of the database, put back, is refused. If only step 4 fails the debit stands and the caller sees a refusal: nothing is
sent, and the next call finishes the step without a second debit. An older copy of database AND anchor put back together cannot be distinguished from the
truth by anything on this machine: a careful officer writes :attr:`Ledger.head` down elsewhere and compares.
"""

from unpooled.privacy.ledger.account import Ledger
from unpooled.privacy.ledger.chain import Charge, Entries, Entry, ReleaseKey

__all__ = ["Charge", "Entries", "Entry", "Ledger", "ReleaseKey"]
