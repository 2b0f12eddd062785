"""Small faults that a programmer could make, one at a time, in the syntax tree of a module.

A fault is found by its number: :func:`sites` walks the tree in a fixed order, and :func:`mutated` applies the fault of one number to
a fresh tree. No mutated source is ever written to a file; the tree itself is compiled.

What is left alone: annotations, docstrings, the words of errors, decorators, ``assert`` (it can never be false), what only a type checker
reads, and ``frozen``, ``slots`` and the like of a class, whose loss no behaviour of a correct caller can show.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

#: Replaces one node by another, or by nothing (None: the statement is dropped).
Change: TypeAlias = Callable[[ast.AST], ast.AST]

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor", "floor": "ceil", "minimum": "maximum"}
CALLS |= {"maximum": "minimum", "argmin": "argmax", "argmax": "argmin", "sorted": "list"}
#: Keywords of a class that say how its objects are stored, not what they hold.
STORAGE = {"frozen", "slots", "kw_only", "eq", "repr", "gc", "weakref"}


class Site(NamedTuple):
    """A place and what is wrong there: the node's number in the walk, the lines of its statement, the two texts."""

    node: int
    choice: int
    kind: str
    line: int
    lines: tuple[int, ...]
    before: str
    after: str


def _constant(node: ast.Constant) -> list[object]:
    value = node.value
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [2 * value if value else 1.0]
    return []


def _words(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def alternatives(node: ast.AST) -> list[tuple[str, ast.AST]]:
    """The faults of one node, each with the kind that it is."""
    found: list[tuple[str, ast.AST]] = []

    def add(kind: str, change: Callable[[ast.AST], object]) -> None:
        other = copy.deepcopy(node)
        replaced = change(other)
        found.append((kind, replaced if isinstance(replaced, ast.AST) else other))

    match node:
        case ast.Compare():
            for k, operator in enumerate(node.ops):
                for other in COMPARISONS[type(operator)]:
                    add("comparison", lambda n, k=k, other=other: n.ops.__setitem__(k, other()))
        case ast.BinOp() if type(node.op) in ARITHMETIC and not (_words(node.left) or _words(node.right)):
            add("arithmetic", lambda n: setattr(n, "op", ARITHMETIC[type(n.op)]()))
        case ast.AugAssign():
            add("arithmetic", lambda n: setattr(n, "op", ARITHMETIC[type(n.op)]()))
            add("statement dropped", lambda n: ast.Pass())
        case ast.BoolOp():
            add("and/or", lambda n: setattr(n, "op", ast.Or() if isinstance(n.op, ast.And) else ast.And()))
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            add("not/minus dropped", lambda n: n.operand)
        case ast.If() | ast.While() | ast.IfExp():
            add("condition negated", lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test)))
        case ast.comprehension(ifs=[_, *_]):
            add("filter dropped", lambda n: setattr(n, "ifs", []))
        case ast.Constant():
            for value in _constant(node):
                add("constant", lambda n, value=value: setattr(n, "value", value))
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
            add("statement dropped", lambda n: ast.Pass())
        case ast.Raise():
            add("raise dropped", lambda n: ast.Pass())
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            add("statement dropped", lambda n: ast.Pass())
        case ast.Return(value=ast.expr()) if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            add("returns nothing", lambda n: setattr(n, "value", ast.Constant(None)))
        case ast.Break():
            add("break/continue", lambda n: ast.Continue())
        case ast.Continue():
            add("break/continue", lambda n: ast.Break())
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            add("call swapped", lambda n: setattr(n.func, "id", CALLS[n.func.id]))
        case ast.Call(func=ast.Name(id="abs"), args=[_]):
            add("call swapped", lambda n: n.args[0])
        case ast.Call(func=ast.Attribute(attr=name)) if name in CALLS:
            add("call swapped", lambda n: setattr(n.func, "attr", CALLS[n.func.attr]))
    return found


def _left_alone(node: ast.AST) -> bool:
    """What only a type checker or a reader sees: imports for types, invariants, the words of an error."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Assert() | ast.Assign(targets=[ast.Name(id="msg")]):
            return True
    return False


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node in which a fault can lie."""
    skipped = {
        "decorator_list",
        "annotation",
        "returns",
        "type_params",
        *(("exc", "cause") if isinstance(node, ast.Raise) else ()),
    }
    for name, value in ast.iter_fields(node):
        if name in skipped or (name == "slice" and isinstance(value, ast.Constant) and isinstance(value.value, str)):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.keyword) and isinstance(node, ast.ClassDef) and part.arg in STORAGE:
                continue
            if isinstance(part, ast.AST) and not _left_alone(part) and not isinstance(part, ast.expr_context):
                yield part


def walk(tree: ast.AST) -> Iterator[tuple[ast.AST, tuple[int, ...]]]:
    """Every node that may be mutated, in a fixed order, with the lines that run when its statement (or the head of it) does."""

    def inside(node: ast.AST, lines: tuple[int, ...]) -> Iterator[tuple[ast.AST, tuple[int, ...]]]:
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            body = getattr(node, "body", None)
            first = getattr(node, "lineno", lines[0] if lines else 1)
            last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno
            lines = tuple(range(first, max(first, last) + 1))
        yield node, lines
        for part in _children(node):
            yield from inside(part, lines)

    yield from inside(tree, ())


def sites(source: str) -> list[Site]:
    """Every fault of a module."""
    found = []
    for number, (node, lines) in enumerate(walk(ast.parse(source))):
        for choice, (kind, other) in enumerate(alternatives(node)):
            before, after = (ast.unparse(ast.fix_missing_locations(n)) for n in (copy.deepcopy(node), other))
            line = getattr(node, "lineno", lines[0])
            found.append(Site(number, choice, kind, line, lines, _short(before), _short(after)))
    return found


def _short(text: str) -> str:
    """The first line; the head of a compound statement is what is changed."""
    return text.splitlines()[0] if text else text


def mutated(source: str, node: int, choice: int) -> ast.Module:
    """The tree of a module with one fault in it."""
    tree = ast.parse(source)
    target = next(found for number, (found, _) in enumerate(walk(tree)) if number == node)
    other = alternatives(target)[choice][1]

    class Replacing(ast.NodeTransformer):
        def visit(self, at: ast.AST) -> ast.AST:
            return ast.copy_location(other, at) if at is target else self.generic_visit(at)

    return ast.fix_missing_locations(Replacing().visit(tree))
