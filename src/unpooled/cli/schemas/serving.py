"""Requests to ``unpooled serve`` and its answers: one line of JSON for each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from unpooled.cli.schemas.studies import (
    ClippingData,
    Hash,
    JointData,
    Number,
    Output,
    Path,
    PlannedReleaseData,
    Section,
    StatementData,
    TermData,
)

# --- what is asked -------------------------------------------------------------------------------------------------------------


class NumbersData(Section, tag="numbers", tag_field="kind"):
    """A column of numbers with all their bits."""

    values: Annotated[bytes, Meta(description="Little-endian numbers of 8 bytes (IEEE 754); one that is missing is nan.")]


class TextsData(Section, tag="texts", tag_field="kind"):
    """A column of texts; one that is missing is null."""

    values: list[str | None]


class FactorData(Section, tag="factor", tag_field="kind"):
    """A column of levels."""

    levels: list[str]
    codes: Annotated[
        bytes, Meta(description="Little-endian integers of 4 bytes: places in `levels` from 0 on; -1 is missing.")
    ]


Column = NumbersData | TextsData | FactorData
#: Keyword arguments of the Python function or class, by their names.
Arguments = Annotated[
    dict[str, Any],
    Meta(
        description='Arguments of the Python call, by name; an epsilon may be "inf", and a prior may hold saved models and runs.'
    ),
]
Columns = Annotated[dict[str, Column], Meta(description="Columns by name, all of the same length.")]
Rows = Annotated[dict[str, Column], Meta(description="A value for each row: sites, weights, exposure, offset or unit_id.")]


class SavedModel(Section, tag="saved", tag_field="of"):
    """A fitted model or a result in the form of a saved file, as an answer held it."""

    saved: bytes


class RunModel(Section, tag="run", tag_field="of"):
    """The model that a finished run released."""

    run: Path
    analysis: str = ""


Fitted = SavedModel | RunModel


class MemoryBudget(Section, tag="memory", tag_field="of"):
    """A shared budget that the process keeps, by the name that it was given: it ends with the process."""

    name: str


class FileBudget(Section, tag="file", tag_field="of"):
    """A shared budget in a file, which outlives the process. The file is made where there is none."""

    path: Path
    epsilon: float
    delta: float
    unit: str = "record"


#: The shared budget that a call is debited to.
Shared = MemoryBudget | FileBudget
Debited = Annotated[Shared | None, Meta(description="The shared budget that the call is debited to.")]
#: The estimators of columns and rows that a call names by their Python class.
Estimator = Literal[
    "PrideRegressor",
    "PrideClassifier",
    "PrideGLM",
    "PrivateStackingClassifier",
    "PrivateLogisticRegression",
    "PrivateLasso",
    "PrivateLassoClassifier",
    "PrivatePLSRegression",
    "PrivateLinearRegression",
    "PrivateGLM",
]


class HelloCall(Section, tag="hello", tag_field="call"):
    """Ask for the version and the process."""


class FitCall(Section, tag="fit", tag_field="call"):
    """Fit a model to rows that the asker holds."""

    model: Literal["linear", "glm"]
    formula: str
    data: Columns
    arguments: Arguments = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)
    references: Annotated[dict[str, str], Meta(description="The level of each column that others are compared with.")] = (
        field(default_factory=dict)
    )
    against: Annotated[str | None, Meta(description="The class that others are compared with (multinomial).")] = None
    budget: Debited = None


class EstimateCall(Section, tag="estimate", tag_field="call"):
    """Fit an estimator to columns and a response that the asker holds."""

    estimator: Estimator
    data: Columns
    response: Annotated[dict[str, Column], Meta(description="The response by its name, or several of them in their order.")]
    formula: Annotated[str | None, Meta(description="Its right side, where the estimator takes one.")] = None
    arguments: Arguments = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    budget: Debited = None


class PlanCall(Section, tag="plan", tag_field="call"):
    """Ask for the plan of a fit, before there are data."""

    estimator: Estimator
    samples: int
    features: int
    sites: Annotated[dict[str, int], Meta(description="The rows of each of several sites.")] = field(default_factory=dict)
    arguments: Arguments = field(default_factory=dict)


class BudgetCall(Section, tag="budget", tag_field="call"):
    """Make a shared budget that the process keeps, or ask for the state of one."""

    of: Shared | None = None
    epsilon: float | None = None
    delta: float | None = None
    unit: str = "record"


class FittedCall(Section, tag="fitted", tag_field="call"):
    """Ask for what a run's model is."""

    model: Fitted


