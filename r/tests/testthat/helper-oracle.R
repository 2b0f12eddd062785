# R as the oracle: the same formula fitted by the command without noise and by stats, on the same rows.

# All tests at full size: `make r-full` sets it.
full <- nzchar(Sys.getenv("UNPOOLED_FULL"))

skip_without_command <- function() {
  testthat::skip_if_not(unpooled_available(), "the command `unpooled` is not here")
}

WARDS <- c("a", "b", "c")
KNOWN <- list(
  age = c(16, 144), dose = c(1, 17), ward = WARDS, sex = c("f", "m"), days = c(1, 33)
)

# Values on the grid on which columns are coded, so that nothing is rounded: what is left is arithmetic.
oracle_rows <- function(n, seed) {
  set.seed(seed)
  d <- data.frame(
    age = sample(20:90, n, TRUE), dose = sample(4:64, n, TRUE) / 4, days = sample(4:128, n, TRUE) / 4,
    ward = factor(sample(WARDS, n, TRUE), levels = WARDS), sex = factor(sample(c("f", "m"), n, TRUE), levels = c("f", "m")),
    w = sample(4:16, n, TRUE) / 8
  )
  u <- -1 + 0.015 * d$age + 0.04 * d$dose + 0.3 * (d$ward == "b") - 0.2 * (d$ward == "c") * (d$sex == "m")
  grid <- function(x, step) pmin(pmax(round(x / step) * step, -7.5), 7.5)
  d$y <- grid(u + rnorm(n), 2^-14)
  d$ill <- runif(n) < stats::plogis(u)
  d$falls <- pmin(rpois(n, exp(u / 2)), 30)
  d$cost <- pmin(pmax(round(rgamma(n, 2, 2 / exp(u / 2)) * 2^14) / 2^14, 2^-10), 30)
  time <- rexp(n, 0.1 * exp(u / 2))
  left <- runif(n, 0, 12)
  d$time <- pmax(round(pmin(time, left, 8) * 2^16) / 2^16, 2^-10)
  d$event <- as.numeric(time <= pmin(left, 8))
  d
}

RIGHT <- c(
  "age", "dose", "ward", "sex", "age + dose", "age + ward", "ward + sex", "age * ward", "dose * sex", "ward * sex",
  "age * dose", "age + I(age^2)", "I(age - 50)", "I(age - 50) + I((age - 50)^2)", "age + dose + ward + sex",
  "age * ward + dose", "age * ward + dose * sex", "age + ward * sex", "(age + dose) * sex", "(age + ward + sex)^2",
  "log(dose) + age", "log(dose) * ward", "sqrt(dose) + sex", "log(days) + age", "I(age / 10) + I(dose / 4)",
  "C(ward, ref = \"b\") + age", "C(ward, ref = \"c\") * sex", "I(age * dose) + age + dose", "age + days + dose",
  "I(dose^2) + dose + sex", "I(1 / dose) + age", "age * sex + dose * ward", "dose + I(dose^3)", "log(age) + ward",
  "age + ward + ward:sex + sex", "I(age - dose)", "I(2 * dose + age) + sex", "days * sex + ward", "sqrt(age) * sex",
  "log(dose) + log(days) + log(age)", "age:dose + age + dose + ward", "exp(-dose / 8) + ward", "I((dose - 8)^2) + sex * ward",
  "age * ward * sex", "dose * ward + dose:sex + sex", "I(age / 50) * ward", "C(sex, ref = \"m\") + dose",
  "C(sex, ref = \"m\") * C(ward, ref = \"b\")", "log(days) * sex + I((age - 50)^2) + age", "age + dose + days + ward * sex"
)

# The names of our terms, as R writes those of a model with treatment contrasts; the parts of a product in one order.
as_r <- function(names) {
  names <- gsub("\\(?(\\w+): (\\w+) - \\w+\\)?", "\\1\\2", names)
  names <- gsub("**", "^", gsub(" \\* (?![^(]*\\))", ":", names, perl = TRUE), fixed = TRUE)
  names <- sub("(intercept)", "(Intercept)", names, fixed = TRUE)
  in_order(names)
}

in_order <- function(names) {
  names <- gsub("C\\((\\w+), ref = \"\\w+\"\\)", "\\1", gsub(" ", "", names))
  names <- gsub("C\\((\\w+),ref=\"\\w+\"\\)", "\\1", names)
  vapply(strsplit(names, ":", fixed = TRUE), function(parts) paste(sort(parts), collapse = ":"), "")
}

