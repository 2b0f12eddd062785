# The other systems, compared with Python's own result at the same arguments.
P <- list(clinic = c("age", "sex"), lab = c("dose", "blood"))
BOUNDS <- list(age = c(0, 128), sex = c("f", "m"), dose = c(0, 16), blood = c(-4, 4))

patients <- function(n = 1500, seed = 7) {
  set.seed(seed)
  d <- data.frame(
    age = runif(n, 20, 90), sex = sample(c("f", "m"), n, TRUE), dose = runif(n, 0, 10), blood = pmin(pmax(rnorm(n), -4), 4)
  )
  u <- 0.05 * d$age + 0.3 * d$dose + (d$sex == "m") + 0.5 * d$blood
  d$y <- pmin(pmax(u + rnorm(n), -5), 15)
  d$ill <- ifelse(runif(n) < stats::plogis(u - 5), "ill", "well")
  d$code <- as.numeric(d$ill == "well") # as R codes ill and well where ill is declared first
  d$grade <- as.character(cut(d$y, c(-Inf, 3, 5, Inf), labels = c("low", "mid", "high")))
  d$falls <- rpois(n, exp(u / 8))
  d$time <- rexp(n, 0.02 * exp(u / 4))
  d$event <- as.numeric(d$time < 20)
  d$time <- pmin(d$time, 20)
  d
}

# The coefficients that Python itself prints for a fit of this class to the same rows: asked of the interpreter behind the command.
in_python <- function(class, arguments, d, response, show, rows = "") {
  python <- Sys.getenv("UNPOOLED_PYTHON")
  if (!nzchar(python)) testthat::skip("UNPOOLED_PYTHON does not name the interpreter of the command")
  file <- tempfile(fileext = ".csv")
  on.exit(unlink(file))
  d[] <- lapply(d, function(one) if (is.double(one)) sprintf("%.17g", one) else one)
  utils::write.csv(d, file, row.names = FALSE, quote = FALSE)
  code <- paste(
    "import sys, json, numpy as np, polars as pl, unpooled, math, warnings", "warnings.simplefilter('ignore')",
    sprintf("d = pl.read_csv(%s)", shQuote(file)), sprintf("m = unpooled.%s(%s)", class, arguments),
    sprintf("m.fit(d[%s], d[%s].to_numpy()%s)", "['age','sex','dose','blood']", shQuote(response), rows),
    sprintf("print(json.dumps(np.ravel(%s).tolist()))", show),
    sep = "\n"
  )
  jsonlite::fromJSON(utils::tail(system2(python, c("-c", shQuote(code)), stdout = TRUE), 1))
}

PYTHON_BOUNDS <- "bounds={'age': (0, 128), 'sex': ['f', 'm'], 'dose': (0, 16), 'blood': (-4, 4)}"
PYTHON_PARTIES <- "parties={'clinic': ['age', 'sex'], 'lab': ['dose', 'blood']}"
both <- function(...) paste(PYTHON_PARTIES, PYTHON_BOUNDS, ..., sep = ", ")

