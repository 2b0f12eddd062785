"""Private record linkage: which people several parties have in common, found without showing anybody an id it did not hold."""

from unpooled.linkage.coordinator import coordinate
from unpooled.linkage.party import STEPS, check
from unpooled.linkage.plan import LinkResult, compile_plan, render
from unpooled.protocol.registry import Model, ResultReading

#: Not a row of the registry of models: it releases nothing, has no epsilon and predicts nothing. A study of it says ``model = "link"``.
MODEL = Model(
    "link",
    compile_plan,
    STEPS,
    coordinate,
    ResultReading(render=render, types=(LinkResult,)),
    check=check,
    says="which people all parties have in common",
)
