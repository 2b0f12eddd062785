"""Models of other packages, which join the contract: the variable UNPOOLED_MODELS names packages that can be imported, with commas between.

Such a package has ``MODEL``, the row that it would have in the registry, and a module ``case`` with ``CASES``: functions by name that return a
study and the parties' tables. A name is the model's own, or the model's own with a comma and a word behind it. Each case then becomes one more case
of every contract test and audit. ``test_example.py`` joins the worked example so.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable

import unpooled.models
from unpooled.privacy.plan import Study
from unpooled.privacy.table import Table


def joined() -> dict[str, Callable[[], tuple[Study, dict[str, Table]]]]:
    """Register the named packages in this process, and return their cases."""
    found = {}
    for package in filter(None, os.environ.get("UNPOOLED_MODELS", "").split(",")):
        module = importlib.import_module(package)
        row = module.MODEL.name
        unpooled.models.REGISTRY[row] = package
        found |= importlib.import_module(f"{package}.case").CASES
    return found
