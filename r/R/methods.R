# Methods of fits.

# The statement as a table prints it: what holds, and the sentences that say how far.
say_statement <- function(statement, whole = FALSE) {
  lines <- strsplit(statement_words(statement), "\n", fixed = TRUE)[[1]]
  if (!whole) lines <- lines[seq_len(min(length(lines), if (isTRUE(statement$holds)) 3 else 1))]
  for (line in lines) cat(strwrap(line, exdent = 2), sep = "\n")
}

statement_words <- function(statement) {
  if (!is.null(statement$words)) return(statement$words)
  paste(c(statement$headline, statement$reading[nzchar(statement$reading)]), collapse = "\n")
}

unpooled_statement <- function(x) {
  structure(x$statement, class = "unpooled_statement")
}

print.unpooled_statement <- function(x, ...) {
  say_statement(unclass(x), whole = TRUE)
  invisible(x)
}

coef.unpooled_fit <- function(object, ...) {
  terms <- object$terms[object$terms$group != "Kaplan-Meier", ]
  setNames(terms$estimate, term_names(terms))
}

vcov.unpooled_fit <- function(object, ...) {
  needs_errors(object)
  object$vcov
}

# Why a fit has no standard errors; NULL where it has.
no_errors <- function(object) {
  if (!is.null(object$vcov)) return(NULL)
  if (!inherits(object, SYSTEMS)) return(paste0("method '", object$method, "' released no second moments, so there are no standard errors"))
  paste0(
    class(object)[1], " has no standard errors here",
    if (inherits(object, "unpooled_stacking")) ": with a delta, and rows of one or several sites, it fits by rounds, which have them"
  )
}

SYSTEMS <- c("unpooled_pride", "unpooled_stacking", "unpooled_lasso", "unpooled_pls")

needs_errors <- function(object, what = "covariance and intervals need them", call = sys.call(-1)) {
  why <- no_errors(object)
  if (!is.null(why)) usage(why, ", and ", what, ". unpooled_lm and unpooled_glm have them, of rows and of formulas", call = call)
}

# Exponentiated coefficients are ratios where the response has a log or a log odds; elsewhere they mean nothing.
needs_ratios <- function(object, exponentiate, call = sys.call(-1)) {
  if (!isTRUE(exponentiate)) return(invisible())
  if (object$family %in% c("linear", "squared", "huber", "quantile")) {
    usage("exp() of a coefficient means nothing in a model of family ", object$family, ": its link is the identity. Leave exponentiate out", call = call)
  }
  needs_errors(object, "a ratio without them says nothing of how sure it is. exp(coef(fit)) are the ratios alone", call)
}

confint.unpooled_fit <- function(object, parm, level = 0.95, ...) {
  found <- coef(object)
  half <- qnorm(0.5 + level / 2) * sqrt(diag(vcov(object)))
  ends <- cbind(found - half, found + half)
  sides <- 100 * c((1 - level) / 2, (1 + level) / 2)
  dimnames(ends) <- list(names(found), paste(format(sides, trim = TRUE, digits = 3), "%"))
  if (missing(parm)) ends else ends[parm, , drop = FALSE]
}

nobs.unpooled_fit <- function(object, ...) object$nobs

formula.unpooled_fit <- function(x, ...) x$formula

print.unpooled_fit <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  cat("\nCall:  ", paste(deparse(x$call), collapse = "\n"), "\n\n", sep = "")
  cat("Coefficients:\n")
  print(coef(x), digits = digits)
  cat("\nn = ", x$nobs, ", family ", x$family, ", method ", x$method, "\n", sep = "")
  say_details(x$details)
  if (inherits(x, "unpooled_pride")) {
    cat(strwrap("What crosses between the parties is private. The coefficients and predictions here are computed from raw data and would stay with the parties: show them to nobody who may not see their data.", exdent = 2), sep = "\n")
  }
  cat("\n")
  say_statement(x$statement)
  invisible(x)
}

# Further numbers of a fit: penalties and shares of parties, numbers of components.
say_details <- function(details) {
  for (name in names(details)) {
    one <- unlist(details[[name]])
    if (is.numeric(one)) one <- format(one, digits = 4, trim = TRUE)
    said <- if (identical(names(one), "all")) unname(one) else paste(names(one), one, collapse = ", ")
    cat(strwrap(paste0(name, ": ", said), exdent = 2), sep = "\n")
  }
}