test_that("pride of every family is that of Python", {
  skip_without_command()
  d <- patients()
  order <- c("age", "sex = f", "sex = m", "dose", "blood")
  fit <- unpooled_pride(y ~ age + sex + dose + blood, d, P, epsilon = 5, bounds = BOUNDS, random_state = 1)
  expect_s3_class(fit, c("unpooled_pride", "unpooled_fit"), exact = TRUE)
  expect_identical(names(coef(fit)), c(order, "(intercept)"))
  expect_identical(nobs(fit), 1500L) # people, whatever the number of parties
  expect_identical(names(fit$details$penalty), names(P))
  expect_output(print(fit), "penalty: clinic .*stay with the")
  expect_equal(unname(coef(fit)[order]), in_python("PrideRegressor", both("epsilon=5, random_state=1"), d, "y", "m.coef_"), tolerance = 1e-9)
  ill <- unpooled_pride(ill ~ ., d, P, binomial(), epsilon = 5, bounds = BOUNDS, classes = c("ill", "well"), random_state = 1)
  expect_equal(unname(coef(ill)[order]), in_python("PrideClassifier", both("epsilon=5, random_state=1, classes=(0, 1)"), d, "code", "m.coef_"), tolerance = 1e-9)
  falls <- unpooled_pride(falls ~ ., d, P, poisson(), epsilon = Inf, bounds = BOUNDS)
  expect_equal(unname(coef(falls)[order]), in_python("PrideGLM", paste0("'poisson', ", both("epsilon=math.inf")), d, "falls", "m.coef_"), tolerance = 1e-9)
  expect_true(all(predict(falls, d[1:5, ]) > 0))
  cox <- unpooled_pride(Surv(time, event) ~ ., d, P, "cox", epsilon = Inf, bounds = BOUNDS)
  expect_equal(
    unname(coef(cox)[order]), in_python("PrideGLM", paste0("'cox', ", both("epsilon=math.inf")), d, "time", "m.coef_", ", d['event'].to_numpy()"),
    tolerance = 1e-9
  )
  alive <- predict(cox, d[1:3, ], type = "survival", times = c(2, 8.5))
  expect_identical(colnames(alive), c("survival to 2", "survival to 8.5"))
  expect_true(all(alive[, 1] > alive[, 2]))
  expect_error(predict(cox, d[1:3, ], type = "survival"), "times = c", class = "unpooled_usage")
})

test_that("classes keep the order that R declares", {
  skip_without_command()
  d <- patients()
  levels <- c("low", "mid", "high")
  several <- unpooled_pride(grade ~ ., d, P, "multinomial", epsilon = 5, bounds = BOUNDS, classes = levels, random_state = 1)
  p <- predict(several, d[1:20, ])
  expect_identical(colnames(p), levels)
  expect_equal(rowSums(p), rep(1, 20))
  expect_identical(as.character(predict(several, d[1:20, ], type = "class")), levels[max.col(p)])
  expect_identical(levels(predict(several, d[1:2, ], type = "class")), levels)
  ordered <- unpooled_pride(grade ~ ., d, P, "ordinal", epsilon = 5, bounds = c(BOUNDS, list(grade = levels)), random_state = 1)
  expect_identical(grep("above", names(coef(ordered)), value = TRUE), c("(intercept) above low", "(intercept) above mid"))
  expect_error(unpooled_pride(grade ~ ., d, P, "ordinal", bounds = BOUNDS), "lowest up", class = "unpooled_usage")
  one <- unpooled_pride(ill ~ ., d, P, binomial(), epsilon = 5, bounds = BOUNDS, classes = c("well", "ill"), random_state = 1)
  other <- unpooled_pride(ill ~ ., d, P, binomial(), epsilon = 5, bounds = c(BOUNDS, list(ill = c("ill", "well"))), random_state = 1)
  expect_equal(coef(one), -coef(other), tolerance = 1e-6)
  expect_equal(predict(one, d[1:5, ]), 1 - predict(other, d[1:5, ]), tolerance = 1e-6)
  expect_identical(predict(one, d[1:9, ], type = "class"), factor(as.character(predict(other, d[1:9, ], type = "class")), c("well", "ill")))
})

test_that("classes that are read off the data promise nothing, and warn; 0, 1 and truth values need no declaration", {
  skip_without_command()
  d <- patients()
  d$one <- as.numeric(d$ill == "ill")
  d$is <- d$ill == "ill"
  for (fit in list(
    function(f, ...) unpooled_glm(f, binomial(), d, epsilon = 5, bounds = BOUNDS["age"], ...),
    function(f, ...) unpooled_stacking(f, d, list(a = "age"), epsilon = 5, bounds = BOUNDS["age"], ...)
  )) {
    expect_warning(found <- fit(ill ~ age), class = "PrivacyLeakWarning")
    expect_false(found$holds)
    expect_identical(levels(predict(found, d[1:2, ], type = "class")), c("ill", "well"))
    expect_true(suppressWarnings(fit(one ~ age), "BudgetWarning")$holds)
    expect_true(suppressWarnings(fit(is ~ age), "BudgetWarning")$holds)
    expect_true(suppressWarnings(fit(ill ~ age, classes = c("well", "ill")), "BudgetWarning")$holds)
  }
})

