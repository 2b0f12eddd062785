# Errors and warnings of the command, as conditions with classes.

# The class of each kind of failure. A budget that has no room is a refusal too.
kinds <- list(
  usage = "unpooled_usage",
  refused = "unpooled_refused",
  budget = c("unpooled_budget", "unpooled_refused"),
  failed = "unpooled_failed",
  interrupted = "unpooled_interrupted",
  missing = "unpooled_missing"
)

fail <- function(kind, message, call = NULL, ...) {
  condition <- structure(
    list(message = message, call = call, ...),
    class = c(kinds[[kind]], "unpooled_error", "error", "condition")
  )
  stop(condition)
}

usage <- function(..., call = NULL) fail("usage", paste0(...), call)

warn <- function(type, message, call = NULL) {
  warning(structure(
    list(message = message, call = call, type = type),
    class = c(type, "unpooled_warning", "warning", "condition")
  ))
}

# What the command warned of becomes warnings, and what it said on the way messages.
relay <- function(warnings, call) {
  for (one in warnings) {
    if (identical(one$type, "note")) message(one$message) else warn(one$type, one$message, call)
  }
}
