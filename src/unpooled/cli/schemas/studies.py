"""The outputs of the commands that an analyst uses, from ``unpooled new`` to ``unpooled crate``, and the parts that several outputs share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

# --- Shared ----------------------------------------------------------------------------------------------------------------
# The parts that outputs of several commands share. Numbers that are infinite or unknown are null, as JSON has no word for them.

#: A number, or null where it is infinite or not known.
Number = Annotated[float | None, Meta(description="A number; null where it is infinite or not known.")]
#: The hash of a plan.
Hash = Annotated[str, Meta(description="The hash of the plan, in hexadecimal digits.")]
#: A file or folder.
Path = Annotated[str, Meta(description="A path, as the command was given it or found it.")]
#: An epsilon in a ledger.
Spent = Annotated[
    float | Literal["unbounded"], Meta(description='An epsilon; "unbounded" where the cost of a study is not known.')
]


class Section(msgspec.Struct, forbid_unknown_fields=True):
    """A part of an output; it has these keys and no others."""


class Output(msgspec.Struct, forbid_unknown_fields=True, tag_field="schema"):
    """An output of a command; its first key, ``schema``, holds its name and version."""


class StatementData(Section):
    """The privacy statement of a plan: the guarantee, and all that it rests on."""

    holds: bool
    unit: str
    adjacency: str
    calibration: str
    epsilon: Number
    delta: float
    epsilon_per_unit: Annotated[
        dict[str, float | None],
        Meta(description="The smallest epsilon that is proved at this delta, for each unit; null: none is."),
    ]
    failure: Annotated[float | None, Meta(description="A bound on the probability that the loss exceeds epsilon.")]
    protects_against: str
    not_protected: list[str]
    assumptions: list[str]
    warnings: list[str]
    plan: Hash
    links: Annotated[bool, Meta(description="Whether the study links rows; then it tells membership exactly.")]
    hidden: list[str]
    only_against: Annotated[
        str, Meta(description="The only ones against whom it protects, where a proof was left out; empty: no such limit.")
    ]
    headline: str
    reading: Annotated[str, Meta(description="The meaning of epsilon for a person; empty where nothing is promised.")]


class TermData(Section):
    """A line of a result. What a model does not know is null."""

    term: str
    estimate: Number
    std_error: Number
    statistic: Number
    p_value: Number
    conf_low: Number
    conf_high: Number
    privacy: Annotated[float | None, Meta(description="The part of the standard error that privacy adds.")]
    group: Annotated[str, Meta(description="The party or source that the line belongs to; empty: none.")]


class TrafficData(Section):
    """The bytes that one party was sent, and that were received from it."""

    sent: int
    received: int


class FormatData(Section):
    """The way in which a data file is written; a key that is missing has its default."""

    separator: str | UnsetType = UNSET
    decimal: str | UnsetType = UNSET
    encoding: str | UnsetType = UNSET
    quote: str | UnsetType = UNSET
    dates: str | UnsetType = UNSET
    nulls: list[str] | UnsetType = UNSET
    sheet: str | UnsetType = UNSET


class BudgetData(Section):
    """The total that all studies together may spend."""

    epsilon: Number
    delta: float
    unit: str


# --- Studies ---------------------------------------------------------------------------------------------------------------
# The outputs of the commands that an analyst uses: from ``unpooled new`` to ``unpooled audit``.


class NewOutput(Output, tag="unpooled/new/1"):
    """``unpooled new``: the study file that was written."""

    written: Path
    model: str
    cards: list[str]
    models: Annotated[list[str], Meta(description="Of a study with several analyses.")] | UnsetType = UNSET
    formula: Annotated[str, Meta(description="The right side of the formula; missing without one.")] | UnsetType = UNSET


class PlannedReleaseData(Section):
    """A release of a plan."""

    name: str
    party: str
    step: str
    mechanism: str
    count: Annotated[int, Meta(description="The number of times that it is made, at most.")]
    size: Annotated[int, Meta(description="The number of numbers in it.")]
    sensitivity: Annotated[float | None, Meta(description="null: known during the run only, or not priced.")]
    scale: Annotated[float | None, Meta(description="The scale of its noise; null: known during the run only.")]


class DerivedColumnData(Section):
    """A column that a formula derives, with bounds that follow from the declared ones."""

    name: str
    low: Number
    high: Number
    sources: list[str]


class PlannedFormulaData(Section):
    """The formula of a plan, and all columns that it derives."""

    text: str
    columns: list[DerivedColumnData]
    offset: DerivedColumnData | UnsetType = UNSET


class ExpectedErrorData(Section):
    """The error expected at one epsilon; nine of ten simulated studies lie in its band."""

    epsilon: Number
    error: Number
    low: Number
    high: Number


class ExpectedLineData(Section):
    """A line of the table to expect, from studies played over made-up people."""

    term: str
    std_error: Annotated[float | None, Meta(description="Where the line is printed; null: in no played study.")]
    without_privacy: Number
    printed: Annotated[float, Meta(description="The part of the played studies that print it.")]
    narrow: Annotated[float, Meta(description="The part in which its error is at most twice that without privacy.")]
    alone: Annotated[
        float | None,
        Meta(
            description="Columns split: what the response's holder can expect of its own columns at the same epsilon; null: nothing."
        ),
    ]
    missing_10: Annotated[
        float | None, Meta(description="The standard error where a tenth of the rows is left out for gaps; null: no row is.")
    ]
    missing_30: Annotated[float | None, Meta(description="The same of three tenths.")]


class PlannedOutlookData(Section):
    """The errors that simulations without data lead one to expect."""

    model: str
    rows: int
    columns: int
    epsilon: Number
    mean: Annotated[float | None, Meta(description="The error of a mean alone; null where there is no such thing.")]
    noise_free: Number
    measure: str
    assumed: str
    worthwhile: Annotated[bool, Meta(description="Whether more than a mean is expected.")]
    nothing_released: Annotated[float | None, Meta(description="The error where nothing is released; null: not known.")]
    points: list[ExpectedErrorData]
    lines: list[ExpectedLineData]


class PlannedAnalysisData(Section):
    """One of several analyses of a plan: the names of its releases and steps begin with its own."""

    name: str
    model: str
    share: Annotated[float, Meta(description="Its share of the budget.")]
    formula: PlannedFormulaData | UnsetType = UNSET
    lines: Annotated[list[ExpectedLineData], Meta(description="Of a study with a table.")] | UnsetType = UNSET
    outlook: Annotated[PlannedOutlookData, Meta(description="With --utility alone.")] | UnsetType = UNSET


class PreviewData(Section):
    """The preview of a plan: what one run on simulated data gave. Nothing of it comes from anybody's data."""

    written: Path
    declared_rows: int
    simulated_rows: Annotated[int, Meta(description="Fewer than declared where there are too many to simulate.")]
    truth: Annotated[str, Meta(description="The law of the simulated data.")]
    differences: Annotated[list[str], Meta(description="What differs between the simulated study and the planned one.")]
    failed: Annotated[str, Meta(description="Why there is no result; empty where there is one.")]
    terms: Annotated[list[TermData], Meta(description="SIMULATED lines of the result.")]