test_that("stacks are of parties; rows are pooled into one model with standard errors", {
  skip_without_command()
  d <- patients(3000)
  d$site <- rep(c("north", "coast"), 1500)
  fit <- unpooled_stacking(ill ~ ., d, P, epsilon = 5, bounds = BOUNDS, classes = c("ill", "well"), random_state = 1)
  expect_identical(names(fit$details$share), names(P))
  expect_identical(names(coef(fit))[1:3], c("clinic: age", "clinic: sex = f", "clinic: sex = m"))
  expect_equal(
    unname(coef(fit)[c("clinic: age", "lab: dose")]),
    in_python("PrivateStackingClassifier", both("epsilon=5, random_state=1, classes=(0, 1)"), d, "code", "[m.models_[0].coefficients[0], m.models_[1].coefficients[0]]"),
    tolerance = 1e-9
  )
  expect_error(vcov(fit), "no standard errors here: with a delta", class = "unpooled_usage")
  pooled <- unpooled_stacking(ill ~ ., d[c("age", "dose", "ill", "site")], sites = "site", epsilon = 5, delta = 1e-6, bounds = BOUNDS[c("age", "dose")], classes = c("well", "ill"))
  expect_identical(pooled$method, "rounds")
  expect_identical(dim(vcov(pooled)), c(3L, 3L))
  expect_true(pooled$holds)
  ratios <- tidy(pooled, conf.int = TRUE, exponentiate = TRUE)
  expect_equal(ratios$estimate, exp(unname(coef(pooled))))
  expect_equal(ratios$std.error, unname(sqrt(diag(vcov(pooled))))) # of the logarithms, as broom has them
  expect_identical(rownames(anova(pooled)), c("age", "dose"))
  formula <- unpooled_stacking(ill ~ age + I(dose^2), d, epsilon = Inf, delta = 1e-6, bounds = BOUNDS[c("age", "dose")], classes = c("well", "ill"), method = "rounds")
  theirs <- stats::glm(ill == "ill" ~ age + I(dose^2), binomial(), d)
  expect_equal(unname(coef(formula)[c(1, 2)]), unname(stats::coef(theirs)[2:3]), tolerance = 1e-4)
  sites <- unpooled_stacking(ill ~ age + dose, d, sites = d$site, split = "samples", epsilon = 5, bounds = BOUNDS[c("age", "dose")], classes = c("well", "ill"), random_state = 1)
  expect_identical(names(sites$details$share), c("coast", "north"))
  drawn <- unpooled_stacking(ill ~ ., d, P, epsilon = 5, bounds = BOUNDS, classes = c("ill", "well"), random_state = 2, prior = fit)
  expect_identical(names(coef(drawn)), names(coef(fit)))
  several <- unpooled_stacking(grade ~ ., d, P, epsilon = 5, bounds = BOUNDS, classes = c("low", "mid", "high"), random_state = 1)
  expect_identical(colnames(predict(several, d[1:2, ])), c("low", "mid", "high"))
  expect_error(unpooled_stacking(ill ~ ., d, P, sites = "site"), "leave one out", class = "unpooled_usage")
  expect_error(unpooled_stacking(ill ~ ., d, split = "features"), "parties = list", class = "unpooled_usage")
})