# R's formula: its C() takes contrasts, ours a reference.
for_r <- function(left, right) {
  right <- gsub("C\\((\\w+), ref = (\"\\w+\")\\)", "stats::relevel(\\1, ref = \\2)", right)
  stats::as.formula(paste(left, "~", right))
}

names_of_r <- function(names) in_order(gsub("stats::relevel\\((\\w+), ref = \"\\w+\"\\)", "\\1", names))

# The largest difference of coefficients, in units of R's standard errors, and absolute where asked; and of standard errors.
apart <- function(ours, theirs, keep = NULL) {
  names <- names_of_r(rownames(theirs))
  mine <- stats::setNames(coef(ours), as_r(names(coef(ours))))
  errors <- theirs[, 2]
  theirs <- theirs[, 1]
  names(theirs) <- names(errors) <- names
  own <- stats::setNames(sqrt(diag(vcov(ours))), names(mine))
  if (is.null(keep)) keep <- names(theirs)
  if (!all(keep %in% names(mine))) stop("terms differ: ", toString(setdiff(keep, names(mine))), " / ", toString(setdiff(names(mine), keep)))
  c(
    coefficients = max(abs(mine[keep] - theirs[keep]) / pmax(1, abs(theirs[keep]))),
    in_errors = max(abs(mine[keep] - theirs[keep]) / errors[keep]),
    errors = max(abs(own[keep] / errors[keep] - 1))
  )
}

oracle <- list(
  lm = function(d, right, weights) {
    more <- if (weights) list(weights = d$w, weights_bounds = c(0, 2))
    ours <- do.call(unpooled_lm, c(list(for_us("y", right), d, epsilon = Inf, bounds = KNOWN, y_bounds = c(-8, 8)), more))
    d$own <- if (weights) d$w else 1
    theirs <- summary(stats::lm(for_r("y", right), d, weights = own))$coefficients
    apart(ours, theirs)
  },
  gaussian = function(d, right, weights) {
    ours <- unpooled_glm(for_us("y", right), gaussian(), d, epsilon = Inf, bounds = KNOWN, y_bounds = c(-8, 8))
    theirs <- summary(stats::glm(for_r("y", right), gaussian(), d))$coefficients
    apart(ours, theirs)
  },
  binomial = function(d, right, weights) glm_apart(d, "ill", right, weights, binomial(), list()),
  poisson = function(d, right, weights) {
    glm_apart(d, "falls", right, weights, poisson(), list(dispersion = 1, y_bounds = c(0, 32)))
  },
  Gamma = function(d, right, weights) {
    glm_apart(d, "cost", right, weights, Gamma(link = "log"), list(dispersion = 0.5, y_bounds = c(2^-10, 32 + 2^-10)), 0.5)
  },
  hazards = function(d, right, weights) {
    cuts <- c(1, 2, 4)
    ours <- unpooled_surv(for_us("Surv(time, event)", right), d,
      epsilon = Inf, bounds = KNOWN, y_bounds = c(0, 8), cuts = cuts
    )
    split <- survival::survSplit(d, cut = cuts, end = "time", event = "event", start = "tstart", episode = "interval")
    split$at_risk <- split$time - split$tstart
    split$interval <- factor(split$interval)
    theirs <- stats::glm(for_r("event", paste(right, "+ interval + offset(log(at_risk))")), poisson(), split,
      control = list(epsilon = 1e-14, maxit = 50)
    )
    theirs <- summary(theirs)$coefficients
    theirs <- theirs[!grepl("interval", rownames(theirs)) & rownames(theirs) != "(Intercept)", , drop = FALSE]
    apart(ours, theirs)
  }
)

# Formulas as a person writes them, but a product of R's own C() is ours.
for_us <- function(left, right) stats::as.formula(paste(left, "~", right))

glm_apart <- function(d, left, right, weights, family, more, dispersion = NULL) {
  given <- if (weights) list(weights = d$w, weights_bounds = c(0, 2))
  ours <- do.call(unpooled_glm, c(list(for_us(left, right), family, d, epsilon = Inf, bounds = KNOWN), more, given))
  d$own <- if (weights) d$w else 1
  theirs <- suppressWarnings(stats::glm(for_r(left, right), family, d,
    weights = own, control = list(epsilon = 1e-14, maxit = 50)
  ))
  theirs <- summary(theirs, dispersion = dispersion)$coefficients
  apart(ours, theirs)
}
