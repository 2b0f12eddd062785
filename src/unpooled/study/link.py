"""``unpooled.link``: frames in, frames with the same people in the same order out, by the messages that parties on a network exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unpooled.estimation.linking import link_rows, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def link(
    frames: Mapping[str, Any],
    on: str | Sequence[str | Mapping[str, Any]],
    *,
    normalise: Sequence[str] = ("strip",),
) -> dict[str, Any]:
    """Return the rows of people whom all frames have, in the same order everywhere.

    All of it happens in this process, by the very messages that parties on a network exchange: a rehearsal, and a way to prepare files for
    estimators of columns of the same people. The caller holds all the frames, so that nothing is kept from anybody here.

    Parameters
    ----------
    frames : mapping from names to frames
        A frame of pandas or polars, or a mapping from column names to columns, for each of 2 to 10 parties.
    on : str, or a sequence of keys
        The column with the ids. Of several keys (columns, or mappings with ``name``, ``columns`` and ``normalise``) each is tried in turn on
        the rows that no earlier one matched.
    normalise : sequence of str
        What is done to a key before it is compared, in this order: "nfc", "casefold", "strip", "digits", "soundex".

    Returns
    -------
    dict
        Under every name the frame's common rows. The order is the same in all of them, and random.

    Examples
    --------
    >>> import unpooled
    >>> clinic = {"patient": ["ada", "ben", "cleo"], "age": [41, 52, 63]}
    >>> lab = {"patient": ["cleo ", "dan", "ada"], "crp": [7.0, 8.0, 9.0]}
    >>> both = unpooled.link({"clinic": clinic, "lab": lab}, on="patient")
    >>> sorted(zip(both["clinic"]["age"].tolist(), both["lab"]["crp"].tolist()))
    [(41, 9.0), (63, 7.0)]
    """
    linked = link_rows(frames, on, normalise)
    return {name: rows_of(frame, linked.rows[name]) for name, frame in frames.items()}