test_that("lasso of numbers and of classes, by a formula and by x and y", {
  skip_without_command()
  d <- patients()
  order <- c("age", "sex = f", "sex = m", "dose", "blood")
  fit <- unpooled_lasso(y ~ ., d, P, epsilon = 8, bounds = c(BOUNDS, list(y = c(-5, 15))), random_state = 1)
  expect_identical(fit$method, "moments")
  expect_equal(unname(coef(fit)[order]), in_python("PrivateLasso", both("epsilon=8, random_state=1, y_bounds=(-5, 15)"), d, "y", "m.coef_"), tolerance = 1e-9)
  ill <- unpooled_lasso(ill ~ ., d, P, binomial(), epsilon = 8, bounds = BOUNDS, classes = c("ill", "well"), random_state = 1)
  expect_equal(unname(coef(ill)[order]), in_python("PrivateLassoClassifier", both("epsilon=8, random_state=1, classes=(0, 1)"), d, "code", "m.coef_"), tolerance = 1e-9)
  x <- as.matrix(d[c("age", "dose", "blood")])
  named <- unpooled_lasso(x = x, y = d$y, epsilon = Inf, bounds = BOUNDS[colnames(x)], y_bounds = c(-5, 15))
  placed <- unpooled_lasso(x, d$y, 2, epsilon = Inf, bounds = BOUNDS[colnames(x)], y_bounds = c(-5, 15))
  framed <- unpooled_lasso(y ~ age + dose + blood, d, epsilon = Inf, bounds = BOUNDS[colnames(x)], y_bounds = c(-5, 15))
  expect_identical(coef(named), coef(placed))
  expect_identical(coef(named), coef(framed))
  expect_identical(predict(named, x[1:3, ]), predict(framed, d[1:3, ]))
  seven <- function(...) unpooled_lasso(x, d$y, epsilon = 2, bounds = BOUNDS[colnames(x)], y_bounds = c(-5, 15), random_state = 1, ...)
  expect_lt(abs(coef(seven(prior = c(age = 0.2)))[["age"]] - 0.2), abs(coef(seven())[["age"]] - 0.2))
  expect_output(print(seven(prior = named)), "NO privacy guarantee") # an earlier fit is a prior too
  rounds <- unpooled_lasso(x, d$y, epsilon = 8, bounds = BOUNDS[colnames(x)], y_bounds = c(-5, 15), rounds = 5, random_state = 1)
  expect_identical(rounds$method, "frank-wolfe")
  joint <- unpooled_lasso(y ~ ., d, P, epsilon = 8, bounds = BOUNDS, y_bounds = c(-5, 15), method = "joint", unit = "record", response_at = "lab", random_state = 1)
  expect_identical(nobs(joint), 1500L)
  unnamed <- unpooled_lasso(unname(x), d$y, epsilon = Inf, bounds = c(-10, 130), y_bounds = c(-5, 15))
  expect_identical(names(coef(unnamed))[1:3], c("V1", "V2", "V3"))
})

test_that("partial least squares on a matrix in a frame, of one response and of several", {
  skip_without_command()
  set.seed(3)
  n <- 1500
  z <- matrix(rnorm(2 * n), n)
  d <- data.frame(octane = pmin(pmax(10 + z[, 1], 5), 15), water = pmin(pmax(3 + z[, 2], -2), 8), site = rep(c("a", "b", "c"), n / 3))
  NIR <- z %*% rbind(sin((1:24) / 5), cos((1:24) / 7)) + matrix(rnorm(n * 24, 0, 0.05), n)
  colnames(NIR) <- paste0("nm", 1:24)
  d$NIR <- NIR
  fit <- unpooled_pls(octane ~ NIR, d, 2, norm = 30, y_bounds = c(5, 15), epsilon = Inf)
  expect_identical(names(coef(fit))[1], "NIR.nm1")
  expect_lt(mean((predict(fit, d) - d$octane)^2), 0.05)
  scores <- predict(fit, d[1:4, ], type = "scores")
  expect_identical(colnames(scores), c("comp 1", "comp 2"))
  expect_equal(
    as.vector(scores %*% t(fit$matrices$y_loadings)) - as.vector(scores[1, ] %*% t(fit$matrices$y_loadings)),
    predict(fit, d[1:4, ]) - predict(fit, d[1, ]), tolerance = 1e-6
  )
  expect_identical(dim(fit$matrices$x_rotations), c(24L, 2L))
  expect_equal(unname(coef(unpooled_pls(NIR, d$octane, 2, norm = 30, y_bounds = c(5, 15), epsilon = Inf))), unname(coef(fit)), tolerance = 1e-9)
  both <- unpooled_pls(cbind(octane, water) ~ NIR, d, 2, "site", norm = 30, bounds = list(octane = c(5, 15), water = c(-2, 8)), epsilon = 5)
  expect_true(both$holds)
  expect_identical(colnames(predict(both, d[1:3, ])), c("octane", "water"))
  expect_identical(names(augment(both, d[1:2, ]))[5:6], c(".fitted: octane", ".fitted: water"))
  expect_identical(rownames(both$matrices$y_loadings), c("octane", "water"))
  loadings <- stats::prcomp(NIR)$rotation[, 1:3]
  own <- unpooled_pls(octane ~ NIR, d, 2, norm = 30, y_bounds = c(5, 15), basis = loadings, reference = colMeans(NIR), epsilon = 5, random_state = 1)
  expect_lt(mean((predict(own, d) - d$octane)^2), 0.2)
  expect_error(unpooled_lasso(cbind(octane, water) ~ NIR, d, bounds = c(-9, 9)), "unpooled_pls takes several", class = "unpooled_usage")
})

