# Studies between organisations: the commands of the shell, with the same files.

strings <- function(flag, values) as.vector(rbind(rep(flag, length(values)), as.character(values)))

path <- function(file) normalizePath(file, mustWork = FALSE)

# A declaration of a column, as `unpooled party init --column` takes it.
declaration <- function(name, bounds, missing, below = NULL, typical = NULL) {
  ends <- if (is_time(bounds) || is.numeric(bounds) && length(bounds) == 2) {
    if (is_time(bounds)) paste(format(bounds, "%Y-%m-%d"), collapse = ":") else paste(sprintf("%.17g", bounds), collapse = ":")
  } else {
    paste(as.character(if (is.logical(bounds)) as.integer(bounds) else if (is.factor(bounds)) levels(bounds) else bounds), collapse = ",")
  }
  paste0(name, "=", ends, if (!is.null(missing) && !is.na(missing)) paste0(";", missing),
         if (!is.null(below) && !is.na(below)) paste0(";<", sprintf("%.17g", below)),
         if (!is.null(typical)) paste0(";typical=", paste(sprintf("%.17g", typical), collapse = ",")))
}

unpooled_party <- function(file, name, bounds, folder = name, missing = NULL, below = NULL, typical = NULL, id = NULL,
                           labels = NULL, epsilon = 1, delta = NULL, unit = NULL, ...) {
  known <- vapply(names(bounds), function(one) {
    declaration(one, bounds[[one]], if (length(missing) == 1 && is.null(names(missing))) missing else missing[one],
                unlist(below)[one], typical[[one]])
  }, "")
  more <- list(...)
  flags <- unlist(lapply(names(more), function(one) {
    flag <- paste0("--", gsub("_", "-", one))
    if (isTRUE(more[[one]])) flag else strings(flag, more[[one]])
  }))
  found <- unpooled_command(
    "party", "init", path(file), "--name", name, "--folder", path(folder), strings("--column", known),
    strings("--id", id), strings("--label", labels), strings("--epsilon", number(epsilon)), strings("--delta", number(delta)),
    strings("--unit", unit), flags
  )
  file.path(path(folder), "party.toml")
}

number <- function(x) if (is.null(x)) NULL else sprintf("%.17g", x)

card_of <- function(party) {
  config <- config_of(party)
  found <- unpooled_command("party", "card", "--config", config)$card
  path(if (file.exists(found)) found else file.path(dirname(config), basename(found)))
}

config_of <- function(party) {
  if (dir.exists(party)) party <- file.path(party, "party.toml")
  if (!file.exists(party)) usage(party, ": there is no party file")
  path(party)
}

# A value in a study file.
toml <- function(value) {
  if (is.list(value) && is.null(names(value))) return(paste0("[", paste(vapply(value, toml, ""), collapse = ", "), "]"))
  one <- function(x) if (is.list(x)) toml(x) else if (is.character(x)) json_values(x) else if (is.logical(x)) tolower(x) else sprintf("%.17g", x)
  if (!is.null(names(value))) {
    return(paste0("{ ", paste(json_values(names(value)), vapply(value, one, ""), sep = " = ", collapse = ", "), " }"))
  }
  if (length(value) == 1 && !inherits(value, "AsIs")) one(value) else paste0("[", paste(vapply(value, one, ""), collapse = ", "), "]")
}

# Earlier models as a study file names them: "run:FOLDER", "rows:FILE", or numbers.
cited <- function(prior) {
  if (is.null(prior)) return(NULL)
  several <- is.list(prior) && !is.object(prior) && !all(vapply(prior, function(one) is.numeric(one) && is.null(names(one)), NA))
  models <- if (several || is.character(prior)) as.list(prior) else list(prior = prior)
  unname(Map(function(one, name) {
    if (is.character(one) && length(one) == 1) return(one)
    if (inherits(one, "unpooled_fit") && !is.null(one$run)) return(paste0("run:", one$run$run))
    if (inherits(one, c("unpooled_fit", "unpooled_release"))) usage("a study cites a run (\"run:FOLDER\") or numbers: this fit is no run of a study")
    numbers <- prior_of(one)
    constant <- numbers[["(intercept)"]]
    list(
      name = if (is.null(name) || name == "") "prior" else name, intercept = if (is.null(constant)) 0 else constant,
      coefficients = numbers[setdiff(names(numbers), "(intercept)")]
    )
  }, models, if (is.null(names(models))) "" else names(models)))
}