# A table of the command, whose levels and classes are compared with what the fit compares them with.
table_arguments <- function(object, level, reference, against, exponentiate, ...) {
  compared <- as.list(object$references)
  response <- setdiff(names(compared), names(object$levels))
  levels <- compared[setdiff(names(compared), response)]
  for (name in names(reference)) levels[[name]] <- as.character(reference[[name]])
  if (is.null(against) && length(response)) against <- compared[[response]]
  arguments(
    confidence = level, references = if (length(levels)) levels, against = against, exponentiate = if (exponentiate) TRUE, ...
  )
}

summary.unpooled_fit <- function(object, level = 0.95, exponentiate = FALSE, reference = NULL, against = NULL,
                                 adjust = NULL, ...) {
  needs_ratios(object, exponentiate)
  if (is.null(object$vcov)) {
    found <- list(terms = object$terms, confidence = level, ratio = "", foot = character(), residual_variance = NA, r_squared = NA)
  } else {
    found <- ask("summary", model = model_of(object), arguments = table_arguments(
      object, level, reference, against, exponentiate, adjust = adjust
    ), caller = match.call())
    found$terms <- terms_frame(found$terms)
  }
  terms <- found$terms[found$terms$group != "Kaplan-Meier", ]
  found$coefficients <- cbind(
    Estimate = terms$estimate, `Std. Error` = terms$std_error, Privacy = terms$privacy, `z value` = terms$statistic,
    `Pr(>|z|)` = terms$p_value
  )
  rownames(found$coefficients) <- term_names(terms)
  found$credible <- any(!is.na(terms$std_error)) && all(is.na(terms$statistic))
  if (found$credible) { # of a posterior: no tests, and nobody knows what privacy adds
    found$coefficients <- cbind(Estimate = terms$estimate, Deviation = terms$std_error, lower = terms$conf_low, upper = terms$conf_high)
    rownames(found$coefficients) <- term_names(terms)
  }
  found$conf.int <- cbind(terms$conf_low, terms$conf_high)
  dimnames(found$conf.int) <- list(term_names(terms), c("lower", "upper"))
  found$why <- no_errors(object)
  structure(c(found, object[c("call", "family", "dispersion", "nobs", "method", "statement", "notes", "details")]),
    class = "summary.unpooled_fit"
  )
}

print.summary.unpooled_fit <- function(x, digits = max(3L, getOption("digits") - 3L),
                                       signif.stars = getOption("show.signif.stars"), ...) {
  cat("\nCall:\n", paste(deparse(x$call), collapse = "\n"), "\n\n", sep = "")
  cat("Coefficients", if (nzchar(x$ratio)) paste0(" (", x$ratio, "s)"), ":\n", sep = "")
  if (x$credible) {
    print(x$coefficients, digits = digits)
  } else if (all(is.na(x$coefficients[, "Std. Error"]))) {
    print(x$coefficients[, "Estimate"], digits = digits)
    cat("\n", x$why, "\n", sep = "")
    say_details(x$details)
  } else {
    printCoefmat(x$coefficients,
      digits = digits, signif.stars = signif.stars, cs.ind = 1:3, tst.ind = 4, P.values = TRUE, has.Pvalue = TRUE, na.print = "NA"
    )
  }
  if (nzchar(x$ratio)) {
    cat("\nIntervals of ", format(100 * x$confidence), " %:\n", sep = "")
    print(cbind(ratio = x$coefficients[, "Estimate"], x$conf.int), digits = digits)
  }
  cat("\n")
  if (identical(x$family, "linear") && !is.na(given(x$residual_variance))) {
    cat("Residual standard error: ", format(sqrt(x$residual_variance), digits = digits),
      if (!is.na(given(x$r_squared))) c(", R-squared: ", format(x$r_squared, digits = digits)), "\n",
      sep = ""
    )
  } else if (!is.null(x$dispersion)) {
    cat("(Dispersion parameter for ", x$family, " family taken to be ", format(x$dispersion, digits = digits), ")\n\n", sep = "")
  }
  for (line in utils::head(x$foot, -1)) cat(strwrap(line, exdent = 2), sep = "\n")
  cat("\n")
  say_statement(x$statement)
  invisible(x)
}