test_that("what there is no way to ask or to answer is refused in words", {
  skip_without_command()
  d <- patients()
  fit <- unpooled_lasso(y ~ ., d, P, epsilon = 8, bounds = BOUNDS, y_bounds = c(-5, 15), random_state = 1)
  expect_identical(names(tidy(fit)), c("term", "estimate"))
  expect_error(tidy(fit, conf.int = TRUE), "intervals need them", class = "unpooled_usage")
  for (method in list(vcov, confint, anova)) expect_error(method(fit), "unpooled_lasso has no standard errors", class = "unpooled_usage")
  expect_error(unpooled_contrast(fit, "age"), "contrasts need them", class = "unpooled_usage")
  expect_error(predict(fit, d[1:2, ], party = "lab"), "study of its own", class = "unpooled_usage")
  expect_error(predict(fit, d[1:2, ], type = "scores"), "unpooled_pls", class = "unpooled_usage")
  expect_error(predict(fit, d["age"]), "no column", class = "unpooled_usage")
  expect_error(predict(fit, list(age = 3)), "newdata is of class list", class = "unpooled_usage")
  expect_output(print(summary(fit)), "no standard errors here")
  for (formula in list(y ~ age * dose, y ~ log(dose), y ~ age - 1, y ~ offset(dose) + age)) {
    expect_error(unpooled_lasso(formula, d, P), "as they are", class = "unpooled_usage")
  }
  expect_error(unpooled_lasso(~age, d), "left side", class = "unpooled_usage")
  expect_error(unpooled_lasso(y ~ 1, d), class = "unpooled_usage")
  expect_error(unpooled_lasso(nothing ~ ., d), "no column 'nothing'", class = "unpooled_usage")
  expect_error(unpooled_lasso(y ~ ., d, list(a = "nothing")), "'nothing'", class = "unpooled_usage")
  expect_error(unpooled_lasso(y ~ ., d, list("age", "dose")), "who holds which columns", class = "unpooled_usage")
  expect_error(unpooled_lasso(d["age"], d$y[1:3]), "1500 rows, and y has 3", class = "unpooled_usage")
  expect_error(unpooled_lasso(d["age"]), "y is missing", class = "unpooled_usage")
  expect_error(unpooled_lasso(y ~ ., list(d)), "one order", class = "unpooled_usage")
  expect_error(unpooled_pride(y ~ ., d, P, "normal"), "choose one of", class = "unpooled_usage")
  expect_error(unpooled_pride(y ~ ., d, P, gaussian(link = "log")), "link", class = "unpooled_usage")
  expect_error(unpooled_pride(y ~ ., d, P, bounds = BOUNDS, epsilom = 3), "did you mean 'epsilon'", class = "unpooled_usage")
})

