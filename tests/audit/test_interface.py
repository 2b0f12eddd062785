"""What an estimator shows after ``fit`` is what ``unpooled.audit.interface`` says: a function of declarations, of releases, or named as a party's own."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from unpooled import describe, diagnose
from unpooled.audit.interface import EVERYWHERE, OWN, Shown
from unpooled.errors import ProtocolError, UnpooledError
from unpooled.privacy.classes import Classes
from unpooled.protocol import local

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from test_estimation import ESTIMATORS, SITES

RNG = np.random.default_rng(5)


def rows(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """As many other rows and responses as the estimator's own test has, of which it takes any."""
    _, own, y = ESTIMATORS[name]
    rng = np.random.default_rng(seed)
    found = rng.uniform(-1, 1, (80, 6)), np.asarray(y)[rng.permutation(80)]
    return found if y.dtype == bool or own.get("family") == "poisson" else (found[0], np.clip(found[0][:, 2], -2, 2))


def fits(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any]:
    """An estimator fitted to some rows; to others, with the messages of the first; and to these with messages of their own."""
    kind, own, _ = ESTIMATORS[name]

    def fitted(seed: int, noise: int) -> Any:
        model = kind(**{"bounds": (-1, 1), "epsilon": 20.0, "random_state": noise, **own})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(*rows(name, seed))

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
    """Every name that is no parameter and no method."""
    parameters = model.get_params() if hasattr(model, "get_params") else {}
    names = (name for name in dir(model) if not name.startswith("_") and name not in parameters)
    return [name for name in names if not callable(getattr(type(model), name, None)) and there_is(model, name)]


def there_is(model: Any, name: str) -> bool:
    """Some answer with a refusal where they do not apply (the ROC curve of a number): they are there."""
    try:
        return hasattr(model, name)
    except UnpooledError:
        return True


def content(value: Any) -> Any:  # noqa: PLR0911 - one line per kind
    """What is in it, to be compared; digests under a secret key left out."""
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


#: Of a ledger's entry: when, and keyed digests of the data and of the entries before.
DIGESTS = {"at", "time", "date", "fingerprint", "digest", "previous", "link"}
#: What may look the same for other rows although it is a party's own.
CONSTANT = {"alpha_", "duality_gap_"}


@pytest.mark.no_cover
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_attribute_is_what_the_table_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, other = fits(name, monkeypatch)
    table = EVERYWHERE | OWN[type(one).__name__]
    assert set(shown_by(one)) <= set(table), "classify it in audit/interface.py"
    for attribute in shown_by(one):
        same = content(getattr(one, attribute)) == content(getattr(two, attribute))
        if table[attribute] is Shown.KEPT:
            assert not same or attribute in CONSTANT, f"{attribute} follows from the messages: it is released"
        else:
            assert same, f"{attribute} is no function of what was declared and released"
        if table[attribute] is Shown.PUBLIC:
            assert content(getattr(one, attribute)) == content(getattr(other, attribute)), attribute


def test_the_table_has_no_attribute_that_nobody_shows() -> None:
    """Over every estimator, frames with names included."""
    found: dict[str, set[str]] = {}
    for name, (kind, own, y) in ESTIMATORS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind(**{"bounds": (-1, 1), "epsilon": 20.0, **own}).fit(rows(name, 1)[0], y)
        found.setdefault(kind.__name__, set()).update(shown_by(model))
    described = describe(rows("bayes", 1)[0], bounds=(-1, 1), sites=SITES)
    fitted = ESTIMATORS["bayes"][0](bounds=(-1, 1), y_bounds=(-2, 2)).fit(*rows("bayes", 1))
    for result in (described, diagnose(fitted, *rows("bayes", 2), epsilon=5.0)):
        found[type(result).__name__] = set(shown_by(result))
    assert set(found) == set(OWN)
    assert all(set(own) <= found[kind] for kind, own in OWN.items())
    assert set(EVERYWHERE) - set.union(*found.values()) == {"feature_names_in_"}


def test_what_a_party_keeps_stays_out_of_files_and_prints() -> None:
    """Whoever saves, prints or pickles an estimator passes on what it shows: a party's own things are no part of it."""
    import pickle

    for name in ("pride", "pride-classifier"):
        kind, own, _ = ESTIMATORS[name]
        model = kind(**{"bounds": (-1, 1), "epsilon": 20.0, **own}).fit(*rows(name, 1))
        assert not hasattr(pickle.loads(pickle.dumps(model)), "kept_")


def test_classes_read_off_the_labels_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """G4: what was called public followed from a label: here, which class comes first."""
    one, two, _ = fits("logistic", monkeypatch)
    assert content(one.classes_) == content(two.classes_)
    assert rows("logistic", 1)[1][0] != rows("logistic", 2)[1][0]
    first = classmethod(lambda kind, classes, y=None, **_: kind(np.array(list(dict.fromkeys(y.tolist()))), derived=False))
    monkeypatch.setattr(Classes, "given", first)
    with pytest.raises(ProtocolError):  # the plan itself, which names the classes, follows from a label
        fits("logistic", monkeypatch)