class PlanOutput(Output, tag="unpooled/plan/1"):
    """``unpooled plan``: the releases of a study, and its promise."""

    plan: Hash
    releases: list[PlannedReleaseData]
    statement: StatementData
    notes: list[str]
    formula: PlannedFormulaData | UnsetType = UNSET
    lines: Annotated[list[ExpectedLineData], Meta(description="Of a study with a table.")] | UnsetType = UNSET
    outlook: Annotated[PlannedOutlookData, Meta(description="With --utility alone.")] | UnsetType = UNSET
    analyses: Annotated[list[PlannedAnalysisData], Meta(description="Of a study with several.")] | UnsetType = UNSET
    preview: Annotated[PreviewData, Meta(description="With --preview alone.")] | UnsetType = UNSET


class RunOutput(Output, tag="unpooled/run/1"):
    """``unpooled run``: the file ``result.json`` of the run, after the key ``schema``."""

    plan: Hash
    result: Annotated[
        Any, Meta(description="The result in the model's own form; `unpooled result --json` has one form for every model.")
    ]
    statement: StatementData
    communication: Annotated[dict[str, TrafficData], Meta(description="By the names of the parties.")]


class LinkOutput(Output, tag="unpooled/link/1"):
    """``unpooled link``: the party files of the people whom all parties have."""

    plan: Hash
    ids: Annotated[str, Meta(description="The value of `ids` in a study of the linked rows.")]
    parties: list[Path]
    statement: StatementData


class ClippingData(Section):
    """Shares of the rows and residuals that the fit cut off, each with the standard deviation of its noise."""

    shortened: tuple[float, float]
    clipped: tuple[float, float]
    longest: Annotated[float, Meta(description="The bound on rows, in lengths of a typical row.")]
    clip: Annotated[
        float | None, Meta(description="The bound on residuals, in their standard deviations; null without one.")
    ]
    tail: Annotated[
        tuple[float, float],
        Meta(description="What the intercept got for the residuals beyond the bound, and its standard deviation."),
    ]


class AnalysisData(Section):
    """One of several analyses of a study; the group of each line of the table begins with its name."""

    name: str
    model: str
    failed: Annotated[str, Meta(description="Why it has no result; empty where it has one.")]