class SummaryCall(Section, tag="summary", tag_field="call"):
    """Ask for the table of a model."""

    model: Fitted
    arguments: Arguments = field(default_factory=dict)


class ContrastCall(Section, tag="contrast", tag_field="call"):
    """Ask for combinations of coefficients."""

    model: Fitted
    asked: list[str]
    arguments: Arguments = field(default_factory=dict)


class SubmodelCall(Section, tag="submodel", tag_field="call"):
    """Ask for the table of a model of some of the columns, from the same release."""

    model: Fitted
    columns: list[str]
    confidence: float = 0.95


class AnovaCall(Section, tag="anova", tag_field="call"):
    """Ask for a test of every column, or of those that a smaller model leaves out."""

    model: Fitted
    smaller: list[str] | None = None


class PredictCall(Section, tag="predict", tag_field="call"):
    """Ask for predictions of new rows."""

    model: Fitted
    data: Columns
    rows: Rows = field(default_factory=dict)
    times: Annotated[list[float], Meta(description="Where the probability of no event is asked for.")] = field(
        default_factory=list
    )
    scores: Annotated[bool, Meta(description="Whether to answer with the components of the rows.")] = False


class ReleaseCall(Section, tag="release", tag_field="call"):
    """Release a description, a table, a comparison of survival or a treatment effect."""

    function: Literal["describe", "tabulate", "survival", "effect"]
    data: Columns
    arguments: Arguments = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)
    budget: Debited = None


class DiagnoseCall(Section, tag="diagnose", tag_field="call"):
    """Release a diagnosis of a model on rows that the asker holds."""

    model: Fitted
    data: Columns
    response: Column
    arguments: Arguments = field(default_factory=dict)
    rows: Rows = field(default_factory=dict)
    budget: Debited = None


class CommandCall(Section, tag="command", tag_field="call"):
    """Run a command, with `--json`."""

    command: Annotated[list[str], Meta(description='The words after "unpooled", without --json.')]
    folder: Annotated[Path, Meta(description="The folder in which it runs.")]


class ServeRequest(Output, tag="unpooled/serve-request/1"):
    """A line that ``unpooled serve`` reads."""

    id: str | int
    ask: (
        HelloCall
        | FitCall
        | EstimateCall
        | PlanCall
        | BudgetCall
        | FittedCall
        | SummaryCall
        | ContrastCall
        | SubmodelCall
        | AnovaCall
        | PredictCall
        | ReleaseCall
        | DiagnoseCall
        | CommandCall
    )
    words: Annotated[
        Literal["python", "r"], Meta(description="The language whose syntax errors and warnings are to name.")
    ] = "python"


# --- what is answered ----------------------------------------------------------------------------------------------------------


class HelloData(Section, tag="hello", tag_field="answer"):
    """The version and the process."""

    version: str
    process: int


class FittedData(Section, tag="fitted", tag_field="answer"):
    """A fitted model; the keys from ``vcov`` on are there where it has standard errors."""

    model: str
    family: str
    method: str
    nobs: int
    plan: Hash
    holds: bool
    statement: StatementData
    words: Annotated[str, Meta(description="The statement in words.")]
    planned: Annotated[str, Meta(description="The plan in words: what was released, with which noise.")]
    terms: Annotated[list[TermData], Meta(description="The table to publish; without standard errors the coefficients.")]
    saved: Annotated[bytes | None, Meta(description="The model in the form of a saved file; null for a run's.")]
    classes: Annotated[list[str | float], Meta(description="The classes, in the order of their probabilities.")]
    columns: Annotated[list[str], Meta(description="The columns that new rows must have.")]
    curve: Annotated[dict[str, list[float]] | None, Meta(description="The survival curve of all rows, where there is one.")]
    vcov: list[list[float | None]] | UnsetType = UNSET
    response: str | UnsetType = UNSET
    dispersion: Number | UnsetType = UNSET
    levels: dict[str, list[str]] | UnsetType = UNSET
    references: dict[str, str] | UnsetType = UNSET
    coding: str | UnsetType = UNSET
    confidence: float | UnsetType = UNSET
    not_determined: list[str] | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET
    clipping: ClippingData | UnsetType | None = UNSET
    details: (
        Annotated[
            dict[str, dict[str, float | str | None]], Meta(description="Further numbers of the fit, by name and by party.")
        ]
        | UnsetType
    ) = UNSET
    matrices: (
        Annotated[
            dict[str, list[list[float]]], Meta(description="Weights, loadings and rotations of components, a row each.")
        ]
        | UnsetType
    ) = UNSET


