"""A formula: its text, the columns that it reads, and what it makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from unpooled.errors import UsageError, listed
from unpooled.formula.arithmetic import Expression, quoted
from unpooled.formula.derived import Declared, declared_columns, derive
from unpooled.formula.parser import parse
from unpooled.formula.terms import Addition, Factor, FormulaTerm, Plain, Rest

if TYPE_CHECKING:
    from unpooled.formula.derived import Derived


@dataclass(frozen=True, slots=True, eq=False)
class Formula:
    """A model formula in Wilkinson's notation. Make one with :meth:`parse`.

    Two formulas are equal if their canonical texts, ``str(formula)``, are.

    >>> formula = Formula.parse("y ~ age*ward + I(age ** 2)")
    >>> str(formula)
    'y ~ age + ward + I(age**2) + age:ward'
    >>> derived = formula.derive({"age": (-1, 3), "ward": ["a", "b"]})
    >>> derived.names
    ('age', 'ward[a]', 'ward[b]', 'I(age**2)', 'age:ward[a]', 'age:ward[b]')
    """

    #: The columns on the left side: one, the time and the event of ``Surv(time, event)``, or none.
    response: tuple[str, ...]
    #: Whether the left side is ``Surv(time, event)``.
    survival: bool
    #: Whether there is a constant (an intercept).
    constant: bool
    #: Expressions that are added without a coefficient.
    offsets: tuple[Expression, ...] = field(repr=False)
    _terms: tuple[FormulaTerm, ...] = field(repr=False)
    #: The right side without constant and offsets, where it has a dot, whose columns are not known yet.
    _open: Addition | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str) -> Formula:
        """Read a formula. A text that is none, or that would read the data, is refused with the reason and the remedy."""
        said = parse(text)
        right = Addition(tuple(said.summands))
        offsets = tuple(sorted(said.offsets, key=lambda one: one.text))
        if any(isinstance(factor, Rest) for factor in right.leaves()):
            found = cls(said.response, said.survival, said.constant, offsets, (), right)
        else:
            found = cls(said.response, said.survival, said.constant, offsets, _sorted(right.expanded(())))
            if not found.constant and not found._terms:
                raise UsageError("formula: it has neither terms nor a constant: write a column, or 1")
        found._check_response()
        return found

    def __str__(self) -> str:
        """Return the canonical text: spaces, and the order inside terms, sums and products, do not matter."""
        left = f"Surv({', '.join(map(quoted, self.response))})" if self.survival else "".join(map(quoted, self.response))
        terms = self.terms if self._open is None else [self._open.text]
        parts = [*([] if self.constant else ["0"]), *terms, *(f"offset({one.text})" for one in self.offsets)]
        return f"{left} ~ {' + '.join(parts) or '1'}".lstrip()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def dot(self) -> bool:
        """Return whether a dot stands for columns that are not known yet; :meth:`closed` fills them in."""
        return self._open is not None

    @property
    def terms(self) -> tuple[str, ...]:
        """Return the names of the terms, those of fewer factors first; a formula with a dot has none yet."""
        return tuple(term.text for term in self._terms)

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the columns that the right side names, offsets last, each once."""
        leaves = [] if self._open is None else [name for factor in self._open.leaves() for name in factor.columns]
        named = [name for term in self._terms for factor in term.factors for name in factor.columns]
        return tuple(dict.fromkeys([*leaves, *named, *self._offset_columns]))

    @property
    def _offset_columns(self) -> list[str]:
        return [name for one in self.offsets for name in one.columns]

    def closed(self, columns: Iterable[str]) -> Formula:
        """Return the formula in which the dot stands for these columns, without those of the left side and of the offsets."""
        if self._open is None:
            return self
        taken = {*self.response, *self._offset_columns}
        rest: list[Factor] = [Plain(name) for name in dict.fromkeys(columns) if name not in taken]
        return replace(self, _terms=_sorted(self._open.expanded(rest)), _open=None)

    def derive(self, declared: Declared) -> Derived:
        """Return the derived columns with their bounds.

        Parameters
        ----------
        declared : mapping, Bounds, or several Column
            What is declared about the columns: by name a range (two numbers), a list of categories, or a
            :class:`~unpooled.privacy.bounds.Column`. Columns that the formula does not read are ignored.

        """
        columns = declared_columns(declared)
        closed = self.closed(columns)
        return derive(closed._terms, closed.offsets, columns, constant=closed.constant)  # noqa: SLF001 - its own

    def split(self, parties: Mapping[str, Collection[str]]) -> dict[str, Formula]:
        """Return what each party can compute alone; a term that needs the columns of two parties is refused.

        ``parties`` maps the name of each party to its columns. The left side stays with the party that holds it, and every party's formula
        keeps the constant, or has none, as the whole formula.
        """
        twice = [
            name
            for name, count in Counter(name for columns in parties.values() for name in set(columns)).items()
            if count > 1
        ]
        if twice:
            msg = f"column {twice[0]!r} is at two parties: name it at the one whose values count"
            raise UsageError(msg).at(column=twice[0])
        home = {name: party for party, columns in parties.items() for name in columns}
        closed = self.closed(home)
        unknown = [name for name in closed.needs if name not in home]
        if unknown:
            msg = f"formula: no party has {listed(unknown)}: correct the formula, or add the columns to a party"
            raise UsageError(msg).at(column=unknown[0])
        terms = [(term, _one_home(term.text, term.columns, home)) for term in closed._terms]  # noqa: SLF001 - its own
        offsets = [(one, _one_home(f"offset({one.text})", one.columns, home)) for one in closed.offsets]
        left = {home[name] for name in closed.response if name in home}
        if len(left) > 1:
            msg = f"time and event, {listed(closed.response)}, are at two parties: move one of them, so that one party holds both"
            raise UsageError(msg)
        return {
            party: replace(
                closed,
                response=closed.response if party in left else (),
                survival=closed.survival and party in left,
                offsets=tuple(one for one, at in offsets if at == party),
                _terms=tuple(term for term, at in terms if at == party),
            )
            for party in parties
        }

    def _check_response(self) -> None:
        both = [name for name in self.response if name in self.needs]
        if both:
            msg = f"formula: {both[0]!r} is the response and cannot be on the right side as well: leave it out there"
            raise UsageError(msg).at(column=both[0])


def _sorted(terms: Iterable[FormulaTerm]) -> tuple[FormulaTerm, ...]:
    """Return the terms with fewer factors first, otherwise in their order."""
    return tuple(sorted(terms, key=lambda term: len(term.factors)))


def _one_home(text: str, columns: Iterable[str], home: Mapping[str, str]) -> str:
    found = sorted({home[name] for name in columns})
    if len(found) > 1:
        msg = (
            f"formula: {text} needs columns of {listed(found)}, and nobody may see both to multiply them. Leave the term out, or let one "
            "party hold the columns"
        )
        raise UsageError(msg)
    return found[0]