class PooledData(Section):
    """The numbers of a meta-analysis; ``fixed`` is the inverse-variance mean and its variance."""

    fixed: tuple[float, float]
    q: float
    q_p_value: float
    i_squared: float
    tau_squared: float
    mean: float
    error: Annotated[float, Meta(description="The standard error of the mean by Hartung and Knapp.")]
    interval: tuple[float, float]
    p_value: float
    predicted: Annotated[
        tuple[float, float] | None, Meta(description="The interval of a new site; null of fewer than three.")
    ]


class MetaAnalysisData(Section):
    """One term of an analysis that was fitted at every site by itself, pooled over the sites."""

    term: str
    confidence: float
    terms: Annotated[list[TermData], Meta(description="The sites by their groups, and the pooled lines.")]
    left_out: Annotated[dict[str, str], Meta(description="The other sites, and why they have no line.")]
    pooled: Annotated[PooledData | None, Meta(description="null where fewer than two sites have a line.")]
    notes: list[str]


class ResultOutput(Output, tag="unpooled/result/1"):
    """``unpooled result``: the table to publish; the keys from ``nobs`` on are there where the model has standard errors."""

    plan: Hash
    model: str
    holds: bool
    statement: Annotated[str, Meta(description="The statement in words.")]
    epsilon: Number
    delta: float
    recomputed: Annotated[bool, Meta(description="Whether the result was worked out anew from the transcript.")]
    terms: Annotated[list[TermData], Meta(description="The table to publish.")]
    predicting: Annotated[list[TermData], Meta(description="The coefficients that predict, one for each level.")]
    analyses: Annotated[list[AnalysisData], Meta(description="Of a study with several, in their order.")] | UnsetType = UNSET
    nobs: int | UnsetType = UNSET
    family: str | UnsetType = UNSET
    response: str | UnsetType = UNSET
    dispersion: Number | UnsetType = UNSET
    levels: Annotated[dict[str, list[str]], Meta(description="The levels of each column.")] | UnsetType = UNSET
    references: Annotated[dict[str, str], Meta(description="The level or class of comparison.")] | UnsetType = UNSET
    coding: str | UnsetType = UNSET
    confidence: Annotated[float, Meta(description="The confidence of the intervals.")] | UnsetType = UNSET
    vcov: (
        Annotated[list[list[float | None]], Meta(description="The covariance of the lines, in their order.")] | UnsetType
    ) = UNSET
    not_determined: Annotated[list[str], Meta(description="The lines that are not printed.")] | UnsetType = UNSET
    notes: (
        Annotated[list[str], Meta(description="What the lines are compared with and assume, and what was cut off.")]
        | UnsetType
    ) = UNSET
    clipping: ClippingData | UnsetType | None = UNSET
    tau_squared: (
        Annotated[float | None, Meta(description="The variance of random constants of sites; null where it is hidden.")]
        | UnsetType
    ) = UNSET
    meta_analyses: (
        Annotated[dict[str, list[MetaAnalysisData]], Meta(description="By the analyses that were fitted apart.")] | UnsetType
    ) = UNSET


class JointData(Section):
    """A chi-squared test of all combinations together."""

    statistic: Number
    degrees: int
    p_value: Number


class ContrastOutput(Output, tag="unpooled/contrast/1"):
    """``unpooled contrast``: combinations of coefficients."""

    plan: Hash
    holds: bool
    confidence: Annotated[float, Meta(description="The confidence of the intervals.")]
    ratio: Annotated[str, Meta(description="The kind of ratio with --exponentiate; otherwise empty.")]
    terms: list[TermData]
    joint: JointData


class SubmodelOutput(Output, tag="unpooled/submodel/1"):
    """``unpooled submodel``: the table of a linear regression on some of its columns, from the same release."""

    plan: Hash
    holds: bool
    columns: Annotated[list[str], Meta(description="The columns of the smaller model.")]
    confidence: Annotated[float, Meta(description="The confidence of the intervals.")]
    nobs: int
    r_squared: float | None
    terms: list[TermData]
    not_determined: Annotated[list[str], Meta(description="The lines that are not printed.")]
    notes: Annotated[list[str], Meta(description="What the lines are compared with and assume.")]


class PredictOutput(Output, tag="unpooled/predict/1"):
    """``unpooled predict``: a line for every new row, its keys as the columns of the CSV."""

    plan: Hash
    holds: bool
    predictions: list[dict[str, str | int | float | bool | None]]


class ProposeOutput(Output, tag="unpooled/propose/1"):
    """``unpooled propose``: the parties in whose inbox the study lies now. It says nothing of what anybody decides."""

    plan: Hash
    laid: list[str]
    away: Annotated[list[str], Meta(description="Parties that did not answer.")]


