"""The notation of formulas: what each means, its one canonical text, what is refused and what the refusal says."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from formulas import DECLARED, Maker, derived_of
from world import sized

from unpooled.errors import DataError, UsageError
from unpooled.formula import CategoryFactor, Formula
from unpooled.privacy.bounds import Bounds, Coding, Column, check
from unpooled.privacy.table import Table


def text(formula: str) -> str:
    return str(Formula.parse(formula))


# --- the grammar ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("y~age", "y ~ age"),
        ("  y ~ 1 + age ", "y ~ age"),
        ("age", "~ age"),
        ("~ age", "~ age"),
        ("y ~ 1", "y ~ 1"),
        ("y ~ 0 + age", "y ~ 0 + age"),
        ("y ~ age - 1", "y ~ 0 + age"),
        ("y ~ -1 + age", "y ~ 0 + age"),
        ("y ~ 0 + age + 1", "y ~ age"),
        ("y ~ age + age", "y ~ age"),
        ("y ~ b:a", "y ~ a:b"),
        ("y ~ a:b:a", "y ~ a:b"),
        ("y ~ a*b", "y ~ a + b + a:b"),
        ("y ~ a:b + b + a", "y ~ b + a + a:b"),
        ("y ~ a*b*c", "y ~ a + b + c + a:b + a:c + b:c + a:b:c"),
        ("y ~ a*b - a:b", "y ~ a + b"),
        ("y ~ (a + b + c)**2", "y ~ a + b + c + a:b + a:c + b:c"),
        ("y ~ (a + b + c)**2 - b:c", "y ~ a + b + c + a:b + a:c"),
        ("y ~ (a + b + c)**3 - (a + b)", "y ~ c + a:b + a:c + b:c + a:b:c"),
        ("y ~ (a + b):c", "y ~ a:c + b:c"),
        ("y ~ a:(b - b + c)", "y ~ a:c"),
        ("y ~ (a + b) * (c + d)", "y ~ a + b + c + d + a:c + a:d + b:c + b:d"),
        ("y ~ (a*b)**1", "y ~ a + b + a:b"),
        ("y ~ a + C(b)", "y ~ a + C(b)"),
        ("y ~ C(b, levels = ['q', 'p'], ref=\"p\")", "y ~ C(b, ref='p', levels=['q', 'p'])"),
        ("y ~ C(b, ref=2)", "y ~ C(b, ref='2')"),
        ("y ~ C(b, ref=-1.5)", "y ~ C(b, ref='-1.5')"),
        ('y ~ C(b, ref="it\'s")', 'y ~ C(b, ref="it\'s")'),
        ("y ~ C(b) + a:C(b, ref='p')", "y ~ C(b, ref='p') + a:C(b, ref='p')"),
        ("y ~ I(1 + a)", "y ~ I(a + 1)"),
        ("y ~ I(1 - a)", "y ~ I(1 - a)"),
        ("y ~ I(-a + 1)", "y ~ I(1 - a)"),
        ("y ~ I(a - -1)", "y ~ I(a + 1)"),
        ("y ~ I(a - (b - c))", "y ~ I(a + c - b)"),
        ("y ~ I(b*a)", "y ~ I(a * b)"),
        ("y ~ I(a*a)", "y ~ I(a**2)"),
        ("y ~ I((a**2)**3)", "y ~ I(a**6)"),
        ("y ~ I(a*2/b/b)", "y ~ I(2 * a / b**2)"),
        ("y ~ I(a**-2)", "y ~ I(1 / a**2)"),
        ("y ~ I(-a*b)", "y ~ I(-a * b)"),
        ("y ~ I(-(a + b))", "y ~ I(-a - b)"),
        ("y ~ I((a + b)*c)", "y ~ I((a + b) * c)"),
        ("y ~ I((a*b)**2)", "y ~ I(a**2 * b**2)"),
        ("y ~ I((-a)**2)", "y ~ I(a**2)"),
        ("y ~ I(-a**2)", "y ~ I(-a**2)"),
        ("y ~ I((a + 1)**0.5)", "y ~ I((a + 1)**0.5)"),
        ("y ~ I(a**2.0)", "y ~ I(a**2)"),
        ("y ~ I((a**0.5)**2)", "y ~ I((a**0.5)**2)"),
        ("y ~ I(1e-3 * a + 1E5)", "y ~ I(0.001 * a + 100000)"),
        ("y ~ I(+a)", "y ~ I(a)"),
        ("y ~ log(1 + a)", "y ~ log(a + 1)"),
        ("y ~ sqrt(exp(log1p(a)))", "y ~ sqrt(exp(log1p(a)))"),
        ("y ~ bs(a, knots=[5, 2.0])", "y ~ bs(a, knots=[2, 5])"),
        ("y ~ bs(a, degree=2, knots=[])", "y ~ bs(a, knots=[], degree=2)"),
        ("y ~ bs(a, degree=3, knots=4)", "y ~ bs(a, knots=[4])"),
        ("y ~ ns(a, knots=[-1])", "y ~ ns(a, knots=[-1])"),
        ("y ~ a + offset(log(t)) + b", "y ~ a + b + offset(log(t))"),
        ("y ~ 1 + offset(t)", "y ~ offset(t)"),
        ("y ~ `blood pressure`:age", "y ~ `blood pressure`:age"),
        ("`a b` ~ I(`c d`**2)", "`a b` ~ I(`c d`**2)"),
        ("Surv(t, died) ~ age", "Surv(t, died) ~ age"),
        ("Surv(`t 1`,died)~age", "Surv(`t 1`, died) ~ age"),
        ("y ~ .", "y ~ ."),
        ("y ~ (.)**2 - `a b`", "y ~ .**2 - `a b`"),
        ("y ~ 0+. * arm+log( a )", "y ~ 0 + . * arm + log(a)"),
        ("y ~ (. - a):(b + c)", "y ~ (. - a):(b + c)"),
        ("größe ~ länge", "größe ~ länge"),
    ],
)
def test_a_formula_has_one_canonical_text(written: str, canonical: str) -> None:
    assert text(written) == canonical
    assert text(canonical) == canonical
    assert Formula.parse(written) == Formula.parse(canonical)
    assert hash(Formula.parse(written)) == hash(Formula.parse(canonical))


def test_the_formula_of_the_specification() -> None:
    formula = Formula.parse("y ~ age + C(ward, ref='b') * arm + I(age**2) + bs(dose, knots=[2, 5]) + offset(log(years))")
    assert formula.response == ("y",)
    assert formula.needs == ("age", "ward", "arm", "dose", "years")
    assert formula.terms == ("age", "C(ward, ref='b')", "arm", "I(age**2)", "bs(dose, knots=[2, 5])", "arm:C(ward, ref='b')")
    derived = formula.derive({"age": (-1, 3), "ward": ["a", "b"], "arm": ["x", "y"], "dose": (0, 10), "years": (1, 20)})
    assert derived.names == (
        "age",
        "ward[a]",
        "ward[b]",
        "arm[x]",
        "arm[y]",
        "I(age**2)",
        *(f"bs(dose)[{k}]" for k in range(1, 6)),
        "arm[x]:ward[a]",
        "arm[x]:ward[b]",
        "arm[y]:ward[a]",
        "arm[y]:ward[b]",
    )
    assert derived.terms == ("age", "ward", "arm", "I(age**2)", "bs(dose)", "arm:ward")
    assert derived.factors == (
        CategoryFactor("ward", ("a", "b"), "b", "ward"),
        CategoryFactor("arm", ("x", "y"), "x", "arm"),
    )
    assert derived.columns[-1].cells == (("arm", "y"), ("ward", "b"))
    assert derived.columns[-1].sources == {"ward", "arm"}
    assert derived.offset_bounds is not None
    assert derived.offset_bounds == pytest.approx((0, np.log(20)))
    assert derived.offset_column is not None
    assert derived.offset_column.sources == {"years"}


def test_random_formulas_are_read_back_from_their_canonical_texts() -> None:
    maker = Maker(3)
    for _ in range(sized(2000, 300)):
        once = text(maker.formula().ours)
        assert text(once) == once


@pytest.mark.slow
def test_another_order_of_operands_makes_the_same_columns() -> None:
    maker = Maker(4)
    for _ in range(100):
        pair = maker.formula()
        try:
            first = derived_of(pair)
        except UsageError:
            continue
        assert Formula.parse(str(Formula.parse(pair.ours))).derive(DECLARED) == first


def test_random_bytes_are_formulas_or_refused() -> None:
    """No other error comes out, whatever goes in."""
    rng = np.random.default_rng(0)
    words = [
        *"ab.10 ~+-*/:()[],='\"`^|%",
        "**",
        "log(",
        "I(",
        "C(",
        "bs(",
        "knots=",
        "ref=",
        "offset(",
        "Surv(",
        "1e999",
        "\x00",
        "é",
    ]
    read = 0
    for _ in range(sized(20_000, 4000)):
        given = "".join(rng.choice(words, int(rng.integers(1, 12))))
        try:
            read += bool(text(given))
        except UsageError:
            continue
    assert read > 20


# --- refusals ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow_for("written109-more than 100,000 terms")
@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("y ~ scale(age)", "scale reads the mean or the spread off the data. Write public numbers, as in I"),
        ("y ~ center(age)", "center reads the mean"),
        ("y ~ standardize(age)", "standardize reads the mean"),
        ("y ~ I(scale(age) + 1)", "scale reads the mean"),
        ("y ~ poly(age, 2)", r"poly makes its polynomials orthogonal over the data. Write x \+ I\(x\*\*2\)"),
        ("y ~ bs(age, df=4)", r"bs: df places the knots at quantiles of the data. Write knots=\[...\]"),
        ("y ~ ns(age, df=4)", "ns: df places the knots at quantiles"),
        ("y ~ bs(age)", r"bs would place its knots by the data. Write knots=\[...\] with public numbers, \[\] for none"),
        (
            "y ~ bs(age, knots=[2], lower_bound=0)",
            "lower_bound is the lower end of the column's declared range. Leave it out",
        ),
        ("y ~ bs(age, knots=[2], include_intercept=1)", "the constant is a term of its own"),
        ("y ~ bs(age, knots=[2], foo=1)", "foo is no argument"),
        ("y ~ bs(age, knots=[2, 2])", "different numbers"),
        ("y ~ bs(age, knots=['a'])", "different numbers"),
        ("y ~ bs(age, knots=[2], degree=0)", "whole number from 1 to 5"),
        ("y ~ bs(age, knots=[2], degree=1.5)", "whole number from 1 to 5"),
        ("y ~ bs(log(age), knots=[2])", "as in ref='b'|takes a column's name"),
        ("y ~ bs(age + 1, knots=[2])", "takes a column's name, not arithmetic"),
        ("y ~ bs(age, knots=c(2, 5))", "expected a number, a text in quotes, or a list such as"),
        ("y ~ bs(age, [2, 5])", "every argument after the column has a name"),
        ("y ~ bs(age, knots=[2], knots=[3])", "given twice"),
        ("y ~ bs(age, knots=[2 3])", "or ']' in the list"),
        ("y ~ ns(age, knots=[2], degree=3)", "natural splines are cubic"),
        ("y ~ cut(age, 3)", "cut reads its cut points off the data. Write C"),
        ("y ~ qcut(age, 3)", "qcut reads its cut points"),
        ("y ~ Q('age')", "Put the column's name in backticks"),
        ("y ~ lag(age)", "lag depends on other rows"),
        ("y ~ rank(age)", "rank depends on other rows"),
        ("y ~ s(age)", "chooses its knots and its smoothness by the data"),
        ("y ~ cr(age, df=3)", r"Write ns\(x, knots"),
        ("y ~ factor(ward)", r"Write C\(x\)"),
        ("y ~ C(ward, Treatment('b'))", r"Treatment is not needed. Write C\(x, ref='b'\)"),
        ("y ~ C(ward, 'b')", "every argument after the column has a name"),
        ("y ~ C(ward, base='b')", "C has no argument base"),
        ("y ~ C(ward, ref=['b'])", "one reference and a list of levels"),
        ("y ~ C(ward, levels=[])", "one reference and a list of levels"),
        ("y ~ C(ward, levels=['a'])", "at least two, each once"),
        ("y ~ C(ward, levels=['a', 'a'])", "at least two, each once"),
        ("y ~ C(ward, ref='a') + x:C(ward, ref='b')", "differ: give a column one reference"),
        ("y ~ C(log(ward))", "takes a column's name|expected|every argument"),
        ("y ~ np.log(age)", r"Write log\(x\), not np.log\(x\)"),
        ("y ~ blood.pressure", "a name with a dot stands in backticks, as in `blood.b`"),
        ("y ~ log10(age)", r"Write I\(log\(x\) / 2.30"),
        ("y ~ __import__('os')", "there is no function __import__. Known are log, log1p, sqrt, exp, C, I, bs, ns, offset"),
        ("y ~ log(age, 10)", "takes one argument"),
        ("y ~ log()", "expected a column, a number or a function"),
        ("y ~ log(.)", "the dot stands for terms"),
        ("y ~ log(2)", "the same number in every row"),
        ("y ~ I(2)", "the same number in every row"),
        ("y ~ I(C(ward))", "term of its own"),
        ("y ~ log(bs(age, knots=[1]))", "term of its own"),
        ("y ~ I(a:b)", r"a product is written \*"),
        ("y ~ I(a^2)", r"powers are written \*\*"),
        ("y ~ I(a**b)", "an exponent is a number"),
        ("y ~ I(a**0)", "a power of 0 is 1"),
        ("y ~ I(a**2**3)", "needs parentheses"),
        ("y ~ I(a**65)", "whole powers up to 64"),
        ("y ~ I((a**40)*(a**40))", "whole powers up to 64"),
        ("y ~ I(a**1e999)", "too large"),
        ("log(y) ~ age", "the response is used as it is declared.*transform it in your data, or choose a family"),
        ("I(y**2) ~ age", "the response is used as it is declared"),
        ("y + z ~ age", "after the response: the response is used as it is declared"),
        ("2 ~ age", "the response is used as it is declared"),
        ("Surv(t) ~ age", r"Surv\(time, event\)"),
        ("Surv(a, b, c) ~ age", "starting times are not supported"),
        ("Surv(t, t) ~ age", "two different columns"),
        ("y ~ Surv(a, b)", "belongs on the left side"),
        ("y ~ y + age", "'y' is the response and cannot be on the right side"),
        ("y ~ age + offset(y)", "'y' is the response"),
        ("Surv(t, d) ~ age + d", "'d' is the response"),
        ("y ~", "there are no terms: write 1"),
        ("", "there are no terms"),
        ("y ~ 0", "neither terms nor a constant"),
        ("y ~ age - age - 1", "neither terms nor a constant"),
        ("y ~ age +", "the formula ends where a term is expected"),
        ("y ~ age age", r"expected a term, or one of \+ - \* : \*\* between terms"),
        ("y ~ (age", "expected '\\)' to close the parenthesis"),
        ("y ~ age)", "expected a term"),
        ("y ~ a ~ b", "one ~"),
        ("y ~ a / b", r"a \+ a:b instead of a / b"),
        ("y ~ a %in% b", r"nesting is written out"),
        ("y ~ a^2", r"powers are written \*\*"),
        ("y ~ (1 | ward)", "0 and 1 stand outside parentheses"),
        ("y ~ a | b", "random effects are no part"),
        ("y ~ a = b", "equals sign"),
        ("y ~ 2", "a number alone is 0 or 1"),
        ("y ~ 2*x", r"write I\(2 \* x\)"),
        ("y ~ 1:x", "a number alone"),
        ("y ~ x*2", "0 and 1 stand outside"),
        ("y ~ x - 0", r"write \+ 1 for a constant"),
        ("y ~ x**2", r"Write I\(x\*\*2\) for the power of its values"),
        ("y ~ log(x)**2", r"Write I\(x\*\*2\) for the power"),
        ("y ~ (a + b)**0.5", "whole number from 1 to 10"),
        ("y ~ (a + b)**11", "whole number from 1 to 10"),
        ("y ~ (a + b)**c", "whole number from 1 to 10"),
        ("y ~ (a + b)**2**2", "write the degree as one number"),
        ("y ~ a - b", "b is taken away, but it is not among the terms"),
        ("y ~ -a", "a is taken away"),
        ("y ~ a:offset(b)", "an offset has no coefficient"),
        ("y ~ offset(a):b", "an offset has no coefficient"),
        ("y ~ (a + offset(b))", "an offset has no coefficient"),
        ("y ~ a - offset(b)", r"write \+ offset\(-x\)"),
        ("y ~ a + offset(3)", "the same in every row"),
        ("y ~ a + ;", "';' has no meaning in a formula"),
        ("y ~ `a", "'`' has no meaning"),
        ("y ~ ` a`", "no blanks at its ends"),
        ("y ~ 'a'", "expected a term"),
        ("y ~ " + "(" * 60 + "a" + ")" * 60, "nested more than 40 deep"),
        ("y ~ I(" + "-" * 60 + "a)", "nested more than 40 deep"),
        ("y ~ " + "a + " * 3000 + "b", "up to 10,000 are read"),
        (f"y ~ ({' + '.join(f'x{k}' for k in range(300))})**3", "more than 100,000 terms"),
    ],
)
def test_refusals_name_the_reason_and_the_remedy(written: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        Formula.parse(written)
    assert "formula" in str(caught.value) or "whole powers" in str(caught.value)


def test_a_formula_is_a_text() -> None:
    with pytest.raises(UsageError, match="a formula is a text such as"):
        Formula.parse(3)  # type: ignore[arg-type]


def test_a_refusal_says_where() -> None:
    with pytest.raises(UsageError, match=r"formula, character 11 \(near '~ age \+ scale\(dose\)'\)"):
        Formula.parse("y ~ age + scale(dose)")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (
            "log(dose)",
            r"log\(dose\) needs values above 0: declare a lower bound above 0, or use log1p .*dose is declared from -1 to 3",
        ),
        ("log(days)", "needs values above 0"),
        ("log1p(loss)", "needs values above -1: declare a lower bound above -1"),
        ("sqrt(dose)", "needs values of 0 or more"),
        ("I(dose**0.5)", "needs values of 0 or more.*or use a whole power"),
        ("I(days**-0.5)", "needs values above 0"),
        ("I(1 / dose)", "needs a divisor that is never 0: declare a range that excludes 0"),
        ("I(age / days)", "never 0"),
        ("exp(income)", "grows beyond the largest number: declare a narrower range"),
        ("I(income**64)", "grows beyond the largest number"),
        ("I(0 * age)", "the same number in every row: leave it out"),
        ("log(ward)", "column 'ward' has categories, which cannot be computed with"),
        ("bs(ward, knots=[1])", "column 'ward' has categories"),
        ("1 + offset(ward)", "column 'ward' has categories"),
        ("C(age)", r"levels would be read off the data. Declare its categories, or write C\(x, levels="),
        ("C(age, levels=[1, 20])", "level '1' is no number in the declared range from 18 to 90"),
        ("C(age, levels=['x', 20])", "level 'x' is no number"),
        ("C(ward, ref='z')", "the reference is none of the levels a, b, c"),
        ("C(ward, levels=['a', 'b'])", "levels of a column of categories are the declared ones in any order: a, b, c"),
        ("bs(age, knots=[5])", "knots lie inside the declared range, which is from 18 to 90"),
        ("ns(age, knots=[90])", "knots lie inside"),
        ("weight + age + height", "no range and no categories are declared for weight, height"),
    ],
)
def test_what_declarations_do_not_allow_is_refused(written: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Formula.parse(written).derive(DECLARED)


def test_more_columns_than_anybody_needs_are_refused() -> None:
    levels = {name: [str(k) for k in range(400)] for name in "ab"}
    with pytest.raises(UsageError, match="derives more than 100,000 columns"):
        Formula.parse("a:b").derive(levels)


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two derived columns would be called"):
        Formula.parse("a:b").derive({"a": ["1]:b[2", "1"], "b": ["3", "2]:b[3"]})


# --- derived columns --------------------------------------------------------------------------------------------------------


def test_columns_are_declared_in_every_way_that_the_project_has() -> None:
    formula, plain = Formula.parse("age:ward"), {"age": (0, 10), "ward": ["a", "b"]}
    first = formula.derive(plain)
    assert formula.derive(Bounds(plain)) == first
    assert formula.derive(Bounds(plain).columns(["age", "ward"])) == first
    assert formula.derive({"age": Column("age", 0, 10), "ward": ["a", "b"]}) == first
    assert formula.derive({**plain, "unused": (0, 1)}) == first
    with pytest.raises(UsageError, match="declare them by name"):
        formula.derive(Bounds(0, 1))


def test_a_category_has_an_indicator_for_each_level_whatever_its_reference() -> None:
    columns = {"ward": ["b", "a", "zz", None]}
    for written in ("ward", "C(ward)", "C(ward, ref='b')", "C(ward, levels=['a', 'b'])"):
        derived = Formula.parse(written).derive({"ward": ["a", "b"]})
        assert derived.names == ("ward[a]", "ward[b]")
        assert derived.matrix(columns).tolist() == [[0, 1], [1, 0], [0, 0], [0, 0]]
    assert Formula.parse("C(ward, ref='b')").derive({"ward": ["a", "b"]}).factors[0].reference == "b"
    turned = Formula.parse("C(ward, levels=['b', 'a'])").derive({"ward": ["a", "b"]})
    assert turned.names == ("ward[b]", "ward[a]")
    assert turned.factors[0].reference == "b"


def test_a_name_and_its_category_are_one_factor() -> None:
    derived = Formula.parse("ward + x:C(ward, ref='b') + C(ward)").derive({"ward": ["a", "b"], "x": (0, 1)})
    assert derived.terms == ("ward", "ward:x")
    assert derived.factors == (CategoryFactor("ward", ("a", "b"), "b", "ward"),)


def test_numbers_may_be_categories_by_declared_levels() -> None:
    derived = Formula.parse("grade + C(grade, levels=[1, 2.5], ref=2.5)").derive({"grade": (0, 3)})
    assert derived.names == ("grade", "C(grade)[1]", "C(grade)[2.5]")
    found = derived.matrix({"grade": np.array([1.0, 2.5, 9.0, np.nan])})
    assert found[:, 1:].tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]


def test_categories_are_held_as_the_project_holds_them() -> None:
    derived = Formula.parse("site + smokes").derive({"site": ["1", "10"], "smokes": ["true", "false"]})
    found = derived.matrix({"site": np.array([10, 1, 3]), "smokes": np.array([True, False, True])})
    assert found.tolist() == [[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 0]]


def test_columns_of_frames_and_tables_serve() -> None:
    frame = pl.DataFrame({"age": [1, 2], "ward": ["a", "b"]})
    derived = Formula.parse("age*ward").derive({"age": (0, 3), "ward": ["a", "b"]})
    expected = [[1, 1, 0, 1, 0], [2, 0, 1, 0, 2]]
    assert derived.matrix({name: frame[name] for name in frame.columns}).tolist() == expected
    table = Table({"age": [1.0, 2.0], "ward": ["a", "b"]})
    assert derived.matrix({name: table[name] for name in table.names}).tolist() == expected


def test_data_that_do_not_fit_are_refused_without_a_value() -> None:
    derived = Formula.parse("age + ward").derive({"age": (0, 3), "ward": ["a", "b"]})
    with pytest.raises(DataError, match="there is no column 'ward', which the formula needs"):
        derived.matrix({"age": [1.0]})
    with pytest.raises(DataError, match="'ward' has 1 rows where another one has 2"):
        derived.matrix({"age": [1.0, 2.0], "ward": ["SECRET"]})
    with pytest.raises(DataError, match="holds text where a range is declared") as caught:
        derived.matrix({"age": ["SECRET"], "ward": ["a"]})
    assert "SECRET" not in str(caught.value)
    with pytest.raises(DataError, match="missing"):
        check(Table({"age": [1.0, np.nan], "ward": ["a", "b"]}), derived.needs)


def test_missing_values_follow_the_declared_rules() -> None:
    rules = {"a": "absent", "i": "indicator", "r": "refuse", "w": "indicator"}
    columns = [Column(name, 0, 4, missing=rules[name]) for name in "air"] + [
        Column("w", categories=("p", "q"), missing="indicator")
    ]
    derived = Formula.parse("a + i + r + a:r + w + I(i**2)").derive(columns)
    said = {column.name: column.missing for column in derived.columns}
    assert (said["a"], said["i"], said["r"], said["a:r"], said["I(i**2)"]) == (
        "absent",
        "absent",
        "refuse",
        "absent",
        "absent",
    )
    assert derived.names[-2:] == ("i missing", "w missing")
    found = derived.matrix({"a": [np.nan, 1.0], "i": [np.nan, 2.0], "r": [1.0, 2.0], "w": ["q", None]})
    assert found[:, -2:].tolist() == [[1, 0], [0, 1]]
    assert derived.reach["i"] == (1, derived.names.index("I(i**2)"), len(derived.names) - 2)
    coded, present = Coding(derived.declared, 100).code(
        list(found.T)
    )  # what is missing becomes the middle, as for any column
    assert (coded[0, 0], bool(present[0, 0])) == (0, False)
    with pytest.raises(DataError, match="'r' holds a missing value"):
        Coding(derived.declared, 100).code(list(derived.matrix({"a": [1.0], "i": [1.0], "r": [np.nan], "w": ["q"]}).T))


def test_one_value_reaches_all_columns_that_contain_it() -> None:
    """Under the unit ``attribute`` these places move together, and no other one does."""
    derived = Formula.parse("age*arm + I(age**2) + log(dose)").derive({"age": (0, 9), "arm": ["x", "y"], "dose": (1, 2)})
    assert derived.reach == {"age": (0, 3, 5, 6), "arm": (1, 2, 5, 6), "dose": (4,)}
    assert derived.sources[3] == {"age"}
    rng = np.random.default_rng(0)
    for source, other in [
        ("age", rng.uniform(0, 9, 50)),
        ("dose", rng.uniform(1, 2, 50)),
        ("arm", rng.choice(["x", "y"], 50)),
    ]:
        before = {"age": rng.uniform(0, 9, 50), "dose": rng.uniform(1, 2, 50), "arm": rng.choice(["x", "y"], 50)}
        moved = derived.matrix(before) != derived.matrix({**before, source: other})
        assert tuple(np.flatnonzero(moved.any(axis=0)).tolist()) == derived.reach[source]


def test_columns_of_a_term_that_differ_by_level_share_their_number() -> None:
    derived = Formula.parse("ward:arm:log(dose)").derive({"ward": ["a", "b"], "arm": ["x", "y"], "dose": (1, 2)})
    assert {column.number for column in derived.columns} == {"log(dose)"}
    assert [column.cells for column in derived.columns][1] == (("arm", "x"), ("ward", "b"))
    assert derived.names[1] == "arm[x]:log(dose):ward[b]"


def test_two_splines_of_a_column_have_names_of_their_own() -> None:
    derived = Formula.parse("bs(x, knots=[1]) + bs(x, knots=[2])").derive({"x": (0, 4)})
    assert len(set(derived.names)) == 8
    assert derived.names[0] == "bs(x, knots=[1])[1]"


def test_a_constant_alone_has_no_columns() -> None:
    derived = Formula.parse("y ~ 1").derive({"age": (0, 1)})
    assert derived.names == ()
    assert derived.matrix({"age": [1.0, 2.0]}).shape == (2, 0)
    assert derived.offset({"age": [1.0, 2.0]}).tolist() == [0, 0]
    assert derived.matrix({}).shape == (0, 0)
    assert derived.offset_bounds is None


# --- the dot ----------------------------------------------------------------------------------------------------------------


def test_the_dot_is_every_other_declared_column() -> None:
    declared = {"y": (0, 1), "age": (0, 1), "years": (1, 2), "ward": ["a", "b"]}
    formula = Formula.parse("y ~ . + offset(log(years))")
    assert formula.dot
    assert formula.terms == ()
    assert formula.needs == ("years",)
    assert formula.derive(declared).names == ("age", "ward[a]", "ward[b]")
    assert str(formula.closed(declared)) == "y ~ age + ward + offset(log(years))"
    assert str(Formula.parse("y ~ .**2 - age").closed(declared)) == "y ~ years + ward + age:years + age:ward + ward:years"
    assert str(Formula.parse("y ~ .**2").closed(["y", "x"])) == "y ~ x"
    assert Formula.parse("Surv(y, age) ~ . - years").derive(declared).names == ("ward[a]", "ward[b]")
    assert Formula.parse("y ~ . + C(ward, ref='b')").derive(declared).factors[0].reference == "b"
    with pytest.raises(UsageError, match="dose is taken away, but it is not among"):
        Formula.parse("y ~ . - dose").derive(declared)
    closed = Formula.parse("y ~ age")
    assert closed.closed(["x"]) is closed


@pytest.mark.long
@pytest.mark.slow
def test_thousands_of_columns_are_read_by_the_dot() -> None:
    declared = {f"x{k}": (0.0, 1.0) for k in range(20_000)}
    assert len(Formula.parse("y ~ .").derive(declared).columns) == 20_000
    with pytest.raises(UsageError, match="more than 100,000 terms"):
        Formula.parse("y ~ .**2").derive(declared)


# --- parties ----------------------------------------------------------------------------------------------------------------


def test_each_party_has_the_terms_that_it_can_compute() -> None:
    formula = Formula.parse("y ~ 0 + age*arm + log(dose) + offset(years) + offset(log(cost))")
    found = formula.split({"clinic": {"age", "arm", "years"}, "bank": ["y", "dose", "cost"], "school": set()})
    assert {name: str(part) for name, part in found.items()} == {
        "clinic": "~ 0 + age + arm + age:arm + offset(years)",
        "bank": "y ~ 0 + log(dose) + offset(log(cost))",
        "school": "~ 0",
    }
    assert found["clinic"].derive({"age": (0, 1), "arm": ["p", "q"], "years": (1, 2)}).names[0] == "age"


def test_the_dot_is_split_as_well() -> None:
    found = Formula.parse("Surv(t, d) ~ .").split({"a": ["t", "d", "age"], "b": ["dose"]})
    assert (str(found["a"]), str(found["b"])) == ("Surv(t, d) ~ age", "~ dose")
    assert not found["b"].survival


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (
            "age:dose",
            "age:dose needs columns of a, b, and nobody may see both to multiply them. Leave the term out, or let one party",
        ),
        ("age*dose", "age:dose needs columns of a, b"),
        ("I(age + dose)", r"I\(age \+ dose\) needs columns of a, b"),
        ("age + offset(age * dose)", r"offset\(age \* dose\) needs columns of a, b"),
        (".**2", "needs columns of a, b"),
        ("age + weight", "no party has weight"),
        ("Surv(age, dose) ~ 1", "time and event, age, dose, are at two parties"),
    ],
)
def test_products_of_two_parties_are_refused(written: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Formula.parse(written).split({"a": {"age"}, "b": {"dose"}})


def test_a_column_is_at_one_party() -> None:
    with pytest.raises(UsageError, match="column 'age' is at two parties"):
        Formula.parse("age").split({"a": {"age"}, "b": {"age"}})
