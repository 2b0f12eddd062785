# Fits: to rows that the session holds, or to a study of parties' own files.

# Python's name of a family of responses.
family_name <- function(family) {
  if (is.character(family) && length(family) == 1) {
    known <- c("linear", "logistic", "poisson", "gamma", "negative-binomial", "multinomial", "survival")
    if (family %in% known) return(family)
    family <- switch(family,
      gaussian = stats::gaussian(), binomial = stats::binomial(), quasipoisson = stats::quasipoisson(),
      Gamma = stats::Gamma(link = "log"),
      return(family) # which the command refuses, with the family that is meant
    )
  }
  if (is.function(family)) family <- family()
  if (!inherits(family, "family")) usage("family is a family of R, such as binomial(), or a name, such as \"multinomial\"")
  name <- sub("^Negative Binomial.*", "Negative Binomial", family$family)
  names <- c(
    gaussian = "linear", binomial = "logistic", poisson = "poisson", quasipoisson = "poisson", Gamma = "gamma",
    "Negative Binomial" = "negative-binomial"
  )
  links <- c(gaussian = "identity", binomial = "logit", poisson = "log", quasipoisson = "log", Gamma = "log", "Negative Binomial" = "log")
  if (!name %in% names(names)) usage("unpooled fits no family ", name, ": choose one of ", paste(names(names), collapse = ", "))
  if (family$link != links[[name]]) {
    usage("the link of ", name, " is ", links[[name]], " here: write ", name, "(link = \"", links[[name]], "\")")
  }
  names[[name]]
}

# Sites as rows of one frame, and the name of each row's site.
stacked <- function(data, sites) {
  if (is.data.frame(data) || is.null(data)) return(list(data = data, sites = sites))
  if (!is.list(data) || is.null(names(data)) || !all(vapply(data, is.data.frame, NA))) {
    usage("data must be a data frame, or a list with a data frame for each site")
  }
  if (!is.null(sites)) usage("the data are a list of sites already: leave sites out")
  names <- names(data[[1]])
  for (site in names(data)) {
    if (!setequal(names, names(data[[site]]))) usage("site '", site, "' has other columns than the first one")
  }
  list(
    data = do.call(rbind, unname(lapply(data, function(one) one[names]))),
    sites = rep(names(data), vapply(data, nrow, 1L))
  )
}

# Arguments that have a value for each row, given as a column's name or as the values.
row_columns <- function(data, ...) {
  given <- Filter(Negate(is.null), list(...))
  found <- lapply(names(given), function(name) {
    one <- given[[name]]
    if (is.character(one) && length(one) == 1 && nrow(data) != 1) {
      if (!one %in% names(data)) usage(name, " names the column '", one, "', which the data do not have")
      one <- data[[one]]
    }
    if (length(one) != nrow(data)) usage(name, " has ", length(one), " values, and the data have ", nrow(data), " rows")
    column(if (name == "sites") as.character(one) else one, name)
  })
  setNames(found, names(given))
}

# A response with two classes as 0 and 1, the first of which is compared with, as in R. Classes that are read off the data are 1 and 2, so
# that Python, to which 0 and 1 are declared by themselves, reads them off too, and says so.
coded_classes <- function(y, classes) {
  if (is.null(classes) && is.logical(y)) classes <- c(FALSE, TRUE) # the type declares them
  if (is.null(classes) && is.numeric(y) && all(y[!is.na(y)] %in% 0:1)) classes <- c(0, 1)
  if (!is.null(classes)) {
    if (length(classes) != 2) usage("classes are the two values of the response, the first of which is compared with")
    codes <- match(as.character(y), as.character(classes)) - 1
    if (any(is.na(codes) & !is.na(y))) usage("the response holds a label that is neither of the declared classes")
    return(list(y = codes, classes = as.character(classes), declared = I(c(0, 1))))
  }
  levels <- if (is.factor(y)) levels(droplevels(y)) else sort(unique(as.character(y[!is.na(y)])))
  if (length(levels) != 2) usage("a logistic model has a response of two classes; family = \"multinomial\" has several")
  list(y = match(as.character(y), levels), classes = levels, declared = NULL)
}

