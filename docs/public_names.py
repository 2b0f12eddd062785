"""Write the stub of the public names: `python docs/public_names.py [FILE]` writes src/unpooled/__init__.pyi or FILE.

Type checkers and editors read exact signatures there, which declared parameters make at run time. A test compares the committed file with what this
script writes.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unpooled.estimation.calls import Argument

STUB = Path(__file__).parents[1] / "src/unpooled/__init__.pyi"
#: The public names of each module.
NAMES = {
    "unpooled.errors": "BudgetWarning PrivacyLeakWarning Refusal UnpooledError UtilityWarning",
    "unpooled.estimation.hidden": "HiddenLink hidden_link",
    "unpooled.models.bayes.estimator": "PrivateLinearRegression PrivateBayesianRegression",
    "unpooled.models.describe.estimator": "Description describe",
    "unpooled.models.describe.outlook": "describe_outlook",
    "unpooled.models.diagnose.estimator": "Diagnosis diagnose",
    "unpooled.models.effects.estimator": "TreatmentEffect",
    "unpooled.models.glm.estimator": "PrivateGLM",
    "unpooled.models.lasso.estimator": "PrivateLasso PrivateLassoClassifier",
    "unpooled.models.pls.estimator": "PrivatePLSRegression",
    "unpooled.models.pride.estimator": "PrideClassifier PrideGLM PrideRegressor",
    "unpooled.models.stacking.estimator": "PrivateLogisticRegression PrivateStackingClassifier",
    "unpooled.models.survival.estimator": "SurvivalComparison survival",
    "unpooled.models.tables.estimator": "Tabulation tabulate",
    "unpooled.privacy.bounds": "Bounds",
    "unpooled.privacy.budget": "Budget",
    "unpooled.study.link": "link",
    "unpooled.study.meta": "MetaAnalysis meta_analysis",
    "unpooled.study.saved": "load",
    "unpooled.study.several": "Study",
    "unpooled.study.sources.table": "Source",
}
HEAD = """# The public names, once: type checkers read this file, and so does unpooled/__init__.py to find where each name is.
# Written by docs/public_names.py from the declared parameters; do not edit.

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from numpy.typing import ArrayLike

from unpooled.estimation.priors import Prior
"""


def annotated(one: Argument) -> str:
    """Return an argument with its type, of words those that it takes, and its default."""
    text = one.annotation
    if one.choices:
        words = f"Literal[{', '.join(map(quoted, one.choices))}]"
        text = " | ".join(words if part == "str" else part for part in text.split(" | "))
    default = "" if one.default is inspect.Parameter.empty else f" = {quoted(one.default)}"
    return f"{one.name}: {text}{default}"


def quoted(value: Any) -> str:  # noqa: ANN401 - a default
    """Return a value as the stub has it."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def arguments(of: Any) -> list[str]:  # noqa: ANN401 - a class or a function with declared arguments
    """Return the arguments of a call, with a star where names become necessary."""
    kinds = inspect.signature(of).parameters
    declared: Iterable[Argument] = of.arguments.values()
    found = [annotated(one) for one in declared]
    named = [k for k, one in enumerate(kinds.values()) if one.kind is inspect.Parameter.KEYWORD_ONLY]
    return [*found[: named[0]], "*", *found[named[0] :]] if named else found


def spread(parts: list[str], indent: int) -> str:
    """Return the arguments of a call, each on a line of its own."""
    return "".join(f"\n{' ' * indent}{part}," for part in parts) + "\n" + " " * (indent - 4)


def stub() -> str:
    """Return the whole file."""
    imports, calls, others = [], [], []
    for module, names in NAMES.items():
        for name in names.split():
            thing = getattr(import_module(module), name)
            known = hasattr(thing, "arguments")
            imports.append(f"from {module} import {name} as {'_' if known else ''}{name}")
            if not known:
                continue
            if thing.__name__ != name:
                others.append(f"{name} = {thing.__name__}")
            elif inspect.isclass(thing):
                calls.append(
                    f"class {name}(_{name}):\n    def __init__({', '.join(['self', *arguments(thing)])}) -> None: ..."
                )
            else:
                answer = thing.__annotations__["return"]
                imports += [f"from {module} import {kind}" for kind in answer.split(" | ") if kind not in names.split()]
                calls.append(f"def {name}({spread(arguments(thing), 4)}) -> {answer}: ...\n")
    return "\n".join((HEAD + "\n".join(sorted(dict.fromkeys(imports))), "", "__version__: str", "", *calls, *others, ""))


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else STUB).write_text(stub(), encoding="utf-8")