# Write parameters into a study file, over its comments that name their defaults.
set_parameters <- function(file, parameters) {
  lines <- readLines(file, encoding = "UTF-8")
  for (name in names(parameters)) {
    line <- paste(name, "=", toml(parameters[[name]]))
    at <- grep(paste0("^(# )?", name, "\\s*="), lines)
    if (length(at)) lines[at[1]] <- line else lines <- append(lines, line, match("[parameters]", lines))
  }
  writeLines(enc2utf8(lines), file, useBytes = TRUE)
}

unpooled_new <- function(model, parties, formula = NULL, epsilon = 1, file = "study.toml", parameters = list()) {
  cards <- vapply(parties, function(one) if (grepl("\\.card\\.toml$", one)) path(one) else card_of(one), "")
  text <- if (!is.null(formula)) formula_text(formula)
  unpooled_command(
    "new", model, strings("--card", cards), "--epsilon", number(epsilon), strings("--formula", text), "--out", path(file)
  )
  if (length(parameters)) set_parameters(file, parameters)
  unpooled_study(file, parties[!grepl("\\.card\\.toml$", parties)])
}

unpooled_study <- function(file, parties = character()) {
  structure(list(file = path(file), parties = vapply(as.character(parties), config_of, "", USE.NAMES = FALSE)),
    class = "unpooled_study"
  )
}

as_study <- function(study) if (inherits(study, "unpooled_study")) study else unpooled_study(study)

print.unpooled_study <- function(x, ...) {
  cat("Study ", x$file, "\n", sep = "")
  for (party in x$parties) cat("  party ", party, "\n", sep = "")
  invisible(x)
}

unpooled_plan <- function(study, utility = FALSE, ..., n = NULL, columns = NULL) {
  if (is.function(study)) return(plan_of_fit(study, n, columns, utility, ...))
  if (length(list(...)) || !is.null(n) || !is.null(columns)) {
    usage("a study says itself what it fits to how many rows: for a fit before data give its function, as in unpooled_plan(unpooled_lm, n = 4000, ...)")
  }
  study <- as_study(study)
  as_plan(unpooled_command("plan", study$file, if (utility) "--utility"))
}

# Which functions fit, and so have a plan before there are data.
PLANNED <- c("unpooled_lm", "unpooled_glm", "unpooled_surv", "unpooled_pride", "unpooled_stacking", "unpooled_lasso", "unpooled_pls")

plan_of_fit <- function(fit, n, columns, utility, ...) {
  if (!any(vapply(PLANNED, function(name) identical(fit, get(name)), NA))) {
    usage("a plan before data is of one of ", paste(PLANNED, collapse = ", "), ", or of a study: unpooled_study()")
  }
  if (utility) usage("utility is of studies: leave it out")
  if (!is.numeric(n) || !length(n) || any(n < 1) || length(n) > 1 && is.null(names(n))) {
    usage("n is the number of rows, or of the rows of each site by its name: n = c(north = 1000, coast = 3000)")
  }
  bounds <- list(...)$bounds
  names <- if (is.numeric(columns)) paste0("V", seq_len(columns)) else if (!is.null(columns)) columns else if (is.list(bounds)) names(bounds)
  fit(data = structure(list(rows = n, columns = names), class = "unpooled_rows"), ...)
}

as_plan <- function(found) {
  releases <- found$releases
  fields <- c("name", "party", "step", "mechanism", "count", "size", "sensitivity", "scale")
  found$releases <- as.data.frame(setNames(lapply(fields, function(field) {
    unlist(lapply(releases, function(one) if (is.null(one[[field]])) NA else one[[field]]))
  }), fields))
  if (!is.null(found$words)) found$statement$words <- found$words
  structure(found, class = "unpooled_plan")
}

print.unpooled_plan <- function(x, ...) {
  cat("plan ", substr(x$plan, 1, 16), "\n", sep = "")
  print(x$releases[setdiff(names(x$releases), "step")], row.names = FALSE, digits = 5)
  cat("\n")
  say_statement(x$statement)
  for (note in x$notes) cat(strwrap(paste0("Note: ", note, "."), exdent = 2), sep = "\n")
  if (!is.null(x$lines)) {
    cat("\nThe table to expect, in studies played without data:\n")
    print(expected_lines(x$lines), row.names = FALSE, digits = 3)
  }
  if (!is.null(x$outlook)) {
    cat("\nExpected ", x$outlook$measure, " (a mean alone: ", format(x$outlook$mean, digits = 3), "):\n", sep = "")
    points <- x$outlook$points
    print(data.frame(
      epsilon = vapply(points, function(one) one$epsilon, 0), error = vapply(points, function(one) one$error, 0),
      low = vapply(points, function(one) one$low, 0), high = vapply(points, function(one) one$high, 0)
    ), row.names = FALSE, digits = 3)
  }
  invisible(x)
}