test_that("ratios are refused where exp() means nothing, and follow broom where it does", {
  skip_without_command()
  d <- patients()
  linear <- unpooled_lm(y ~ age, d, epsilon = 5, bounds = BOUNDS["age"], y_bounds = c(-5, 15), random_state = 1)
  for (asked in list(tidy, summary)) expect_error(asked(linear, exponentiate = TRUE), "means nothing", class = "unpooled_usage")
  expect_error(unpooled_contrast(linear, "age", exponentiate = TRUE), "means nothing", class = "unpooled_usage")
  expect_error(tidy(unpooled_pride(y ~ ., d, P, bounds = BOUNDS, random_state = 1), exponentiate = TRUE), "means nothing", class = "unpooled_usage")
  bare <- unpooled_glm(ill ~ age, binomial(), d, epsilon = 5, bounds = BOUNDS["age"], classes = c("well", "ill"), method = "gradient", random_state = 1)
  expect_error(tidy(bare, exponentiate = TRUE), "no standard errors", class = "unpooled_usage")
  expect_error(tidy(bare, conf.int = TRUE), "no standard errors", class = "unpooled_usage")
  expect_identical(names(tidy(bare)), c("term", "estimate"))
  skip_if_not_installed("broom")
  theirs <- stats::glm(ill == "ill" ~ age, binomial(), d)
  ours <- unpooled_glm(ill ~ age, binomial(), d, epsilon = Inf, bounds = BOUNDS["age"], classes = c("well", "ill"))
  for (asked in list(list(), list(exponentiate = TRUE))) {
    broom <- as.data.frame(do.call(broom::tidy, c(list(theirs), asked)))
    mine <- do.call(tidy, c(list(ours), asked))
    expect_true(all(names(broom) %in% names(mine)))
    expect_equal(mine[1, c("estimate", "std.error", "statistic")], broom[2, c("estimate", "std.error", "statistic")], tolerance = 1e-3, ignore_attr = TRUE)
  }
  # broom's interval of a glm is of the profile likelihood, ours of the standard error, as confint.default has it.
  ends <- exp(stats::confint.default(theirs, "age", 0.8))
  expect_equal(unlist(tidy(ours, conf.int = TRUE, conf.level = 0.8, exponentiate = TRUE)[1, c("conf.low", "conf.high")]), ends[1, ], tolerance = 1e-3, ignore_attr = TRUE)
})

test_that("a plan before data is that of the fit", {
  skip_without_command()
  d <- patients()
  planned <- unpooled_plan(unpooled_lasso, formula = y ~ ., n = 1500, parties = P, bounds = c(BOUNDS, list(y = c(-5, 15))), epsilon = 8, random_state = 1)
  expect_s3_class(planned, "unpooled_plan")
  fit <- unpooled_lasso(y ~ ., d, P, epsilon = 8, bounds = c(BOUNDS, list(y = c(-5, 15))), random_state = 1)
  expect_identical(planned$plan, fit$plan)
  expect_output(print(planned), "rounded Gaussian")
  pride <- unpooled_plan(unpooled_pride, formula = ill ~ ., family = binomial(), n = 1500, parties = P, bounds = BOUNDS, classes = c("well", "ill"), epsilon = 5, random_state = 1)
  expect_identical(pride$plan, unpooled_pride(ill ~ ., d, P, binomial(), epsilon = 5, bounds = BOUNDS, classes = c("well", "ill"), random_state = 1)$plan)
  rows <- unpooled_plan(unpooled_glm, formula = ill ~ age, n = c(north = 700, coast = 800), bounds = BOUNDS["age"], classes = c("a", "b"))
  expect_setequal(rows$releases$party, c("north", "coast"))
  expect_gt(nrow(unpooled_plan(unpooled_pls, n = 5000, columns = 50, norm = 1.5, y_bounds = c(0, 10))$releases), 0)
  expect_gt(nrow(unpooled_plan(unpooled_surv, formula = Surv(time, event) ~ age, n = 4000, bounds = BOUNDS["age"], y_bounds = c(0, 20), cuts = c(5, 10))$releases), 0)
  expect_error(unpooled_plan(unpooled_describe, n = 10), "one of unpooled_lm", class = "unpooled_usage")
  expect_error(unpooled_plan(unpooled_lm, formula = y ~ age), "n is the number", class = "unpooled_usage")
  expect_error(unpooled_plan(unpooled_lm, formula = y ~ age, n = 100), "bounds", class = "unpooled_usage")
  expect_error(unpooled_plan(unpooled_lasso, formula = y ~ ., n = c(a = 10, b = 20), bounds = BOUNDS, y_bounds = c(0, 1)), "sites", class = "unpooled_usage")
  expect_error(unpooled_plan("study.toml", n = 10), "says itself", class = "unpooled_usage")
})

