# Fits of columns that parties hold, of rows by stacks, and of spectra: pride, stacking, lasso and partial least squares.

# --- what is asked -------------------------------------------------------------------------------------------------------------

# A table of numbers without names of columns has those of as.data.frame: V1, V2, ...
as_frame <- function(x, name = "x") {
  if (is.data.frame(x)) return(x)
  if (is.matrix(x) && (is.numeric(x) || is.logical(x))) return(as.data.frame(x))
  usage(name, " is of class ", class(x)[1], ": give a data frame or a matrix of numbers")
}

# A matrix that stands as one column of a frame, as spectra do, becomes a column for each of its own.
widened <- function(data) {
  wide <- vapply(data, is.matrix, NA)
  if (!any(wide)) return(list(data = data, blocks = list()))
  apart <- Map(function(one, name) {
    if (!is.matrix(one)) return(setNames(data.frame(one, stringsAsFactors = FALSE), name))
    one <- as.data.frame(unclass(one))
    names(one) <- paste0(name, ".", names(one))
    one
  }, unclass(data), names(data))
  list(data = do.call(cbind, unname(apart)), blocks = lapply(apart[wide], names))
}

# Names of columns, in which the name of a matrix stands for all of its columns.
unfolded <- function(names, blocks) {
  unlist(lapply(names, function(one) if (one %in% names(blocks)) blocks[[one]] else one), use.names = FALSE)
}

# A formula's columns where parties hand over columns as they are; NULL for one that makes others.
plain_terms <- function(formula, data) {
  found <- tryCatch(stats::terms(formula, data = data), error = function(e) NULL)
  if (is.null(found) || !is.null(attr(found, "offset")) || attr(found, "intercept") == 0) return(NULL)
  labels <- gsub("^`|`$", "", attr(found, "term.labels"))
  if (all(labels %in% names(data))) labels
}

responses_of <- function(formula) {
  left <- if (length(formula) == 3) formula[[2]]
  if (is.call(left) && identical(left[[1]], as.name("cbind"))) return(all.vars(left))
  left_side(formula)
}

# Features and response of what an R user hands over: a formula and a frame, or x and y.
asked_columns <- function(formula, data, x, y, parties, derives = FALSE) {
  if (is.matrix(formula) || is.data.frame(formula)) {
    if (!is.null(x)) usage("x is given twice: first, and by its name")
    if (!is.null(data)) {
      if (!is.null(y)) usage("y is given twice: second, and by its name")
      y <- data
    }
    x <- formula
    formula <- data <- NULL
  }
  if (!is.null(x)) return(columns_of_x(x, y, formula, data))
  if (is.null(formula) && inherits(data, "unpooled_rows")) {
    return(list(data = data, left = "y", names = union(data$columns, if (is.list(parties)) unlist(parties))))
  }
  if (is.null(formula)) usage("give a formula and data, or x and y")
  if (!is.null(y)) usage("y goes with x: the formula names the response")
  if (is.character(formula)) formula <- stats::as.formula(formula)
  left <- responses_of(formula)
  if (!length(left)) usage("the formula has no left side: write y ~ .")
  if (is.null(data)) usage("give the data, or a study of parties' files: unpooled_study()")
  if (inherits(data, "unpooled_rows")) return(c(list(data = data), shape_of(formula, left, data, parties, derives)))
  if (!is.data.frame(data)) usage("data must be a data frame: the same people are at all parties, in one order")
  if (any(gone <- !left %in% names(data))) usage("there is no column '", left[gone][1], "' in the data")
  response <- data[left]
  rest <- data[setdiff(names(data), left)]
  if (is.list(parties) && "." %in% all.vars(formula)) {
    named <- setdiff(unlist(parties), left)
    if (length(gone <- setdiff(named, names(rest)))) usage("parties names the column '", gone[1], "', which the data do not have")
    rest <- rest[named]
  }
  terms <- plain_terms(formula, rest)
  if (is.null(terms) && !derives) {
    usage(
      "parties hand over columns as they are: name them (y ~ age + dose, or y ~ .), and make others in your data. ",
      "unpooled_lm, unpooled_glm and unpooled_joint take formulas"
    )
  }
  if (is.null(terms)) {
    taken <- if ("." %in% all.vars(formula)) names(rest) else intersect(names(rest), all.vars(formula))
    return(list(data = rest[taken], response = response, left = left, text = right_side(formula), others = names(data)))
  }
  if (!length(terms)) usage("the formula names no column: write y ~ . for all of them")
  list(data = rest[terms], response = response, left = left, others = names(data))
}

