# In CI a part of the formulas and fewer rows; `make r-full` runs them all.
chosen <- if (full) seq_along(RIGHT) else seq(1, length(RIGHT), by = 7)
ORACLES <- if (full) names(oracle) else setdiff(names(oracle), "gaussian")

for (which in ORACLES) {
  test_that(paste("without noise", which, "is that of R over", length(chosen), "formulas"), {
    skip_without_command()
    if (which == "hazards") skip_if_not_installed("survival")
    d <- oracle_rows(3000, 1)
    found <- vapply(chosen, function(k) oracle[[which]](d, RIGHT[k], weights = k %% 3 == 0), c(coefficients = 0, in_errors = 0, errors = 0))
    # Values are coded in steps of 2^-20 of their declared half range, of which the response has 8: the rest is arithmetic.
    most <- if (which %in% c("lm", "gaussian")) 8e-6 else 2e-6
    if (full) message(which, ": ", toString(signif(apply(found, 1, max), 2)), "; within 1e-6: ", sum(found["coefficients", ] <= 1e-6), " of ", length(chosen))
    expect_lt(max(found["coefficients", ]), most)
    expect_lt(max(found["in_errors", ]), 1e-4)
    expect_lt(max(found["errors", ]), 1e-4)
  })
}

test_that("offsets in formulas and as columns are those of R", {
  skip_without_command()
  d <- oracle_rows(3000, 2)
  ours <- unpooled_glm(falls ~ age + ward + offset(log(days)), poisson(), d, epsilon = Inf, bounds = KNOWN, y_bounds = c(0, 32), dispersion = 1)
  theirs <- summary(stats::glm(falls ~ age + ward + offset(log(days)), poisson(), d, control = list(epsilon = 1e-14)))$coefficients
  expect_lt(max(apart(ours, theirs)[c("coefficients", "errors")]), 1e-4)
  expect_lt(apart(ours, theirs)[["coefficients"]], 1e-6)
  moved <- unpooled_glm(falls ~ age + ward, poisson(), d,
    epsilon = Inf, bounds = KNOWN, y_bounds = c(0, 32), dispersion = 1, exposure = "days", exposure_bounds = c(1, 33)
  )
  expect_lt(apart(moved, theirs)[["coefficients"]], 1e-6)
})

test_that("the default dispersion is that of quasipoisson as far as the cells of the histogram allow", {
  skip_without_command()
  d <- oracle_rows(5000, 3)
  set.seed(4)
  d$falls <- pmin(stats::rnbinom(5000, mu = exp(0.2 + 0.01 * d$age), size = 3), 60)
  ours <- unpooled_glm(falls ~ age + ward, quasipoisson(), d, epsilon = Inf, bounds = KNOWN, y_bounds = c(0, 64))
  theirs <- summary(stats::glm(falls ~ age + ward, stats::quasipoisson(), d))
  if (full) message("dispersion ", signif(ours$dispersion, 4), ", quasipoisson ", signif(theirs$dispersion, 4))
  expect_lt(abs(ours$dispersion / theirs$dispersion - 1), 0.1)
})

test_that("with many cuts hazard ratios are those of Cox within a tenth of a standard error", {
  skip_without_command()
  skip_if_not_installed("survival")
  d <- oracle_rows(3000, 5)
  ours <- unpooled_surv(Surv(time, event) ~ age + ward * sex, d, epsilon = Inf, bounds = KNOWN, y_bounds = c(0, 8), cuts = seq(0.25, 7.75, by = 0.25))
  theirs <- survival::coxph(survival::Surv(time, event) ~ age + ward * sex, d)
  theirs <- cbind(stats::coef(theirs), sqrt(diag(stats::vcov(theirs))))
  expect_lt(apart(ours, theirs)[["in_errors"]], 0.1)
})

test_that("hazard ratios of columns at two parties are those of glm(poisson) on rows split at the cuts", {
  skip_without_command()
  skip_if_not_installed("survival")
  d <- oracle_rows(1500, 5)
  ours <- unpooled_surv(Surv(time, event) ~ age + dose + ward * sex, d,
    epsilon = Inf, delta = 1e-6, bounds = KNOWN, y_bounds = c(0, 8), cuts = c(1, 2, 4),
    parties = list(clinic = c("age", "dose"), lab = c("ward", "sex"))
  )
  split <- survival::survSplit(d, cut = c(1, 2, 4), end = "time", event = "event", start = "tstart", episode = "interval")
  split$at_risk <- split$time - split$tstart
  split$interval <- factor(split$interval)
  theirs <- stats::glm(event ~ age + dose + ward * sex + interval + offset(log(at_risk)), poisson(), split)
  theirs <- summary(theirs)$coefficients
  theirs <- theirs[!grepl("interval", rownames(theirs)) & rownames(theirs) != "(Intercept)", , drop = FALSE]
  expect_lt(apart(ours, theirs)[["in_errors"]], 1e-3)
})