test_that("studies of parties with columns run from R alone", {
  skip_without_command()
  skip_on_os("windows")
  folder <- tempfile("parties-")
  dir.create(folder)
  on.exit(unlink(folder, recursive = TRUE))
  set.seed(NULL) # ledgers keep the budget of these very rows
  n <- 3000
  d <- data.frame(id = sprintf("p%04d", 1:n), age = runif(n, 20, 90), dose = runif(n, 0, 10))
  d$y <- pmin(pmax(0.03 * (d$age - 55) + 0.2 * (d$dose - 5) + rnorm(n, 0, 0.3), -4), 4)
  d$ill <- ifelse(d$y > 0, "yes", "no")
  parties <- mapply(function(name, column, range) {
    file <- file.path(folder, paste0(name, ".csv"))
    utils::write.csv(d[c("id", column, "y", "ill")], file, row.names = FALSE)
    unpooled_party(file, name, setNames(list(range), column), folder = file.path(folder, name), id = "id", labels = c("y", "ill"), epsilon = 90)
  }, c("clinic", "lab"), c("age", "dose"), list(c(0, 110), c(0, 10)))
  asked <- function(fit, file, ..., left = "y") {
    formula <- stats::as.formula(paste(left, "~ ."))
    study <- unpooled_study(file.path(folder, file), parties)
    expect_error(fit(formula, study = study, epsilon = 8, ...), class = "unpooled_refused")
    for (party in parties) unpooled_approve(study, party)
    fit(formula, study = study, epsilon = 8, ...)
  }
  lasso <- asked(unpooled_lasso, "lasso.toml", y_bounds = c(-4, 4))
  expect_s3_class(lasso, c("unpooled_lasso", "unpooled_fit"), exact = TRUE)
  expect_true(lasso$holds)
  expect_identical(nobs(lasso), 3000L)
  expect_length(predict(lasso, d[1:3, ]), 3)
  stack <- asked(unpooled_stacking, "stack.toml", left = "ill", classes = c("no", "yes"))
  expect_identical(levels(predict(stack, d[1:3, ], type = "class")), c("no", "yes"))
  study <- unpooled_study(file.path(folder, "pride.toml"), parties)
  # One column at a party is as good as nothing, and said so before anybody is asked.
  expect_error(unpooled_pride(y ~ ., study = study, epsilon = 8), "next to nothing", class = "unpooled_refused")
  for (party in parties) unpooled_approve(study, party)
  pride <- unpooled_run(study, force = TRUE)
  expect_s3_class(pride, "unpooled_release")
  expect_output(print(pride), "stay at the parties")
  study <- unpooled_study(file.path(folder, "none.toml"), parties)
  expect_error(unpooled_lasso(y ~ ., study = study), "y_bounds = c", class = "unpooled_usage")
  expect_error(unpooled_lasso(y ~ age, study = study), "write y ~ .", class = "unpooled_usage", fixed = TRUE)
  expect_error(unpooled_lasso(y ~ ., study = study, y_bounds = c(0, 4)), "about 0", class = "unpooled_usage")
  expect_error(unpooled_pride(y ~ ., study = study, budget = 1), "ledgers of its parties", class = "unpooled_usage")
  expect_error(unpooled_pride(y ~ ., study = study, delta = 1e-6), "leave delta out", class = "unpooled_usage")
  expect_error(unpooled_pls(y ~ ., study = study, bounds = c(0, 1)), "leave bounds out", class = "unpooled_usage")
  expect_false(file.exists(study$file))
})