columns_of_x <- function(x, y, formula, data) {
  if (!is.null(formula) || !is.null(data)) usage("give a formula and data, or x and y: not both")
  if (is.null(y)) usage("y is missing: the response of each row of x")
  x <- as_frame(x)
  if (inherits(y, "Surv")) {
    y <- unclass(y)
    response <- data.frame(time = y[, "time"], event = y[, "status"])
  } else if (is.matrix(y) || is.data.frame(y)) {
    response <- as_frame(y)
    if (is.matrix(y) && is.null(colnames(y))) names(response) <- paste0("y", seq_along(response))
  } else {
    response <- data.frame(y = y, stringsAsFactors = FALSE)
  }
  if (nrow(x) != nrow(response)) usage("x has ", nrow(x), " rows, and y has ", nrow(response))
  list(data = x, response = response, left = names(response))
}

# Before data: the columns are those that the bounds or the parties name.
shape_of <- function(formula, left, rows, parties, derives) {
  known <- setdiff(union(rows$columns, if (is.list(parties)) unlist(parties)), left)
  if (!length(known)) usage("before data there are no columns yet: name them in bounds or parties, as in bounds = list(age = c(0, 110))")
  frame <- as.data.frame(setNames(rep(list(0), length(known)), known), check.names = FALSE)
  terms <- plain_terms(formula, frame)
  if (is.null(terms) && !derives) usage("parties hand over columns as they are: name them, or write y ~ .")
  list(left = left, names = if (is.null(terms)) intersect(known, all.vars(formula)) else terms, text = if (is.null(terms)) right_side(formula))
}

# --- the fit -------------------------------------------------------------------------------------------------------------------

# The two classes, or several, of a response, and what Python is handed.
response_for <- function(response, family, classes, bounds) {
  if (is.null(classes) && is.list(bounds) && is.character(said <- bounds[[names(response)[1]]])) classes <- said
  one <- response[[1]]
  if (family == "logistic") {
    coded <- coded_classes(one, classes)
    return(list(values = setNames(list(coded$y), names(response)[1]), labels = coded$classes, classes = coded$declared))
  }
  if (family %in% c("multinomial", "ordinal")) {
    levels <- if (!is.null(classes)) as.character(classes) else if (is.factor(one)) levels(droplevels(one)) else sort(unique(as.character(one)))
    if (family == "ordinal" && is.null(classes)) usage("classes of ordered responses are declared from the lowest up: classes = c(\"low\", \"high\")")
    return(list(values = setNames(list(as.character(one)), names(response)[1]), labels = levels, classes = if (!is.null(classes)) I(levels)))
  }
  list(values = as.list(response))
}

fit_system <- function(system, estimator, asked, family, parties, rows, given, bounds, classes, call, budget = NULL, one = TRUE) {
  if (inherits(asked$data, "unpooled_rows")) {
    return(plan_rows(estimator, asked, family, parties, given, bounds, classes, call))
  }
  if (one && length(asked$left) != 1 && family != "cox") usage("there is one response here: unpooled_pls takes several")
  wide <- widened(asked$data)
  told <- response_for(asked$response, family, classes, bounds)
  rows <- do.call(row_columns, c(list(asked$response), rows))
  if (family == "cox" && length(told$values) == 2) {
    rows$event <- column(as.numeric(told$values[[2]]), "event")
    told$values <- told$values[1]
  }
  kept <- names(wide$data)
  known <- declared(kept_bounds(over_blocks(without(bounds, asked$left), wide$blocks), kept, asked$others))
  given <- declared_response(given, asked$left, bounds, told, family)
  given$parties <- parties_of(parties, wide$blocks, asked$left, kept)
  request <- c(
    list("estimate", estimator = estimator, data = columns(wide$data, known$since), caller = call),
    list(response = setNames(Map(column, told$values, names(told$values)), names(told$values))),
    list(arguments = do.call(arguments, c(list(bounds = known$bounds), given))),
    if (!is.null(asked$text)) list(formula = asked$text),
    if (length(rows)) list(rows = rows),
    debit(budget)
  )
  answer <- do.call(ask, request, quote = TRUE)
  fit <- new_fit(answer, call, call$formula, told$labels, known$since)
  fit$estimator <- estimator
  fit$matrices <- lapply(fit$matrices, of_components, fit)
  class(fit) <- c(system, "unpooled_fit")
  fit
}