# The lines of a plan's table as a data frame: NA where no played study prints one.
expected_lines <- function(lines) {
  number <- function(name) vapply(lines, function(one) if (is.null(one[[name]])) NA_real_ else as.numeric(one[[name]]), 0)
  found <- data.frame(
    term = vapply(lines, function(one) one$term, ""), std.error = number("std_error"), without.privacy = number("without_privacy"),
    printed = number("printed"), narrow = number("narrow")
  )
  if (!all(is.na(alone <- number("alone")))) found$holder.alone <- alone
  if (!all(is.na(gaps <- number("missing_10")))) {
    found$left.out.10 <- gaps
    found$left.out.30 <- number("missing_30")
  }
  found
}

unpooled_approve <- function(study, party, by = "", reason = "", approve = TRUE) {
  study <- as_study(study)
  found <- unpooled_command(
    "party", "check", study$file, "--config", config_of(party), if (approve) "--approve",
    if (nzchar(by)) c("--by", by), if (nzchar(reason)) c("--reason", reason)
  )
  if (approve) invisible(found) else found
}

unpooled_run <- function(study, parties = NULL, out = NULL, force = FALSE, network = NULL, resume = FALSE) {
  call <- match.call()
  study <- as_study(study)
  if (!is.null(parties)) study$parties <- vapply(parties, config_of, "")
  folder <- if (is.null(out)) sub("\\.toml$", ".run", study$file) else path(out)
  unpooled_command(
    "run", study$file, if (is.null(network)) strings("--party", study$parties) else c("--network", path(network)),
    "--out", folder, if (force) "--force", if (resume) "--resume"
  )
  found <- unpooled_result(folder)
  found$call <- call
  found
}

unpooled_result <- function(run, analysis = "") {
  call <- match.call()
  if (inherits(run, "unpooled_study")) run <- sub("\\.toml$", ".run", run$file)
  at <- list(run = path(run), analysis = analysis)
  told <- unpooled_command("result", at$run, if (nzchar(analysis)) c("--analysis", analysis))
  fits <- length(told$predicting) && told$model %in% c("bayes", "glm")
  if (fits || told$model %in% c("stacking", "lasso", "pls")) {
    answer <- ask("fitted", model = c(list(of = "run"), at), caller = call)
    fit <- new_fit(answer, call, NULL, run = at)
    if (!fits) class(fit) <- c(paste0("unpooled_", told$model), "unpooled_fit")
    return(fit)
  }
  told$terms <- terms_frame(told$terms)
  words <- strsplit(told$statement, "\n", fixed = TRUE)[[1]]
  told$statement <- list(
    holds = told$holds, epsilon = told$epsilon, delta = told$delta, words = told$statement, headline = words[1]
  )
  told$kind <- told$model
  structure(told, class = "unpooled_release")
}

unpooled_ledger <- function(party) {
  found <- unpooled_command("party", "ledger", "--config", config_of(party))
  studies <- found$studies
  fields <- c("plan", "state", "releases", "epsilon", "by", "about", "time")
  found$studies <- as.data.frame(setNames(lapply(fields, function(field) unlist(lapply(studies, `[[`, field))), fields))
  structure(found, class = "unpooled_ledger")
}

print.unpooled_ledger <- function(x, ...) {
  if (nrow(x$studies)) {
    shown <- x$studies[c("plan", "state", "releases", "epsilon", "by", "about")]
    shown$plan <- substr(shown$plan, 1, 16)
    print(shown, row.names = FALSE)
  } else {
    cat("no study was approved or debited yet\n")
  }
  cat("spent: ", x$spent, " of ", format(x$allowed_epsilon), " at delta = ", format(x$delta), " per ", x$unit, "\n", sep = "")
  invisible(x)
}

# A fit to a study: its file is written once, and run when all parties have approved it.
fit_study <- function(model, formula, study, epsilon, call, prior, ...) {
  study <- as_study(study)
  if (!file.exists(study$file)) {
    parameters <- Filter(Negate(is.null), list(prior = cited(prior), ...))
    if (is.numeric(parameters$cuts)) parameters$cuts <- I(parameters$cuts)
    unpooled_new(model, study$parties, formula, epsilon, study$file, parameters)
  }
  fit <- unpooled_run(study)
  fit$call <- call
  fit$formula <- formula
  fit
}