# Levels are compared with a factor's first one where the data say which they are, as in R.
references <- function(data, text, bounds) {
  if (!is.null(bounds)) return(NULL)
  factors <- names(data)[vapply(data, is.factor, NA)]
  chosen <- factors[!vapply(factors, function(name) grepl(paste0("C\\(`?\\Q", name, "\\E`?,\\s*ref"), text, perl = TRUE), NA)]
  found <- lapply(data[chosen], function(x) levels(droplevels(x))[1])
  if (length(found)) found
}

fit_rows <- function(model, formula, data, sites, bounds, classes, rows, given, call, budget = NULL) {
  if (inherits(data, "unpooled_rows")) return(plan_formula(model, formula, data, bounds, classes, given, call))
  if (is.null(data)) usage("give the data, or a study of parties' files: unpooled_study()", call = call)
  held <- stacked(data, sites)
  data <- held$data
  text <- formula_text(formula)
  left <- left_side(formula)
  if (!length(left)) usage("the formula has no left side: write y ~ age", call = call)
  if (any(gone <- !left %in% names(data))) usage("there is no column '", left[gone][1], "' in the data", call = call)
  family <- given$family
  labels <- NULL
  if (isTRUE(family %in% c("logistic", "multinomial")) && left %in% names(bounds)) { # classes among the bounds of all columns
    if (is.null(classes)) classes <- bounds[[left]]
    bounds <- without(bounds, left)
  }
  known <- declared(bounds)
  if (identical(family, "logistic")) {
    coded <- coded_classes(data[[left]], classes)
    data[[left]] <- coded$y
    given$classes <- coded$declared
    labels <- coded$classes
  } else if (identical(family, "multinomial")) {
    data[[left]] <- as.character(data[[left]])
    labels <- if (is.null(classes)) sort(unique(data[[left]])) else as.character(classes)
    if (!is.null(classes)) given$classes <- I(labels)
  }
  per_row <- do.call(row_columns, c(list(data, sites = held$sites), rows))
  asked <- c(
    list("fit", model = model, formula = text, data = columns(data[wanted(formula, data)], known$since), caller = call),
    list(arguments = do.call(arguments, c(list(bounds = known$bounds), given))),
    if (length(per_row)) list(rows = per_row),
    if (length(compared <- references(data[wanted(formula, data)], text, bounds))) list(references = compared),
    if (identical(family, "multinomial")) list(against = labels[1]),
    debit(budget)
  )
  answer <- do.call(ask, asked, quote = TRUE)
  new_fit(answer, call, formula, labels, known$since)
}

# The columns that go over the pipe: those that the formula names, or all where it says `.` (or is a text).
wanted <- function(formula, data) {
  if (is.character(formula)) return(names(data))
  named <- all.vars(formula)
  if ("." %in% named) names(data) else intersect(names(data), named)
}

new_fit <- function(answer, call, formula, classes = NULL, since = list(), run = NULL) {
  answer$terms <- terms_frame(answer$terms)
  answer$answer <- NULL
  if (!is.null(answer$vcov)) {
    answer$vcov <- matrix(as.numeric(unlist(answer$vcov)), length(answer$vcov), dimnames = rep(list(term_names(answer$terms)), 2))
  }
  answer$statement$words <- answer$words
  answer$words <- NULL
  if (is.null(classes) && length(answer$classes)) classes <- as.character(answer$classes)
  answer$labels <- classes
  answer$since <- since
  answer$run <- run
  answer$call <- call
  answer$formula <- formula
  class <- switch(answer$family, linear = "unpooled_lm", survival = "unpooled_surv", "unpooled_glm")
  structure(answer, class = c(class, "unpooled_fit"))
}

term_names <- function(terms) ifelse(terms$group == "", terms$term, paste0(terms$group, ": ", terms$term))

# A fit as the command knows it: its saved form, or the run that it came from.
model_of <- function(fit) {
  if (!inherits(fit, "unpooled_fit")) usage("give a fit of this package, such as one of unpooled_lm, or of unpooled_result")
  if (is.null(fit$run)) list(of = "saved", saved = fit$saved) else c(list(of = "run"), fit$run)
}

unpooled_lm <- function(formula, data = NULL, sites = NULL, study = NULL, epsilon = 1, delta = NULL, bounds = NULL,
                        y_bounds = NULL, missing = NULL, prior = NULL, weights = NULL, unit_id = NULL, budget = NULL,
                        random_state = NULL, ...) {
  call <- match.call()
  if (!is.null(study)) own_ledgers(budget)
  if (!is.null(study)) return(fit_study("bayes", formula, study, epsilon, call, prior, ...))
  fit_rows("linear", formula, data, sites, bounds, NULL, list(weights = weights, unit_id = unit_id), list(
    epsilon = epsilon, delta = delta, y_bounds = y_bounds, missing = missing, prior = prior_of(prior),
    random_state = random_state, ...
  ), call, budget)
}

