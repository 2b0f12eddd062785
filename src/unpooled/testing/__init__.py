"""The contract and the attacks that every model is held to, as tests for pytest: for the models of unpooled and of every other package.

A package turns the plugin on with ``pytest_plugins = ["unpooled.testing"]`` in its ``conftest.py``. A test module of it has ``CASES``: functions
by name that return a study and the parties' tables. It takes the tests with ``from unpooled.testing.contract import *`` and
``from unpooled.testing.attacks import *``. Each test then runs over each case. A name is the model's own, or the model's own with a comma and more
words behind it. Further names of the module are optional:

* ``FORMS``: more functions by name, of studies in which other messages travel. Tests of messages run over them too.
* ``WAYS``: changes to a case's study by the name of the case, as lists of fields: every way to trust or to release that the model knows.
* ``ESTIMATORS`` and ``SHOWN``: estimators whose attributes are held to their classification (:mod:`unpooled.testing.shown`).
* ``PAIRS``: a file of pairs of neighbours that an earlier audit kept (:mod:`unpooled.audit.neighbours`), which are replayed first.
* ``ONLY``: names of cases by the name of a test that is too dear to run over all of them.
* ``SLOW`` and ``LONG``: names of cases by the name of a test, which gets the mark of that name there.

Tests are run at reduced size; the variable ``UNPOOLED_FULL=1`` runs them at full size.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if any(find_spec(name) is None for name in ("pytest", "hypothesis")):
    _message = (
        "unpooled.testing needs pytest and hypothesis: install unpooled with its extra, pip install 'unpooled[testing]'"
    )
    raise ModuleNotFoundError(_message)

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection

    from unpooled.testing.cases import Case

#: The markers of the tests, where the package that runs them has not declared them itself.
MARKERS = {
    "slow": "statistics, wild messages, crashes, many shapes",
    "long": "the longest of them",
    "minutes": "tests that take long",
}


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers of the tests."""
    known = {line.partition(":")[0].partition("(")[0].strip() for line in config.getini("markers")}
    for name, words in MARKERS.items():
        if name not in known:
            config.addinivalue_line("markers", f"{name}: {words}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test over the cases of its module: ``case`` over all, ``form`` over the forms too, ``variant`` over every unit, adjacency and way."""
    from unpooled.testing import cases

    given = {name for mark in metafunc.definition.iter_markers("parametrize") for name in _names(mark.args[0])}
    if "fitting" in metafunc.fixturenames and "fitting" not in given and hasattr(metafunc.module, "ESTIMATORS"):
        named = [pytest.param(one, id=name) for name, one in metafunc.module.ESTIMATORS.items()]
        metafunc.parametrize("fitting", named, indirect=True)
    if not hasattr(metafunc.module, "CASES"):
        return
    for fixture, found in (("case", cases.cases_of), ("form", cases.forms_of), ("variant", cases.variants_of)):
        if fixture in metafunc.fixturenames and fixture not in given:
            made = found(metafunc.module)
            only = _listed(metafunc, "ONLY", made)
            marks = {mark: _listed(metafunc, mark.upper(), ()) for mark in ("slow", "long")}
            given_to = {name: [getattr(pytest.mark, mark) for mark in marks if name in marks[mark]] for name in only}
            named = [pytest.param(made[name], id=name, marks=given_to[name]) for name in made if name in only]
            metafunc.parametrize(fixture, named, indirect=True)


def _listed(metafunc: pytest.Metafunc, which: str, default: Collection[str]) -> Collection[str]:
    """Return the names of cases that this list of the module has for a test."""
    names: Collection[str] = getattr(metafunc.module, which, {}).get(metafunc.function.__name__, default)
    return names


def _names(said: str | tuple[str, ...] | list[str]) -> list[str]:
    """Return the arguments that a mark ``parametrize`` names."""
    return [name.strip() for name in said.split(",")] if isinstance(said, str) else list(said)


def _made(request: pytest.FixtureRequest) -> Case:
    if not hasattr(request, "param"):
        pytest.fail(f"{request.module.__name__} has no CASES: functions by name that return a study and the parties' tables")
    case: Case = request.param()
    return case


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Any:
    """Return one case of the module's ``CASES``."""
    return _made(request)


@pytest.fixture
def form(request: pytest.FixtureRequest) -> Any:
    """Return one case of the module's ``CASES`` or ``FORMS``."""
    return _made(request)


@pytest.fixture
def variant(request: pytest.FixtureRequest) -> Any:
    """Return one case of the module under one unit, one adjacency and one of its ways."""
    return _made(request)


@pytest.fixture
def fitting(request: pytest.FixtureRequest) -> Any:
    """Return one function of the module's ``ESTIMATORS``."""
    if not hasattr(request, "param"):
        pytest.skip(f"{request.module.__name__} has no ESTIMATORS")
    return request.param
