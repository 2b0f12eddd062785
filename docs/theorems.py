"""Write the index of all theorems: `python docs/theorems.py [FILE]` writes docs/theorems.md or FILE.

The index has one table for each page of proofs, and one row for each heading with a number. Code and tests are listed where they cite the number
("Theorem F.1", "F.1 and F.2", "F.1 to F.8"), or where the theorem's section names them in backticks.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
SOURCE = ROOT / "src" / "unpooled"
NUMBER = r"[A-Z]\.\d+(?:\.\d+)*"
HEADING = re.compile(rf"^#+ ({NUMBER}) (\S.*)$", re.MULTILINE)
CITED = re.compile(rf"(?<![\w.])({NUMBER})(?!\w)(?: to ({NUMBER})(?!\w))?")
LONGEST = 160
#: These tests are about citations themselves, and cite theorems that they do not check.
NO_CHECKS = {"test_citations.py", "test_theorems.py", "test_theory_math.py"}
#: Statements of theorems whose first sentence is too long, or says only what is given.
SAID = {
    "N.1": r"Counts of a table's cells move by $\sqrt{2}$ under replace, 1 under zero-out, $\sqrt{2}$ for one value, $m$ times that for an id of $m$ rows.",
    "N.2": "The nearest counts with public sums are unbiased, and the variance of the noise of each weighted sum is known and never larger than before.",
    "N.3": "The mean and the sampling and noise variances of the residuals of a noisy table under independence.",
    "N.4": "The mean and the variance of products of noisy counts, which odds ratios and risk differences are made of.",
    "N.5": "The weights of strata with the smallest variance: those of Mantel and Haenszel, less where noise is large.",
    "N.6": r"The bin that holds a quantile is excluded with a probability of at most $2 (1 - \Phi(z))$, by the normal law and to first order.",
    "B.1": r"A sum with $H \ge N - T - 1$ shares whose noise the observer does not know has the planned zCDP cost for each person.",
    "B.2": "With at most $T$ colluders, an honest party's vector enters at most one opened sum per release, and that sum has at least $N - T$ participants.",
    "B.3": r"The classical deviation of Gaussian noise is not $(\varepsilon, \delta)$-private for every $\varepsilon$: it is too small at $\varepsilon = 10$.",
    "B.12": r"Where $m$ rows of an id count and sums of scores of $j$ rows are at most $S \sqrt{j}$ long, an id moves their products by $\sqrt{2} m S^2$ at most.",
    "B.13": r"Counts of columns in cells move by the root of the sum of 2 a column (1 under zero-out), and 1 more for marks of missing values.",
    "B.15": r"Sums and sums of squares that parties release of their own columns, with one scale of noise, cost a person what one release of all costs.",
    "B.14": "Errors of nuisance coefficients and of relations between columns enter the score of a focus as their product alone.",
    "G.12": "Whole rows have the log odds of all rows plus an offset from the model of which rows are whole; the covariance that follows from both scores.",
    "G.13": r"A sum of products $a c'$ of two rows with $\vert a \vert \vert c \vert \le B$ moves by at most $B$ under zero-out and by $2B$ under replace.",
    "G.14": r"The product pull $s \min(1, e^{-s u_a}) \min(1, e^{-s u_b})$ is a positive weight times $y - p$: its mean is 0 at the truth in every row.",
    "G.15": r"One person moves twice the score by at most $4 S R$ under replace and $2 S R$ under zero-out, whatever two lying parties send.",
    "G.16": "Numbers and rows that are rounded at random leave the mean of the released sums as it is, and are no longer than proven.",
    "G.17": r"The pull of counts is $q/g$ times a product of two vectors, whose sum one person moves by $2 S R$ under replace and $S R$ under zero-out.",
    "G.11": r"Counts of (class, cell of any score) move by at most $\sqrt{2}$ under replace, 1 under zero-out, $m \sqrt{2}$ for an id of $m$ rows.",
    "S.16": r"Counts of (class, cell of a released score) at $K$ parties: a record and a label pay for all of them, one value for its party's alone.",
    "S.17": r"Calibrated evidence of equal correlation $\rho$ adds up with the factor $1/(1 + \rho (K^\ast - 1))$, $K^\ast$ between 1 and $K$.",
    "B.4": "The covariance of the noise in the normal equations, and the posterior as a fixed point that uses it, averaged over likely Grams (an approximation).",
    "B.5": "A sum of vectors of length at most $C$ moves by at most $C$ under zero-out, by $2C$ under replace, and by $2C$ when one value changes.",
    "B.6": "A sum of squared residuals, each cut at a public $S$, moves by at most $S$ under both adjacencies and for both units.",
    "B.7": "The sensitivity of weighted sums and sums of squares of several columns and a response, for a row and for one value.",
    "B.8": "The fit takes the rows' own least squares solution as its state, so that sampling variance is added exactly once.",
    "B.9": "Rows shortened by weights: the sampling variance of the weighted solution is at most the mean squared weight times the usual one.",
    "B.10": "Declared weights, clipped to their range and divided by its end, leave every bound of B.5, B.6, F.9.3, F.9.4 and G.1 to G.7 as it stands.",
    "L.11": r"The covariance of a LASSO with the noise in its products is $\nu^2$ times the trace of the inverse Gram of the columns that it keeps.",
    "C.1": r"No constant times $\max \vert y \vert \max \vert x \vert$ is the sensitivity of a normalised weight vector: that is at most 2, which is attained.",
    "C.2": r"Measured lower bounds on $\varepsilon$ that an observer of the published form can show, where $\varepsilon = 1$ is claimed.",
    "C.3": "Any public matrix and length keep the sensitivity of the release: a basis need not be orthonormal, and whitening costs no privacy.",
    "C.4": "The outlook before data is a function of the plan and of simulated rows alone.",
    "C.5": "Several responses in one augmented row have the reach of one response.",
    "C.6": "Rounds over coordinates have the sensitivities of a row; one channel moves all coordinates, so one value has those of a row that is replaced.",
    "C.7": "A model carried to a second instrument keeps the promise of each domain; somebody in both pays for the composition of both.",
    "C.8": r"Gradients of several responses, cut by the length of all residuals together, move as far as those of one; counts as one that is $\sqrt{q}$ times heavier.",
    "F.1": "The exact L2 sensitivity of weighted counts, sums and sums of squares of one column, under zero-out and replace.",
    "F.3": r"Flooring a block before the noise gives a post-processed Gaussian of $\mu \le D/S + t \sqrt{m}$: $t$ is one step in units of the noise.",
    "F.4": "Rounded Gaussian noise on an integer vector costs what the Gaussian mechanism costs, and composes like it.",
    "F.5": r"A sampler within total variation $t$ of a law with curve $\delta(\varepsilon)$ has a curve of at most $\delta(\varepsilon) + (1 + e^\varepsilon) t$.",
    "F.6": "Noise keyed by the exact statistic is within the advantage against a pseudo-random function of fresh noise, and asking again costs nothing.",
    "F.7": "The integer that a sampler returns is the exact inverse of the noise law at its uniform number, up to a doubt of $2^{-16000}$.",
    "F.8": "Rows split: the worst party counts for a person. Columns split: all releases compose for a record, and the worst attribute counts for a value.",
    "F.9": "The sensitivity of second moments in three geometries, for a record and for one value, with the units of the blocks.",
    "F.9.1": "Second moments of rows in a box, with equal noise: the exact sensitivity under zero-out, and the one under replace.",
    "F.9.2": "The sensitivity that Heikkila et al. print for a box (their equation 12) is valid, and larger than F.9.1.",
    "F.9.3": "Second moments of rows in a ball of radius $R$, off-diagonals counted twice: the sensitivity under zero-out and replace.",
    "F.9.4": r"All products of one augmented row of length at most $r$: the sensitivity is $r^2$ under zero-out and $\sqrt{2} r^2$ under replace.",
    "F.10": "A sum that holds discrete Gaussian fragments of $H$ honest parties is zCDP, with a bound that tells how far the sum is from a Gaussian.",
    "F.12": r"If the envelopes of a trial are functions of the scores and of earlier trials, a choice has the law $w_i / \sum w$ and takes at most $2 M$ trials in the mean.",
    "F.13": r"The computed $\delta$ is raised by a bound on its rounding error, so that it is never below the exact one.",
    "F.15": r"Real numbers rounded to a public step before the noise: the release costs at most what a Gaussian of $\mu = 1/q$ costs.",
    "F.17": "Releases of a plan, chosen adaptively, cost at most what the composition of their events proves, plus the advantage of F.6.",
    "F.19": "A household of at most $m$ rows moves a total by at most $m$ times what one row does, at one party and over all parties together.",
    "F.20": r"The probability that the privacy loss exceeds $\varepsilon$ is at most $\delta(e') / (1 - e^{e' - \varepsilon})$ for every $e' < \varepsilon$.",
    "F.21": "Releases whose losses have known tails cost at most the mean of the others' curve over independent draws from those tails.",
    "F.22": "Where one of several compositions holds and nobody knows which, the largest of each number covers all of them.",
    "B.17": "A constant for every site makes a row longer by one short coordinate, and no sensitivity larger, under both adjacencies.",
    "B.18": "Generalised least squares over the sites' fixed constants is the mixed model; their covariance holds the noise, so noise is no spread.",
    "B.19": "A round over the values of rows along public directions moves by at most two clips, one under zero-out, as a round over rows does.",
    "B.22": "Whole rows of a linear model follow its law tilted by the model of which rows are whole; pulls have mean 0 there, and how they move.",
    "B.23": r"A sum of positive semidefinite matrices of Frobenius norm at most $S$ moves by at most $S$ under zero-out, $\sqrt 2 S$ under replace.",
    "B.20": r"Rows without a needed value count nowhere: a release moves by the larger of a replaced and a vanished record, for one value too.",
    "F.27": "An analysis that is fitted at every party by itself costs a person, or a household at several parties, no more than one of its fits.",
    "F.26": r"Analyses that share a budget cost together the composition of one part of the rows in each; if all are Gaussian, the budget.",
    "F.29": r"A total in fine steps with discrete Gaussian noise of several members costs what a Gaussian release costs, but for a total variation.",
    "F.24": r"Noise of two parts, $2^s X + Y$, is within a factor of $1 + 2^{-1000}$ of one discrete Gaussian at every integer, so F.10 holds for its fragments.",
    "F.23": r"A $\rho$-zCDP mechanism is $(\varepsilon, \delta)$-private with the $\delta$ of every order $a > 1$, and with $\delta = \sqrt{1 - e^{-\rho}}$.",
    "G.1": r"A sum of vectors in the unit cube of $c$ dimensions moves by at most $\sqrt{c}$, and by at most 1 when one value changes.",
    "G.2": "Pulls scaled by any $h$ and cut on the integers give a sum that moves by at most $C$ under zero-out and by $2C$ under replace or when one value changes.",
    "G.3": r"Weighted second moments of rows of length at most $R$ move by at most $R^2$ under zero-out and by $\sqrt{2} R^2$ under replace.",
    "G.4": "Scaled pulls have expectation 0 at the true coefficients, whatever the scaling $h(u, z)$ is.",
    "G.6": r"The gradients of $C$ classes move jointly by at most $\sqrt{2} R$ under zero-out and by $2 \sqrt{2} R$ under replace; both are approached.",
    "G.7": r"The second moments of several classes, with their weights, move by at most $R^2$ under zero-out and by $\sqrt{2} R^2$ under replace.",
    "G.8": "The covariance of what noise that is symmetric in classes and in columns leaves in a Newton step, and the law of its contrasts.",
    "G.9": "A person's pulls in survival, stopped at a public cap, have bounded length and expectation 0 at the true coefficients.",
    "G.10": r"A person's weighted second moments over all intervals move by at most $B$ under zero-out and by $\sqrt{2} B$ under replace.",
    "G.18": r"One person at two parties, with all pieces of its time, moves a round by at most $S R$ under zero-out and $2 S R$ under replace.",
    "H.1": r"A row moves the counts of cells by at most $\sqrt{2}$ if it is replaced, by 1 if it is left out; a household by $m$ times that.",
    "J.1": r"$A'B = A'(B + R_b) - (A + R_a)'R_b + R_a'R_b$ modulo $p$, masked rows are uniform, and a missing term gives rows away.",
    "J.4": "Fair rows are always accepted, and a sum of theirs leaves its range with probability below 2^-64 a block.",
    "J.5": "A block with an entry that could wrap passes the 128 signed sums with probability 2^-128 at most; otherwise no square wraps.",
    "J.7": "A too long row is accepted with probability below 2^-119 for each hash that the prover evaluates, if judge and helper are honest.",
    "J.8": "What a malicious judge sees is within 2^-64 a block of a view that is simulated without the rows.",
    "J.9": "What a malicious helper sees is simulated without the rows, and so is the verdict on whatever it answers.",
    "J.11": "What a coalition without a helper next to a party of its pair sees follows from its inputs and the noisy totals.",
    "J.12": r"One person moves a round of sines by at most $2 G R$ under replace and $G R$ under zero-out, whatever parts the proofs let a liar hold.",
    "J.13": r"Rows with gaps at two parties add nothing, and a person moves the rest no farther than without gaps, whatever a liar sends that proofs admit.",
    "J.10": r"With $N$ blocks proven, delta grows by at most $(1 + e^{\varepsilon}) N 2^{-64}$.",
    "L.1": "One value meets $T$ picks, $T$ scores and one released column with its moments (two columns if it is categorical): the noise follows.",
    "L.2": r"One row meets $K T$ picks and scores, and at most $\min(T, d)$ or $\min(K T, d)$ columns, also with a dishonest coordinator.",
    "L.3": "The rounds compose adaptively as zCDP; iterates and columns picked are post-processing.",
    "E.6": "Outcome models for everybody, and residuals over the chance of arm and record, tell the effect on everybody if one side's models are right.",
    "L.4": r"Every iterate, private or not, lies in the declared $\ell_1$ ball, or in the product of the blocks' balls.",
    "L.6": "Moments: one value is in those of its own column, a row in those of all released columns; the noise follows.",
    "L.7": r"A party's sums have the sensitivity of B.7; Gaussian releases whose shares of $\mu$ have squares that add up to 1 cost $\mu$ together.",
    "L.8": "An axis, one clipped number for every row, moves by at most twice its cap, at either unit.",
    "L.9": "Products of an axis with the others' released axes of length at most 1 move by at most twice the cap.",
    "L.10": r"Scores of products clipped to 4 have sensitivity 8, so that a pick at $\varepsilon_0$ is $\varepsilon_0^2/8$-zCDP.",
    "R.1": r"A row moves the five weighted sums by at most $2 \sqrt{2}$ under replace and by 2 under zero-out; both are attained.",
    "R.2": "The standard error of the correlation on Fisher's scale: that of sampling, and the noise by the delta method.",
    "P.1": r"Every row of the subsampled randomised Hadamard sketch has norm exactly 1 if its entries are $\pm 1/\sqrt{m}$.",
    "P.2": "Sketched rows of length at most $C$ move a party's release by at most $2C$; rows shortened to $R$ before, by $2R$ times the sketch's norm.",
    "P.3": r"The published deviation is private for public $\theta$, $\delta < 1/2$ and $\varepsilon > 0$; it is larger than needed.",
    "P.4": r"With columns standardised by their own mean and deviation, the release is not private at the claimed $\varepsilon$.",
    "P.5": r"A changed row moves the minimiser of a convex loss with penalty $\alpha$ by at most twice the largest gradient over $\alpha$.",
    "P.12": "No rule by which parties add shares computed without a release keeps every joint prediction near the best party's own model.",
    "P.14": "The best share about an earlier model whose coefficients of unseen columns are known, and the columns up to a rotation.",
    "P.13": "Under its own prior a posterior mean never errs more with a better sketch, nor more than any member of the average.",
    "P.6": "On centred data the block of party $k$ of the pooled ridge depends on the others' columns only through the sum $G$ of their Gram matrices.",
    "P.7": "The product of the received sketches, less their known noise, is an unbiased estimate of the others' centred Gram matrix.",
    "P.8": "The mean, over all orthonormal bases, of the sum of squared energies that a positive semidefinite matrix has in them.",
    "P.9": "Coefficients of other losses over the others' Gram matrix, and the smoothed loss that takes the place of one effect per row.",
    "P.10": "The same for losses of several decisions a row with shared numbers (Cox, multinomial, ordinal), with the Newton step.",
    "P.11": "The largest slope of each family's loss, with which P.5 holds.",
    "V.1": r"The cells of exits move by $\sqrt{2}$ when a row is replaced or one value changes, by 1 when a row contributes nothing.",
    "Q.2": r"Sums of every arm apart move by at most $\max(D, \sqrt{2(a^2 + b^2 + c^2)})$ for one column when a row is replaced, with $D$ of F.1.",
    "Q.1": r"Histograms of $d$ columns move by $\sqrt{2d}$ under replace, by $\sqrt{d}$ under zero-out, and by $\sqrt{2}$ when one value changes.",
    "S.1": r"A replaced row costs a perturbed minimiser at most $2 L q/s + \ln(1 + \beta q^2/(n \Lambda))$; a row left out, $L q/s$ and the same logarithm.",
    "S.2": "A solver that stops at a gradient of at most $g$, with covering noise added, costs $e_c$ more than the exact minimiser.",
    "S.3": r"$K$ blocks of one row, fitted with noises of their own, cost the sum of their terms, which add up to $\varepsilon$.",
    "S.4": "Parts of the rows that are fixed by a public seed: a row pays for the one part that it is in, and the worst part counts.",
    "S.5": "Rows of the high level have length at most 1 whatever a coordinator sends; the reach of noisy predictions follows.",
    "S.6": "In one column without a constant a replaced row moves the logistic gradient by at most about half of $2q$.",
    "S.7": r"A value that goes missing moves the logistic gradient by at most $q$ or $\sqrt{2} q$, by what else changes in the row.",
    "S.8": "Another label of one row costs at most $l q/s$ where the second derivative of the loss is the same for both labels.",
    "S.9": r"$K$ block models fitted at $\varepsilon$ each on the same rows cost the sum of $K$ losses: Corollary 6 of the paper is false.",
    "S.11": "With Gaussian perturbation the loss has a tail bounded by those of a polytope's corners, and a curve summed over them.",
    "S.12": "Losses with the tails of S.11 compose with each other and with other events: the mean of the others' curve.",
    "S.13": "Private importance: the scores and all fits cost a record no more than the scores and one fit of each rank.",
    "S.14": "For each shape of loss, the corners of a polytope that holds every difference of gradients, and the bound on the determinants.",
    "S.15": "Rows of a formula cost what other rows of their length do; what one declared value can move follows from its derived columns.",
}  # fmt: skip
HEAD = """# All theorems