class SummaryData(Section, tag="summary", tag_field="answer"):
    """The table of a model."""

    terms: list[TermData]
    confidence: float
    ratio: Annotated[str, Meta(description="The kind of ratio that the estimates are; empty where they are none.")]
    foot: Annotated[list[str], Meta(description="The lines below the table.")]
    not_determined: list[str]
    residual_variance: Number
    r_squared: Number
    r_squared_interval: tuple[float | None, float | None]


class TestsData(Section, tag="tests", tag_field="answer"):
    """Joint tests, each with its name."""

    names: list[str]
    tests: list[JointData]


class SubmodelData(Section, tag="submodel", tag_field="answer"):
    """The table of a smaller model."""

    confidence: float
    nobs: int
    r_squared: float | None
    terms: list[TermData]
    not_determined: list[str]
    notes: list[str]


class ContrastData(Section, tag="contrast", tag_field="answer"):
    """Combinations of coefficients."""

    confidence: float
    ratio: str
    terms: list[TermData]
    joint: JointData


class PredictedData(Section, tag="predicted", tag_field="answer"):
    """Predictions, a number or a label for each new row under the name of what it is."""

    predictions: dict[str, list[str | float | None]]


class ReleasedData(Section, tag="released", tag_field="answer"):
    """The result of a release."""

    kind: str
    nobs: int
    plan: Hash
    holds: bool
    statement: StatementData
    words: str
    planned: str
    text: Annotated[str, Meta(description="The table as Python prints it.")]
    terms: list[TermData]
    curves: Annotated[dict[str, dict[str, list[float | None]]], Meta(description="Curves to draw, by name.")]
    saved: bytes


class PlannedData(Section, tag="planned", tag_field="answer"):
    """The plan of a fit before there are data."""

    plan: Hash
    releases: list[PlannedReleaseData]
    statement: StatementData
    words: str
    notes: list[str]


class SharedBudgetData(Section, tag="budget", tag_field="answer"):
    """The state of a shared budget."""

    name: Annotated[str | None, Meta(description="The name by which the process keeps it; null for one in a file.")]
    epsilon: float
    delta: float
    unit: str
    spent: Annotated[float, Meta(description="The epsilon of everything debited so far, composed, at its delta.")]
    fits: Annotated[int, Meta(description="The number of debits.")]
    process: int


class CommandData(Section, tag="command", tag_field="answer"):
    """The output of a command, and its exit code."""

    code: int
    output: Annotated[Any, Meta(description="As the command's own schema says.")]


#: All answers but errors.
ANSWERS = (
    HelloData,
    FittedData,
    SummaryData,
    TestsData,
    ContrastData,
    SubmodelData,
    PredictedData,
    ReleasedData,
    PlannedData,
    SharedBudgetData,
    CommandData,
)


class FailureData(Section):
    """Why there is no answer. The classes are those of the exit codes of commands, and two of their own."""

    kind: Annotated[
        Literal["usage", "refused", "budget", "failed", "interrupted"],
        Meta(description="usage and refused as the exit codes 2 and 3; budget: refused by a ledger."),
    ]
    code: int
    type: Annotated[str, Meta(description="The name of the Python class.")]
    message: str
    party: str | None
    column: str | None
    release: str | None


class WarningData(Section):
    """A warning, with the name of its class."""

    type: str
    message: str


class ServeOutput(Output, tag="unpooled/serve/1"):
    """A line that ``unpooled serve`` answers: ``ok``, or ``error``. ``id`` is null where the request could not be read."""

    id: str | int | None
    warnings: list[WarningData]
    ok: (
        HelloData
        | FittedData
        | SummaryData
        | TestsData
        | ContrastData
        | SubmodelData
        | PredictedData
        | ReleasedData
        | PlannedData
        | SharedBudgetData
        | CommandData
        | UnsetType
    ) = UNSET
    error: FailureData | UnsetType = UNSET
