# Values for the command: JSON in which numbers keep all their bits, columns, and the text of formulas.

json_text <- function(x) {
  text <- as.character(jsonlite::toJSON(enc2utf8(x)))
  substr(text, 2, nchar(text) - 1)
}

# JSON of an R value. A vector of length one is a single value unless it is wrapped in I(); 17 digits determine a number.
to_json <- function(x) {
  if (is.null(x)) return("null")
  if (is.matrix(x)) return(paste0("[", paste(apply(x, 1, function(row) to_json(I(row))), collapse = ","), "]"))
  if (is.list(x)) {
    parts <- vapply(x, to_json, "", USE.NAMES = FALSE)
    if (is.null(names(x))) return(paste0("[", paste(parts, collapse = ","), "]"))
    return(json_object(names(x), parts))
  }
  parts <- json_values(x)
  if (!is.null(names(x)) && !inherits(x, "AsIs")) return(json_object(names(x), parts))
  if (length(parts) == 1 && !inherits(x, "AsIs")) return(parts)
  paste0("[", paste(parts, collapse = ","), "]")
}

json_object <- function(names, parts) {
  keys <- if (length(names)) json_values(names) else character()
  paste0("{", paste(paste(keys, parts, sep = ":")[seq_along(parts)], collapse = ","), "}")
}

json_values <- function(x) {
  x <- unclass(x)
  found <- if (is.character(x)) {
    vapply(x, json_text, "", USE.NAMES = FALSE)
  } else if (is.logical(x)) {
    ifelse(x, "true", "false")
  } else if (is.numeric(x)) {
    ifelse(is.finite(x), sprintf("%.17g", x), ifelse(is.na(x), "null", ifelse(x > 0, '"inf"', '"-inf"')))
  } else {
    usage("a value of class ", class(x)[1], " cannot be handed over: give numbers, text or lists of them")
  }
  found[is.na(x)] <- "null"
  found
}

base64 <- function(raw) gsub("\n", "", jsonlite::base64_enc(raw), fixed = TRUE)

is_time <- function(x) inherits(x, c("Date", "POSIXct"))

# Dates are numbers of days since a day: the first one of their declared range, or the first of 1970.
days <- function(x, since = 0) {
  unit <- if (inherits(x, "POSIXct")) 86400 else 1
  as.numeric(x) / unit - since
}

column <- function(x, name, since = 0) {
  if (is.character(x)) x <- factor(x)
  if (is.factor(x)) {
    codes <- as.integer(x) - 1L
    codes[is.na(codes)] <- -1L
    return(list(
      kind = "factor", levels = I(levels(x)),
      codes = base64(writeBin(codes, raw(), endian = "little"))
    ))
  }
  if (is_time(x)) x <- days(x, since)
  if (is.object(x) && !inherits(x, "AsIs") || !(is.numeric(x) || is.logical(x)) || !is.null(dim(x))) {
    usage("column '", name, "' is of class ", class(x)[1], ": give numbers, truth values, text, a factor or dates")
  }
  x <- as.double(x)
  x[is.na(x)] <- NaN # the missing value of numbers, in the one form that every reader knows
  list(kind = "numbers", values = base64(writeBin(x, raw(), endian = "little")))
}

columns <- function(data, since = list()) {
  if (!is.data.frame(data)) usage("data must be a data frame, or a list with a data frame for each site")
  found <- lapply(names(data), function(name) {
    start <- since[[name]]
    column(data[[name]], name, if (is.null(start)) 0 else start)
  })
  setNames(found, names(data))
}

# The text of a formula as the command reads it: R stores powers as ^, and lists are written c(...).
formula_text <- function(formula) {
  if (is.character(formula)) return(formula)
  if (!inherits(formula, "formula")) usage("the model is a formula, such as y ~ age + ward, or its text")
  text <- paste(deparse(formula, width.cutoff = 500L, control = "keepNA"), collapse = " ")
  quoted <- "(`[^`]*`|\"[^\"]*\"|'[^']*')(*SKIP)(*FAIL)|"
  text <- gsub(paste0(quoted, "\\^"), "**", text, perl = TRUE)
  text <- gsub(paste0(quoted, "survival::(?=Surv\\()"), "", text, perl = TRUE)
  gsub(paste0(quoted, "\\bc\\(((?:\"[^\"]*\"|[^()\"])*)\\)"), "[\\2]", text, perl = TRUE)
}