# Bounds of columns that the data have and the model has not are left out; a name that the data do not have is Python's to refuse.
kept_bounds <- function(bounds, kept, others) {
  if (is.list(bounds) && !is.null(names(bounds))) bounds[names(bounds) %in% kept | !names(bounds) %in% others] else bounds
}

# What is left is no declaration at all where only the response was declared.
without <- function(bounds, left) {
  if (!is.list(bounds)) return(bounds)
  kept <- bounds[setdiff(names(bounds), left)]
  if (length(kept) || !length(bounds)) kept
}

# The bounds of a matrix hold for each of its columns.
over_blocks <- function(bounds, blocks) {
  if (!is.list(bounds) || !any(names(bounds) %in% names(blocks))) return(bounds)
  do.call(c, unname(lapply(names(bounds), function(name) {
    own <- unfolded(name, blocks)
    setNames(rep(bounds[name], length(own)), own)
  })))
}

# The range or the classes of the response may stand among the bounds.
declared_response <- function(given, left, bounds, told, family) {
  if (family %in% c("logistic", "multinomial", "ordinal")) {
    given$classes <- told$classes
    return(given)
  }
  if (is.null(given$y_bounds) && is.list(bounds)) {
    ranges <- unname(bounds[intersect(left[seq_len(if (family == "cox") 1 else length(left))], names(bounds))])
    if (length(ranges)) given$y_bounds <- if (length(ranges) == 1) ranges[[1]] else lapply(ranges, I)
  }
  given
}

parties_of <- function(parties, blocks, left, kept) {
  if (is.null(parties)) return(NULL)
  if (is.numeric(parties) && length(parties) == 1) return(as.integer(parties))
  if (!is.list(parties) || is.null(names(parties)) || any(names(parties) == "")) {
    usage("parties say who holds which columns: list(north = c(\"age\", \"sex\"), lab = \"dose\"), or a number of parties that share them evenly")
  }
  lapply(parties, function(own) intersect(unfolded(setdiff(own, left), blocks), kept))
}

# Weights and loadings with the names of their columns; those of the response with the names of the responses.
of_components <- function(rows, fit) {
  rows <- if (is.list(rows)) do.call(rbind, lapply(rows, as.numeric)) else matrix(as.numeric(rows), ncol = fit$details$components$all)
  names <- if (nrow(rows) == length(fit$columns)) fit$columns else setdiff(unique(fit$terms$group), "")
  dimnames(rows) <- list(if (nrow(rows) == length(names)) names, if (ncol(rows)) paste("comp", seq_len(ncol(rows))))
  rows
}

# --- before data ---------------------------------------------------------------------------------------------------------------

plan_rows <- function(estimator, asked, family, parties, given, bounds, classes, call) {
  rows <- asked$data$rows
  told <- list()
  if (family %in% c("logistic", "multinomial", "ordinal")) {
    if (is.null(classes) && is.list(bounds)) classes <- bounds[[asked$left[1]]]
    if (is.null(classes)) usage("before data the classes are declared: classes = c(\"no\", \"yes\")")
    told$classes <- if (family == "logistic") I(c(0, 1)) else I(as.character(classes))
  }
  known <- declared(without(bounds, asked$left))$bounds
  if (is.list(known)) known <- known[intersect(asked$names, names(known))]
  given <- declared_response(given, asked$left, bounds, told, family)
  given$parties <- parties_of(parties, list(), asked$left, asked$names)
  if (!is.null(asked$text)) given$formula <- asked$text
  several <- length(rows) > 1
  request <- c(
    list("plan", estimator = estimator, samples = sum(rows), features = length(asked$names), caller = call),
    list(arguments = do.call(arguments, c(list(bounds = known), given))),
    if (several) list(sites = as.list(rows))
  )
  as_plan(do.call(ask, request, quote = TRUE))
}

# --- the functions -------------------------------------------------------------------------------------------------------------