# A study is debited to the ledgers of its parties.
own_ledgers <- function(budget) {
  if (!is.null(budget)) usage("a study is debited to the ledgers of its parties: leave budget out")
}

# What a fit of a formula would release, before there are data.
plan_formula <- function(model, formula, rows, bounds, classes, given, call) {
  asked <- list(data = rows, left = left_side(formula), text = right_side(formula), names = setdiff(rows$columns, left_side(formula)))
  family <- if (is.null(given$family)) "linear" else given$family
  if (!length(asked$names)) usage("before data the columns are those of bounds: bounds = list(age = c(0, 110))", call = call)
  plan_rows(if (model == "linear") "PrivateLinearRegression" else "PrivateGLM", asked, family, given$parties, given, bounds, classes, call)
}

unpooled_glm <- function(formula, family = stats::binomial(), data = NULL, sites = NULL, study = NULL, epsilon = 1,
                         delta = NULL, bounds = NULL, y_bounds = NULL, classes = NULL, missing = NULL, prior = NULL,
                         weights = NULL, exposure = NULL, offset = NULL, unit_id = NULL, budget = NULL,
                         random_state = NULL, ...) {
  call <- match.call()
  name <- family_name(family)
  if (!is.null(study)) own_ledgers(budget)
  if (!is.null(study)) return(fit_study("glm", formula, study, epsilon, call, prior, family = name, ...))
  rows <- list(weights = weights, unit_id = unit_id)
  given <- list(
    epsilon = epsilon, delta = delta, y_bounds = y_bounds, missing = missing, prior = prior_of(prior),
    random_state = random_state, ...
  )
  if (name == "linear") {
    if (!is.null(exposure) || !is.null(offset)) usage("a linear model has no exposure and no offset: subtract the offset from the response")
    return(fit_rows("linear", formula, data, sites, bounds, NULL, rows, given, call, budget))
  }
  rows <- c(rows, list(exposure = exposure, offset = offset))
  fit_rows("glm", formula, data, sites, bounds, classes, rows, c(list(family = name), given), call, budget)
}

unpooled_surv <- function(formula, data = NULL, sites = NULL, study = NULL, epsilon = 1, delta = NULL, bounds = NULL,
                          y_bounds = NULL, cuts = NULL, missing = NULL, prior = NULL, weights = NULL, unit_id = NULL,
                          budget = NULL, random_state = NULL, ...) {
  call <- match.call()
  if (!is.null(study)) own_ledgers(budget)
  if (!is.null(study)) return(fit_study("glm", formula, study, epsilon, call, prior, family = "survival", cuts = cuts, ...))
  fit_rows("glm", formula, data, sites, bounds, NULL, list(weights = weights, unit_id = unit_id), list(
    family = "survival", epsilon = epsilon, delta = delta, y_bounds = y_bounds, cuts = cuts, missing = missing,
    prior = prior_of(prior), random_state = random_state, ...
  ), call, budget)
}

unpooled_joint <- function(formula = NULL, data, parties, epsilon = 1, delta = NULL, bounds, y_bounds = NULL,
                           response_at = NULL, helpers = 1, prior = NULL, budget = NULL, random_state = NULL, ...) {
  call <- match.call()
  if (is.null(formula)) {
    if (!is.null(prior)) usage("a description has no prior: give a formula")
    return(unpooled_describe(data, bounds,
      parties = parties, epsilon = epsilon, delta = delta, helpers = helpers, budget = budget, random_state = random_state, ...
    ))
  }
  left <- left_side(formula)
  holder <- names(parties)[vapply(parties, function(own) any(left %in% own), NA)]
  if (is.null(response_at) && length(holder) == 1) response_at <- holder
  held <- lapply(parties, setdiff, left)
  fit_rows("linear", formula, data, NULL, bounds[setdiff(names(bounds), left)], NULL, list(), list(
    epsilon = epsilon, delta = delta, y_bounds = if (is.null(y_bounds)) bounds[[left]] else y_bounds, parties = held,
    response_at = response_at, helpers = helpers, prior = prior_of(prior), random_state = random_state, ...
  ), call, budget)
}