class ReportOutput(Output, tag="unpooled/report/1"):
    """``unpooled report``: the page that was written."""

    plan: Hash
    holds: bool
    warning: Annotated[str, Meta(description="Empty where there is nothing to warn of.")]
    written: Path


class ReportVerifyOutput(Output, tag="unpooled/report-verify/1"):
    """``unpooled report --verify``: every reply carries its party's signature; otherwise the command ends with an error."""

    verified: bool
    replies: Annotated[dict[str, int], Meta(description="The number of signed replies of each party.")]


class LargestData(Section):
    """The farthest that a release was moved, as a part of its declared bound."""

    unit: str
    party: str
    release: str
    part_of_bound: Number


class AttackData(Section):
    """The share of right answers of an attack; a half is a guess."""

    attack: str
    question: str
    without_noise: Number
    as_released: Number
    allowed: Annotated[float | None, Meta(description="The largest share that the claim allows.")]
    runs: int


class OneRunData(Section):
    """The guesses about the coins of one run, and the epsilons that they refute."""

    canaries: int
    guesses: int
    right: int
    claimed: Number
    audited: Annotated[float, Meta(description="A lower bound on epsilon, whatever the noise is.")]
    as_gaussian: Annotated[float, Meta(description="A lower bound on epsilon, if the noise is Gaussian as claimed.")]
    confidence: float
    refutes: Annotated[bool, Meta(description="Whether a bound that is wrong once in a million is above the claim.")]


class ViolationData(Section):
    """A value that moved where it must not or too far, was not debited, or left a party unreleased."""

    unit: str
    party: str
    where: str
    what: str


class AttainedData(Section):
    """The part of a promise that one person attained who changed at every party at once."""

    promise: str
    epsilon: float
    promised: float


class SourceAttackData(Section):
    """The attack on the query of a party's data, in copies of its tables."""

    party: str
    people: Annotated[int, Meta(description="The number of people who were changed, removed or added.")]
    changes: int
    violations: list[str]
    not_attacked: Annotated[
        str, Meta(description="Why there was no attack, or one without power; empty where it had power.")
    ]


class AuditOutput(Output, tag="unpooled/audit/2"):
    """``unpooled audit``: the findings on made-up data, and on the sources of ``--config``. Exit code 1 where ``passed`` is false."""

    passed: bool
    neighbours: int
    largest: list[LargestData]
    unmeasured: list[str]
    slower: Annotated[list[str], Meta(description="Releases that the pairs of ``--pairs`` move less than they did.")]
    attacks: list[AttackData]
    one_run: Annotated[OneRunData | None, Meta(description="With ``--canaries``.")]
    attained: list[AttainedData]
    sources: list[SourceAttackData]
    violations: list[ViolationData]


class TouredData(Section):
    """A study of the tour."""

    plan: Hash
    statement: StatementData
    bytes_received: int


class DemoOutput(Output, tag="unpooled/demo/1"):
    """``unpooled demo``: the studies of the tour, by their names."""

    studies: dict[str, TouredData]
    report: Path


class PrintedData(Section):
    """An output, and the command that prints it."""

    command: str
    schema: Annotated[str, Meta(description="The name and version, as the output's first key has it.")]


class SchemaOutput(Output, tag="unpooled/schema/1"):
    """``unpooled schema`` without a command: the outputs of all commands."""

    outputs: list[PrintedData]


# --- Evidence --------------------------------------------------------------------------------------------------------------
# The outputs of the commands that write documents for those who sign: ``unpooled dossier``, ``register`` and ``crate``.


class DossierOutput(Output, tag="unpooled/dossier/1"):
    """``unpooled dossier``: the files that were written."""

    plan: Hash
    holds: Annotated[bool, Meta(description="Whether a guarantee holds for the study.")]
    written: list[Path]
    fill: Annotated[int, Meta(description="The number of lines that the reader fills in.")]
    lawyer: Annotated[int, Meta(description="The number of lines that a lawyer decides.")]


class RegisterOutput(Output, tag="unpooled/register/1"):
    """``unpooled register``: the record, and what is left to fill in."""

    plan: Hash
    record: Annotated[dict[str, Any], Meta(description="The record, as the registry's own schema describes it.")]
    fill: Annotated[list[str], Meta(description="The keys of the record whose text has to be filled in.")]
    written: Annotated[str | None, Meta(description="The file that was written; null without --out.")]


class CrateOutput(Output, tag="unpooled/crate/1"):
    """``unpooled crate``: the files that were written."""

    plan: Hash
    holds: Annotated[bool, Meta(description="Whether a guarantee holds for the study.")]
    written: list[Path]