# Families of responses by the names that both languages have.
system_family <- function(family, known) {
  if (is.function(family)) family <- family()
  name <- if (inherits(family, "family")) family_name(family) else if (identical(family, "squared") || identical(family, "gaussian")) "linear" else family
  if (identical(name, "binomial")) name <- "logistic"
  if (identical(name, "survival")) name <- "cox"
  if (!is.character(name) || length(name) != 1 || !name %in% known) {
    usage("there is no family ", if (is.character(name)) paste0("'", name[1], "' "), "here: choose one of ", paste(known, collapse = ", "))
  }
  name
}

unpooled_pride <- function(formula = NULL, data = NULL, parties = 2, family = stats::gaussian(), x = NULL, y = NULL,
                           study = NULL, epsilon = 1, delta = NULL, bounds = NULL, y_bounds = NULL, classes = NULL,
                           prior = NULL, budget = NULL, random_state = NULL, ...) {
  call <- match.call()
  name <- system_family(family, c(
    "linear", "huber", "logistic", "multinomial", "ordinal", "poisson", "gamma", "negative-binomial", "quantile", "cox"
  ))
  if (!is.null(study)) {
    own <- if (name %in% c("linear", "logistic")) list(task = c(linear = "regression", logistic = "classification")[[name]]) else list(family = name)
    return(system_study("pride", formula, study, epsilon, call, prior, budget, c(own, if (!is.null(classes)) list(classes = I(as.character(classes)))), ...))
  }
  asked <- asked_columns(formula, data, x, y, parties)
  estimator <- switch(name, linear = "PrideRegressor", logistic = "PrideClassifier", "PrideGLM")
  given <- list(
    family = if (estimator == "PrideGLM") name, epsilon = epsilon, delta = delta, y_bounds = y_bounds, prior = prior_of(prior),
    random_state = random_state, ...
  )
  fit_system("unpooled_pride", estimator, asked, name, parties, list(), given, bounds, classes, call, budget)
}

unpooled_stacking <- function(formula = NULL, data = NULL, parties = NULL, sites = NULL, x = NULL, y = NULL,
                              split = c("features", "samples"), study = NULL, epsilon = 1, delta = NULL, bounds = NULL,
                              norm = NULL, classes = NULL, prior = NULL, budget = NULL, random_state = NULL, ...) {
  call <- match.call()
  asks <- !missing(split)
  split <- match.arg(split)
  if (!is.null(study)) {
    return(system_study("stacking", formula, study, epsilon, call, prior, budget, list(
      split = split, classes = if (!is.null(classes)) I(as.character(classes))
    ), ...))
  }
  # Columns of parties are stacked. Rows are pooled into one model, which is better than a stack of models of parts of them.
  stacked <- !is.null(parties) || asks
  if (stacked && split == "features" && is.null(parties)) usage("say who holds which columns: parties = list(north = c(\"age\", \"sex\"), lab = \"dose\")")
  if (stacked && split == "features" && !is.null(sites)) {
    usage("parties hold columns, and sites hold rows: leave one out, or say split = \"samples\" for a stack of the sites' models")
  }
  asked <- asked_columns(formula, data, x, y, parties, derives = !stacked)
  if (is.null(classes) && is.list(bounds) && is.character(said <- bounds[[asked$left[1]]])) classes <- said
  several <- length(classes) > 2 || is.null(classes) && !is.null(asked$response) && length(unique(stats::na.omit(asked$response[[1]]))) > 2
  if (is.character(sites) && length(sites) == 1 && is.data.frame(data)) {
    if (!sites %in% names(data)) usage("sites names the column '", sites, "', which the data do not have")
    if (sites %in% names(asked$data)) asked$data <- asked$data[setdiff(names(asked$data), sites)]
    sites <- as.character(data[[sites]])
  }
  given <- list(
    split = if (stacked) split, epsilon = epsilon, delta = delta, norm = norm, prior = weights_of(prior), random_state = random_state, ...
  )
  fit_system(
    "unpooled_stacking", if (stacked) "PrivateStackingClassifier" else "PrivateLogisticRegression", asked,
    if (several) "multinomial" else "logistic", parties, list(sites = sites), given, bounds, classes, call, budget
  )
}

# Weights that an earlier fit released: the fit itself, or numbers by party.
weights_of <- function(prior) {
  if (is.null(prior)) return(NULL)
  if (inherits(prior, "unpooled_fit")) return(model_of(prior))
  if (is.list(prior)) lapply(prior, I) else I(prior)
}

