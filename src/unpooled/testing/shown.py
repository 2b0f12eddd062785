"""Attributes of estimators after ``fit``: each is a function of declarations, of releases, or named as a party's own (``unpooled.audit.interface``).

A test module names its estimators in ``ESTIMATORS``: functions by name of a seed for the rows and a seed for the noise, which return a fitted
estimator. It classifies the attributes of its own classes in ``SHOWN``, as ``unpooled.audit.interface.OWN`` does for ours.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from unpooled.audit.interface import EVERYWHERE, OWN, Shown
from unpooled.errors import UnpooledError
from unpooled.protocol import local

#: A function of a seed for the rows and a seed for the noise, which returns a fitted estimator.
Fitting = Callable[[int, int], Any]


def fits(fitting: Fitting, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any]:
    """Return an estimator fitted to some rows; to others, with the messages of the first; and to these with messages of their own."""

    def fitted(seed: int, noise: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fitting(seed, noise)

    said: list[dict[tuple[str, str, int], bytes]] = []
    honest = local.in_process

    def noting(parties: Any) -> Any:
        answered: dict[tuple[str, str, int], bytes] = {}
        said.append(answered)

        def exchange(batch: Any) -> Any:
            answers = honest(parties)(batch)
            answered.update({(ask.to, ask.step, ask.index): answer for (ask, _), answer in zip(batch, answers, strict=True)})
            return answers

        return exchange

    with monkeypatch.context() as patch:
        patch.setattr(local, "in_process", noting)
        one = fitted(1, 0)
    recorded = iter(said)

    def playing(parties: Any) -> Any:
        answered = next(recorded)

        def exchange(batch: Any) -> Any:
            for ask, request in batch:
                reply = parties[ask.to].answer(request)  # it keeps what it keeps
                assert len(reply) == len(answered[ask.to, ask.step, ask.index])
            return [answered[ask.to, ask.step, ask.index] for ask, _ in batch]

        return exchange

    with monkeypatch.context() as patch:
        patch.setattr(local, "in_process", playing)
        two = fitted(2, 0)
    return one, two, fitted(2, 0)


def shown_by(model: Any) -> list[str]:
    """Return every public name of an estimator that is no parameter and no method."""
    parameters = model.get_params() if hasattr(model, "get_params") else {}
    names = (name for name in dir(model) if not name.startswith("_") and name not in parameters)
    return [name for name in names if not callable(getattr(type(model), name, None)) and there_is(model, name)]


def there_is(model: Any, name: str) -> bool:
    """Return True if the attribute exists, also if it refuses where it does not apply (the ROC curve of a number)."""
    try:
        return hasattr(model, name)
    except UnpooledError:
        return True


def content(value: Any) -> Any:  # noqa: PLR0911 - one line per kind
    """Return the content of a value, to be compared, without digests under a secret key."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tolist() if value.dtype == object else value.tobytes())
    if hasattr(value, "toarray"):
        return content(value.toarray())
    if isinstance(value, dict):
        return {key: content(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [content(each) for each in value]
    if isinstance(value, msgspec.Struct):
        return {name: content(getattr(value, name)) for name in value.__struct_fields__ if name not in DIGESTS}
    if dataclasses.is_dataclass(value):
        return {
            each.name: content(getattr(value, each.name)) for each in dataclasses.fields(value) if each.name not in DIGESTS
        }
    if hasattr(value, "__dict__") and not callable(value):
        return {name: content(each) for name, each in vars(value).items()}
    return repr(value)


#: Of a ledger's entry: when, keyed digests of the data and of the entries before, and the name of the draw (random; of a simulation, a digest).
DIGESTS = {"at", "time", "date", "fingerprint", "digest", "previous", "link", "draw", "release"}


#: What may look the same for other rows although it is a party's own.
CONSTANT = {"alpha_", "duality_gap_", "reliability_"}


def test_every_attribute_is_what_the_table_says(
    fitting: Fitting, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, other = fits(fitting, monkeypatch)
    table = EVERYWHERE | (OWN | getattr(request.module, "SHOWN", {}))[type(one).__name__]
    assert set(shown_by(one)) <= set(table), "classify it in audit/interface.py"
    for attribute in shown_by(one):
        same = content(getattr(one, attribute)) == content(getattr(two, attribute))
        if table[attribute] is Shown.KEPT:
            assert not same or attribute in CONSTANT, f"{attribute} follows from the messages: it is released"
        else:
            assert same, f"{attribute} is no function of what was declared and released"
        if table[attribute] is Shown.PUBLIC:
            assert content(getattr(one, attribute)) == content(getattr(other, attribute)), attribute
