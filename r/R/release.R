# Descriptions, tables and diagnoses: each is one release.

new_release <- function(answer, call) {
  answer$terms <- terms_frame(answer$terms)
  answer$statement$words <- answer$words
  answer$words <- NULL
  answer$call <- call
  structure(answer, class = "unpooled_release")
}

release <- function(name, data, sites, bounds, rows, given, call, keep = NULL, budget = NULL) {
  held <- stacked(data, sites)
  known <- declared(bounds)
  keep <- if (is.null(keep)) names(known$bounds) else keep
  data <- if (length(keep)) held$data[intersect(names(held$data), keep)] else held$data
  if (length(gone <- setdiff(keep, names(data)))) usage("there is no column '", gone[1], "' in the data", call = call)
  per_row <- do.call(row_columns, c(list(held$data, sites = held$sites), rows))
  asked <- c(
    list("release", `function` = name, data = columns(data, known$since), caller = call),
    list(arguments = do.call(arguments, c(list(bounds = known$bounds), given))),
    if (length(per_row)) list(rows = per_row),
    debit(budget)
  )
  new_release(do.call(ask, asked, quote = TRUE), call)
}

unpooled_describe <- function(data, bounds = NULL, sites = NULL, by = NULL, epsilon = 1, delta = NULL, unit_id = NULL,
                              budget = NULL, random_state = NULL, ...) {
  call <- match.call()
  release("describe", data, sites, bounds, list(unit_id = unit_id), list(
    by = by, epsilon = epsilon, delta = delta, random_state = random_state, ...
  ), call, budget = budget)
}

unpooled_tabulate <- function(data, columns, bounds = NULL, sites = NULL, cuts = NULL, totals = NULL, epsilon = 1,
                              delta = NULL, unit_id = NULL, budget = NULL, random_state = NULL, ...) {
  call <- match.call()
  if (is.list(bounds)) bounds <- bounds[intersect(names(bounds), columns)]
  release("tabulate", data, sites, bounds, list(unit_id = unit_id), list(
    columns = columns, cuts = if (is.null(cuts)) NULL else as.list(cuts), totals = if (is.null(totals)) NULL else as.list(totals),
    epsilon = epsilon, delta = delta, random_state = random_state, ...
  ), call, columns, budget)
}

unpooled_effect <- function(data, treatment, outcome, covariates = ".", bounds, sites = NULL, propensity = NULL,
                            estimator = c("auto", "aipw", "iptw", "g-formula", "partial"),
                            estimand = c("auto", "ATE", "ATT", "ATO"),
                            family = "linear", event = NULL, horizon = NULL, cuts = NULL, epsilon = 1, delta = NULL,
                            prior = NULL, unit_id = NULL, budget = NULL, random_state = NULL, ...) {
  call <- match.call()
  name <- family_name(family)
  given <- list(
    treatment = treatment, outcome = outcome, covariates = covariate_text(covariates), propensity = covariate_text(propensity),
    estimator = match.arg(estimator), estimand = match.arg(estimand), family = name, event = event, horizon = horizon,
    cuts = cuts, prior = prior_of(prior), epsilon = epsilon, delta = delta, random_state = random_state, ...
  )
  release("effect", data, sites, bounds, list(unit_id = unit_id), given, call, budget = budget)
}

# What is adjusted for: names of columns, or the right side of a formula.
covariate_text <- function(x) {
  if (inherits(x, "formula")) right_side(x) else if (length(x) > 1) I(x) else x
}

unpooled_diagnose <- function(fit, data, response, sites = NULL, epsilon = 1, delta = NULL, y_bounds = NULL,
                              budget = NULL, random_state = NULL, ...) {
  call <- match.call()
  held <- stacked(data, sites)
  if (is.character(response) && length(response) == 1) {
    if (!response %in% names(held$data)) usage("there is no column '", response, "' in the data")
    response <- held$data[[response]]
  }
  if (length(fit$labels) && identical(fit$family, "logistic") && is.null(fit$run)) {
    response <- as.numeric(fit$classes)[match(as.character(response), fit$labels)]
  }
  per_row <- row_columns(held$data, sites = held$sites)
  asked <- c(
    list("diagnose", model = model_of(fit), data = columns(held$data[intersect(fit$columns, names(held$data))], fit$since)),
    list(response = column(response, "response"), caller = call),
    list(arguments = arguments(epsilon = epsilon, delta = delta, y_bounds = y_bounds, random_state = random_state, ...)),
    if (length(per_row)) list(rows = per_row),
    debit(budget)
  )
  new_release(do.call(ask, asked, quote = TRUE), call)
}

print.unpooled_release <- function(x, ...) {
  if (!is.null(x$text)) {
    cat(x$text, "\n", sep = "")
  } else if (!nrow(x$terms)) {
    cat("Readers receive nothing of this result: its coefficients stay at the parties, who predict in a study of their own.\n")
  } else {
    shown <- x$terms[c("term", "estimate", "std_error", "conf_low", "conf_high")]
    shown$term <- term_names(x$terms)
    print(shown, row.names = FALSE, digits = 5)
  }
  cat("\n")
  say_statement(x$statement)
  invisible(x)
}

tidy.unpooled_release <- function(x, ...) {
  broom_names(x$terms)
}

glance.unpooled_release <- function(x, ...) {
  data.frame(
    kind = x$kind, nobs = if (is.null(x$nobs)) NA else x$nobs, epsilon = given(x$statement$epsilon),
    delta = given(x$statement$delta), holds = x$holds, plan = x$plan
  )
}

given <- function(x) if (is.null(x)) NA_real_ else x
