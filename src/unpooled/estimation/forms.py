"""Which form of a model an estimator asks for: the sound one, or the one that a paper prints, with the paper's own settings."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar

from sklearn.base import BaseEstimator

from unpooled.errors import UsageError
from unpooled.privacy.unit import Calibration
from unpooled.protocol.registry import form_of

if TYPE_CHECKING:
    from unpooled.protocol.step import Model

#: The kinds of values that are compared with a default; an array or a frame never is one.
_PLAIN = (str, int, float, tuple, list, dict)


class HasForms(BaseEstimator):
    """An estimator whose ``calibration`` chooses the form.

    In the published form a parameter that stands at its default is the paper's own (:attr:`~unpooled.protocol.step.Model.defaults`), and one
    that the paper does not have is refused.
    """

    _model: ClassVar[Model]
    calibration: str

    @property
    def _row(self) -> Model:
        """Return the row that the calibration asks for."""
        return self._form(self.calibration)

    @classmethod
    def _form(cls, calibration: str) -> Model:
        return cls._model if calibration == Calibration.SOUND else form_of(cls._model.name, Calibration.parse(calibration))

    @classmethod
    def _stands(cls, name: str, given: object) -> bool:
        """Return True if a value is the default of this parameter."""
        default = inspect.signature(cls).parameters[name].default
        if given is default:
            return True
        return isinstance(given, _PLAIN) and isinstance(given, bool) == isinstance(default, bool) and given == default

    @property
    def _of_form(self) -> dict[str, Any]:
        """Return the form's own values for parameters that stand at their defaults."""
        own = self.get_params(deep=False)
        return {name: value for name, value in self._row.defaults.items() if name in own and self._stands(name, own[name])}

    def _taken(self, name: str) -> Any:  # noqa: ANN401 - the parameter's own type
        """Return the value of a parameter as this form takes it."""
        return self._of_form.get(name, getattr(self, name))

    def _check_form(self) -> None:
        """Refuse parameters that the form does not have."""
        row, own = self._row, self.get_params(deep=False)
        for name in sorted(row.lacks & set(own)):
            allowed = name in row.defaults and isinstance(own[name], _PLAIN) and own[name] == row.defaults[name]
            if not allowed and not self._stands(name, own[name]):
                raise UsageError(not_in_the_paper(name, row))


def not_in_the_paper(name: str, row: Model) -> str:
    """Return the words that refuse a parameter of other forms."""
    has = f", which has {name} = {row.defaults[name]!r}" if name in row.defaults else ""
    return f"{name} is not in the paper{has}: leave it at its default, or use calibration = 'sound'"