unpooled_contrast <- function(fit, ..., level = 0.95, exponentiate = FALSE, value = NULL, reference = NULL, against = NULL) {
  call <- match.call()
  asked <- as.character(unlist(list(...)))
  if (!length(asked)) usage("say what is compared, as words: unpooled_contrast(fit, \"ward: b - a\")")
  needs_ratios(fit, exponentiate)
  needs_errors(fit, "contrasts need them")
  found <- ask("contrast", model = model_of(fit), asked = I(asked), arguments = table_arguments(
    fit, level, reference, against, exponentiate, value = value
  ), caller = call)
  found$terms <- terms_frame(found$terms)
  found$statement <- fit$statement
  structure(found, class = "unpooled_contrast")
}

print.unpooled_contrast <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  shown <- x$terms[c("estimate", "std_error", "privacy", "statistic", "p_value", "conf_low", "conf_high")]
  names(shown) <- c(if (nzchar(x$ratio)) x$ratio else "estimate", "std error", "privacy", "z", "p", "lower", "upper")
  rownames(shown) <- x$terms$term
  print(shown, digits = digits)
  if (nrow(shown) > 1) {
    cat("joint test: chi2(", x$joint$degrees, ") = ", format(x$joint$statistic, digits = digits), ", p ",
      format.pval(x$joint$p_value, digits = 3), "\n",
      sep = ""
    )
  }
  cat("\n")
  say_statement(x$statement)
  invisible(x)
}

unpooled_submodel <- function(fit, columns, level = 0.95) {
  call <- match.call()
  if (!is.character(columns) || !length(columns)) usage("say which columns the smaller model has, as in unpooled_submodel(fit, \"age\")")
  needs_errors(fit, "a smaller model follows from what they follow from")
  found <- ask("submodel", model = model_of(fit), columns = I(columns), confidence = level, caller = call)
  found$terms <- terms_frame(found$terms)
  found$statement <- fit$statement
  structure(found, class = "unpooled_submodel")
}

print.unpooled_submodel <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  shown <- x$terms[c("estimate", "std_error", "privacy", "statistic", "p_value", "conf_low", "conf_high")]
  names(shown) <- c("estimate", "std error", "privacy", "z", "p", "lower", "upper")
  rownames(shown) <- x$terms$term
  print(shown, digits = digits)
  cat("n = ", x$nobs, "\n", sep = "")
  for (line in x$notes) cat(strwrap(line, exdent = 2), sep = "\n")
  if (length(x$not_determined)) cat(strwrap(paste0("not determined, so not printed: ", toString(x$not_determined)), exdent = 2), sep = "\n")
  cat("\n")
  say_statement(x$statement)
  invisible(x)
}

anova.unpooled_fit <- function(object, smaller = NULL, ...) {
  needs_errors(object, "tests need them")
  asked <- c(list("anova", model = model_of(object), caller = match.call()), if (!is.null(smaller)) list(smaller = I(smaller)))
  found <- do.call(ask, asked, quote = TRUE)
  value <- function(name) vapply(found$tests, function(one) given(one[[name]]), 0)
  one <- length(found$names) == 1 && grepl("^F\\(", found$names)
  table <- data.frame(Df = value("degrees"), value("statistic"), value("p_value"))
  names(table)[2:3] <- if (one) c("F", "Pr(>F)") else c("Chisq", "Pr(>Chisq)")
  rownames(table) <- if (is.null(smaller)) found$names else "left out"
  structure(table, heading = "Wald tests, all other terms staying in the model\n", class = c("anova", "data.frame"))
}