Each number that a study releases rests on a theorem: how far one person can move it, and what its noise costs. This page lists all of them, and says which code uses each theorem and which tests check it. The proofs are in pages next to the code, and the
first column leads to them ([all pages of proofs](theory/index.md)). The second column shortens a theorem; the proof's page has the exact conditions. Definitions and measured facts that have a number are listed too.

A test is listed under a theorem if it cites the number, or if the proof names its file. A test is evidence, not a proof: most of them search for inputs that exceed a bound, and compare with a form that is known to be wrong. "none" in the last column means that no test does.

`python docs/theorems.py` writes this page anew. [The guarantee](guarantee.md) says what the theorems add up to, and [the audit](audit.md) attacks the code without them.
"""


@dataclass(frozen=True)
class Theorem:
    """Hold one numbered heading of a page of proofs, with the text below it."""

    number: str
    name: str
    page: Path
    text: str

    @property
    def order(self) -> tuple[str, tuple[int, ...]]:
        """The place of the number: F.2 comes before F.10."""
        letter, *parts = self.number.split(".")
        return letter, tuple(map(int, parts))

    @property
    def link(self) -> str:
        """The heading as a link."""
        title = f"{self.number} {self.name}"
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        return f"[{title}]({Path('..') / self.page.relative_to(ROOT)}#{anchor})"

    @property
    def first(self) -> str:
        """The first sentence of the paragraph that states the theorem, or nothing."""
        found = re.search(r"\*\*Theorem\.\*\*\s(.*?\.)(?=\s)", self.text, re.DOTALL)
        return re.sub(r"\s+", " ", found.group(1)).strip() if found else ""

    @property
    def statement(self) -> str:
        """The theorem in one line."""
        said = SAID.get(self.number, self.first)
        if not 0 < len(said) <= LONGEST:
            msg = f"{self.number} needs a statement of at most {LONGEST} characters in SAID: {said!r}"
            raise ValueError(msg)
        return said.replace("|", "\\|")


def pages() -> list[Path]:
    """Return the pages of proofs: of the package, of its mechanisms, of its models, and of the example."""
    found = [SOURCE / "privacy" / "THEORY.md"]
    found += sorted(SOURCE.glob("privacy/mechanisms/*.md")) + sorted(SOURCE.glob("models/*/THEORY.md"))
    found += [page for page in sorted(SOURCE.rglob("*.md")) if page not in found]
    return found + sorted(ROOT.glob("examples/*/src/*/THEORY.md"))


def theorems() -> list[Theorem]:
    """Return all theorems, page by page."""
    found = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        ends = [match.start() for match in re.finditer(r"^#+ ", text, re.MULTILINE)] + [len(text)]
        for match in HEADING.finditer(text):
            end = min(end for end in ends if end > match.start())
            found.append(Theorem(match[1], match[2], page, text[match.end() : end]))
    return found


def numbers(text: str, known: dict[str, Theorem]) -> Iterator[str]:
    """Yield the theorems that a text cites; a range names all between its ends."""
    for first, last in CITED.findall(text):
        if first in known and last in known:
            low, high = known[first].order, known[last].order
            yield from (number for number, one in known.items() if low <= one.order <= high)
        else:
            yield from (number for number in (first, last) if number in known)


def names(tree: ast.AST, inside: str = "") -> Iterator[tuple[int, int, str]]:
    """Yield the first line, the last line and the full name of every function and class of a module, outer ones first."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{inside}{node.name}"
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            yield first, node.end_lineno or node.lineno, name
            yield from names(node, f"{name}.")
        else:
            yield from names(node, inside)


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield the strings and the comments of a module with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            yield token.start[0], token.string