# The columns that a formula names on its left side; none without one.
left_side <- function(formula) {
  if (is.character(formula)) {
    formula <- tryCatch(stats::as.formula(formula), error = function(e) NULL)
  }
  if (length(formula) != 3) return(character())
  left <- formula[[2]]
  if (is.call(left) && deparse(left[[1]]) %in% c("Surv", "survival::Surv")) return(all.vars(left))
  if (!is.name(left)) usage("the response is a column as it stands, or Surv(time, event): transform it in your data")
  as.character(left)
}

right_side <- function(formula) sub("^[^~]*~\\s*", "", formula_text(formula))

# Bounds as the command takes them, and the first day of each range of dates.
declared <- function(bounds) {
  if (is.null(bounds)) return(list(bounds = NULL, since = list()))
  if (is.numeric(bounds) && length(bounds) == 2) return(list(bounds = I(bounds), since = list()))
  if (!is.list(bounds) || is.null(names(bounds)) || any(names(bounds) == "")) {
    usage("bounds are a list with a range or the categories of each column: list(age = c(0, 120), ward = c(\"a\", \"b\"))")
  }
  since <- list()
  for (name in names(bounds)) {
    one <- bounds[[name]]
    if (is_time(one)) {
      if (length(one) != 2) usage("bounds: '", name, "' is a range of dates: give its first and its last day")
      since[[name]] <- days(one[1])
      one <- days(one, since[[name]])
    }
    bounds[[name]] <- I(if (is.factor(one)) levels(one) else if (is.logical(one)) as.integer(one) else unname(one))
  }
  list(bounds = bounds, since = since)
}

# Missing arguments are left to their defaults in Python; lists of one stay lists.
arguments <- function(...) {
  found <- Filter(Negate(is.null), list(...))
  for (name in intersect(names(found), c("y_bounds", "cuts", "nodes", "focus", "classes", "columns",
    "exposure_bounds", "offset_bounds", "weights_bounds", "public", "estimating", "falling", "shares", "reference"))) {
    if (!is.list(found[[name]]) && !is.matrix(found[[name]])) found[[name]] <- I(unname(found[[name]]))
  }
  if (is.list(found$parties)) found$parties <- lapply(found$parties, I)
  found
}

# Earlier models as the command takes them: numbers by name, a fit, an effect, or several of these by name.
prior_of <- function(prior) {
  if (is.null(prior)) return(NULL)
  if (inherits(prior, "unpooled_fit")) return(model_of(prior))
  if (inherits(prior, "unpooled_release")) {
    if (is.null(prior$saved)) usage("prior is an effect that this session estimated, or numbers; a study cites a run by \"run:FOLDER\"")
    return(list(of = "saved", saved = prior$saved))
  }
  if (inherits(prior, c("lm", "coxph"))) return(fitted_elsewhere(prior))
  if (is.null(names(prior)) || any(names(prior) == "") || !(is.list(prior) || is.numeric(prior)) || is.object(prior)) {
    usage("prior is named numbers, such as c(age = 0.6, \"(intercept)\" = 90), a fit of this package or of lm(), glm() or coxph(), or a named list of several")
  }
  lapply(as.list(prior), function(one) if (is.numeric(one) && length(one) == 1 && is.null(names(one))) one else prior_of(one))
}

# The coefficients of a fit of R, under the names that they have here.
fitted_elsewhere <- function(fit) {
  found <- stats::coef(fit)
  if (is.matrix(found)) usage("prior: give the coefficients of several responses or classes by name, class by class")
  found <- found[!is.na(found)]
  for (name in names(fit$xlevels)) {
    at <- match(names(found), paste0(name, fit$xlevels[[name]]))
    names(found)[!is.na(at)] <- paste0(name, " = ", fit$xlevels[[name]][at[!is.na(at)]])
  }
  names(found)[names(found) == "(Intercept)"] <- "(intercept)"
  as.list(found)
}

# The terms of an answer as a data frame; what is not known is NA.
terms_frame <- function(terms) {
  fields <- c("term", "estimate", "std_error", "statistic", "p_value", "conf_low", "conf_high", "privacy", "group")
  found <- lapply(fields, function(field) {
    values <- lapply(terms, `[[`, field)
    if (field %in% c("term", "group")) return(as.character(unlist(values)))
    as.numeric(unlist(lapply(values, function(one) if (is.null(one)) NA else one)))
  })
  as.data.frame(setNames(found, fields), stringsAsFactors = FALSE)
}