predict.unpooled_fit <- function(object, newdata, type = c("response", "link", "class", "survival", "scores"), exposure = NULL,
                                 offset = NULL, interval = c("none", "prediction"), level = 0.95, times = NULL, ...) {
  type <- match.arg(type)
  interval <- match.arg(interval)
  if (missing(newdata)) usage("give new rows: a fit keeps no data")
  if ("party" %in% ...names()) {
    usage("a prediction at one party is a study of its own, for what a party keeps does not leave it: unpooled_command(\"new\", \"pride\", \"--fitted\", ...)")
  }
  newdata <- widened(as_frame(newdata, "newdata"))$data
  given <- newdata[intersect(object$columns, names(newdata))]
  if (type == "scores" && !inherits(object, "unpooled_pls")) usage("type \"scores\" is of the components of unpooled_pls")
  if (type == "survival" && !object$family %in% c("survival", "cox")) usage("type \"survival\" is of times to an event")
  if (type == "survival" && object$family == "cox" && is.null(times)) usage("say at which times: times = c(1, 2)")
  per_row <- row_columns(newdata, exposure = exposure, offset = offset)
  asked <- c(
    list("predict", model = model_of(object), data = columns(given, object$since), caller = match.call()),
    if (length(per_row)) list(rows = per_row),
    if (type == "survival" && !is.null(times)) list(times = I(times)),
    if (type == "scores") list(scores = TRUE)
  )
  found <- do.call(ask, asked, quote = TRUE)$predictions
  if (interval == "prediction") {
    if (is.null(found$std)) usage("prediction intervals are those of a linear model with second moments")
    half <- qnorm(0.5 + level / 2) * found$std
    return(cbind(fit = found$prediction, lwr = found$prediction - half, upr = found$prediction + half))
  }
  if (type == "scores") return(structure(do.call(cbind, found), dimnames = list(NULL, sub("^score ", "comp ", names(found)))))
  if (type == "survival") {
    at <- if (is.null(times)) grep("^survival to ", names(found)) else match(paste("survival to", format_times(times)), names(found))
    return(do.call(cbind, found[at]))
  }
  responses <- grep("^prediction: ", names(found), value = TRUE)
  if (length(responses)) {
    return(structure(do.call(cbind, found[responses]), dimnames = list(NULL, unique(object$terms$group))))
  }
  if (type == "link") return(if (is.null(found$link)) found$prediction else found$link)
  if (type == "class") {
    if (is.null(object$labels)) usage("type \"class\" is of a response with classes")
    return(factor(labelled(object, found$prediction), levels = object$labels))
  }
  several <- grep("^probability: ", names(found), value = TRUE)
  if (length(several)) {
    names <- sub("^probability: ", "", several)
    table <- structure(do.call(cbind, found[several]), dimnames = list(NULL, names))
    return(if (setequal(names, object$labels)) table[, object$labels, drop = FALSE] else table)
  }
  if (!is.null(found$probability)) found$probability else found$prediction
}

# Times as the names of predictions have them.
format_times <- function(times) vapply(times, function(one) formatC(one, digits = 6, width = 1, format = "g"), "")

# Predicted classes under the names that the asker gave them.
labelled <- function(object, predicted) {
  if (length(object$labels) == 2 && length(object$classes) == 2) object$labels[match(as.character(predicted), as.character(object$classes))] else as.character(predicted)
}

# The names that packages of the tidyverse give to the columns of a table.
broom_names <- function(terms) {
  found <- terms
  names(found) <- c("term", "estimate", "std.error", "statistic", "p.value", "conf.low", "conf.high", "privacy", "group")
  if (all(found$group == "")) found$group <- NULL
  rownames(found) <- NULL
  found
}

# As broom's: estimates are ratios where `exponentiate` says so, and standard errors stay those of their logarithms.
tidy.unpooled_fit <- function(x, conf.int = FALSE, conf.level = 0.95, exponentiate = FALSE, ...) {
  needs_ratios(x, exponentiate)
  if (conf.int) needs_errors(x, "intervals need them")
  found <- broom_names(summary(x, level = conf.level, exponentiate = exponentiate)$terms)
  if (is.null(x$vcov)) return(found[intersect(c("group", "term", "estimate"), names(found))])
  if (!conf.int) found <- found[setdiff(names(found), c("conf.low", "conf.high"))]
  found
}

tidy.unpooled_submodel <- function(x, ...) broom_names(x$terms)

tidy.unpooled_contrast <- function(x, ...) broom_names(x$terms)

glance.unpooled_fit <- function(x, ...) {
  data.frame(
    nobs = x$nobs, family = x$family, method = x$method, dispersion = given(x$dispersion),
    epsilon = given(x$statement$epsilon), delta = given(x$statement$delta), holds = x$holds, plan = x$plan
  )
}

augment.unpooled_fit <- function(x, newdata, ...) {
  if (missing(newdata)) usage("give new rows: a fit keeps no data")
  found <- predict(x, newdata, ...)
  if (is.matrix(found)) {
    found <- as.data.frame(found)
    names(found) <- paste0(".fitted: ", names(found))
    return(cbind(newdata, found))
  }
  newdata$.fitted <- found
  newdata
}