Places = dict[str, dict[str, list[str]]]


def add(places: Places, number: str, file: str, name: str = "") -> None:
    """Note that a file, or a function or class in it, cites a theorem."""
    held = places.setdefault(number, {}).setdefault(file, [])
    if name and name not in held:
        held.append(name)


def citing(files: list[Path], root: Path, known: dict[str, Theorem]) -> Places:
    """Return, for each theorem, the files that cite it and the functions and classes of each file in which they do."""
    places: Places = {}
    for file in files:
        source = file.read_text(encoding="utf-8")
        defined = list(names(ast.parse(source)))
        for line, text in prose(source):
            around = [name for first, last, name in defined if first <= line <= last]
            above = [name for first, _, name in defined if first == line + 1]  # a comment right above a definition
            for number in numbers(text, known):
                name = (around or above or [""])[-1]
                add(places, number, str(file.relative_to(root)), name)
    return places


def named_code(one: Theorem, defined: dict[str, list[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    """Yield the files, functions and classes of the package that a theorem's section names in backticks, and the module of a mechanism's page."""
    if one.page.parent.name == "mechanisms":
        yield str(one.page.with_suffix(".py").relative_to(SOURCE)), ""
    for word in re.findall(r"`([\w./]+)`", one.text):
        if (SOURCE / word).exists() and "/" in word and not word.endswith(".md"):
            yield word, ""
        elif (one.page.parent / word).is_file() and word.endswith(".py"):
            yield str((one.page.parent / word).relative_to(SOURCE)), ""
        elif len(found := defined.get(word, [])) == 1 and ("_" in word or word[0].isupper()):
            yield found[0]


def places() -> tuple[Places, Places]:
    """Return the code that uses each theorem and the tests that check it."""
    known = {one.number: one for one in sorted(theorems(), key=lambda one: one.order)}
    # The contract that ships with the package is tests; so are those of the example.
    contract, example = sorted((SOURCE / "testing").glob("*.py")), sorted((ROOT / "examples").glob("*/tests/*.py"))
    modules = [file for file in sorted(SOURCE.rglob("*.py")) if file not in contract]
    code = citing(modules, SOURCE, known)
    for number, found in citing(sorted((ROOT / "examples").glob("*/src/**/*.py")), ROOT, known).items():
        code.setdefault(number, {}).update(found)
    checks = [*sorted((ROOT / "tests").rglob("*.py")), *contract, *example]
    tests = citing([file for file in checks if file.name not in NO_CHECKS], ROOT, known)
    defined: dict[str, list[tuple[str, str]]] = {}
    for file in modules:
        for _, _, name in names(ast.parse(file.read_text(encoding="utf-8"))):
            defined.setdefault(name, []).append((str(file.relative_to(SOURCE)), name))
    for number, one in known.items():
        if one.page.is_relative_to(SOURCE):
            for file_name, name in named_code(one, defined):
                add(code, number, file_name, name)
        for file_name in re.findall(r"`(tests/[\w/]+\.py)`", one.text):
            add(tests, number, file_name)
    return code, tests


def listed(found: dict[str, list[str]]) -> str:
    """Return the files of one cell, each with its functions and classes."""
    if not found:
        return "none"
    return "; ".join(
        f"`{file}`" + (f" ({', '.join(f'`{name}`' for name in inside)})" if inside else "")
        for file, inside in sorted(found.items())
    )


def index() -> str:
    """Return the whole page."""
    code, tests = places()
    held = theorems()
    parts = [HEAD]
    for page in dict.fromkeys(one.page for one in held):
        title = re.sub(r" \(`.*`\)$", "", page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# "))
        shown = page.relative_to(SOURCE if page.is_relative_to(SOURCE) else ROOT)
        rows = sorted((one for one in held if one.page == page), key=lambda one: one.order)
        parts.append(
            f"## {title}\n\nProofs: `{shown}`.\n\n| theorem | statement | code | tests |\n|---|---|---|---|\n"
            + "".join(
                f"| {one.link} | {one.statement} | {listed(code.get(one.number, {}))} | {listed(tests.get(one.number, {}))} |\n"
                for one in rows
            )
        )
    return "\n".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "theorems.md").write_text(index(), encoding="utf-8")