unpooled_lasso <- function(formula = NULL, data = NULL, parties = 2, family = stats::gaussian(), x = NULL, y = NULL,
                           study = NULL, radius = NULL, epsilon = 1, delta = NULL, bounds = NULL, y_bounds = NULL,
                           classes = NULL, prior = NULL, budget = NULL, random_state = NULL, ...) {
  call <- match.call()
  name <- system_family(family, c("linear", "logistic"))
  if (!is.null(study)) {
    left <- response_of_study(formula)
    own <- list(loss = if (name == "logistic") "logistic", radius_in_half_ranges = radius)
    if (name == "linear") {
      if (is.null(y_bounds)) usage("a study declares the range of the response: y_bounds = c(-5, 5), symmetric about 0")
      if (y_bounds[1] != -y_bounds[2]) usage("a study bounds the response about 0: centre it at every party, and give y_bounds = c(-b, b)")
      own$response_bound <- y_bounds[2]
    }
    return(system_study("lasso", formula, study, epsilon, call, prior, budget, own, ...))
  }
  asked <- asked_columns(formula, data, x, y, parties)
  given <- list(radius = radius, epsilon = epsilon, delta = delta, y_bounds = y_bounds, prior = prior_of(prior), random_state = random_state, ...)
  estimator <- if (name == "linear") "PrivateLasso" else "PrivateLassoClassifier"
  fit_system("unpooled_lasso", estimator, asked, name, parties, list(), given, bounds, classes, call, budget)
}

unpooled_pls <- function(formula = NULL, data = NULL, n_components = "cv", sites = NULL, x = NULL, y = NULL, study = NULL,
                         epsilon = 1, delta = NULL, bounds = NULL, norm = NULL, y_bounds = NULL, basis = "dct",
                         basis_size = 20, reference = NULL, prior = NULL, unit_id = NULL, budget = NULL,
                         random_state = NULL, ...) {
  call <- match.call()
  if (!is.null(study)) {
    return(system_study("pls", formula, study, epsilon, call, prior, budget, list(
      n_components = n_components, norm = norm, basis_size = basis_size, basis = basis
    ), ...))
  }
  asked <- asked_columns(formula, data, x, y, NULL)
  per_row <- lapply(list(sites = sites, unit_id = unit_id), function(one) {
    if (is.character(one) && length(one) == 1 && is.data.frame(data) && one %in% names(data)) data[[one]] else one
  })
  taken <- unlist(Filter(function(one) is.character(one) && length(one) == 1, list(sites, unit_id)))
  if (is.data.frame(asked$data)) asked$data <- asked$data[setdiff(names(asked$data), taken)]
  given <- list(
    n_components = n_components, basis = basis, basis_size = basis_size, reference = reference, epsilon = epsilon, delta = delta,
    norm = norm, y_bounds = y_bounds, prior = prior_of(prior), random_state = random_state, ...
  )
  fit_system("unpooled_pls", "PrivatePLSRegression", asked, "linear", NULL, per_row, given, bounds, NULL, call, budget, one = FALSE)
}

response_of_study <- function(formula) {
  if (is.character(formula)) formula <- stats::as.formula(formula)
  left <- responses_of(formula)
  if (!length(left) || !identical(all.vars(formula[[length(formula)]]), ".")) {
    usage("a study has the columns of its cards: write ", c(left, "y")[1], " ~ .")
  }
  left
}

# A study of parties' own files: it has the columns of their cards.
system_study <- function(model, formula, study, epsilon, call, prior, budget, own, ...) {
  own_ledgers(budget)
  apart <- intersect(names(call), c("data", "x", "y", "parties", "sites", "delta", "bounds", "reference", "unit_id", "random_state"))
  if (length(apart)) {
    usage("a study has its own columns, parties and promise, on cards and in its file: leave ", apart[1], " out, or write it into ", as_study(study)$file)
  }
  if (is.null(formula)) return(fit_study(model, NULL, study, epsilon, call, prior, ...))
  left <- response_of_study(formula)
  own$response <- if (length(left) > 1) I(left) else left
  do.call(fit_study, c(list(model, NULL, study, epsilon, call, prior), own, list(...)), quote = TRUE)
}
