known <- list(age = c(0, 128), ward = c("a", "b", "c"))

people <- function(n = 3000) {
  set.seed(3)
  d <- data.frame(
    age = runif(n, 20, 90), ward = factor(sample(c("a", "b", "c"), n, TRUE)), site = sample(c("north", "coast"), n, TRUE)
  )
  d$y <- 0.05 * d$age + (d$ward == "b") + rnorm(n)
  d$ill <- ifelse(runif(n) < stats::plogis(-3 + 0.05 * d$age), "ill", "well")
  d
}

test_that("a linear fit has the methods of R", {
  skip_without_command()
  d <- people()
  fit <- unpooled_lm(y ~ age + ward, d, "site", epsilon = 3, bounds = known, y_bounds = c(-5, 12))
  expect_s3_class(fit, c("unpooled_lm", "unpooled_fit"), exact = TRUE)
  expect_true(fit$holds)
  expect_output(print(fit), "epsilon = 3")
  expect_output(print(fit), "A guarantee holds for one person's whole row")
  expect_output(print(summary(fit)), "Privacy z value Pr")
  expect_identical(names(coef(fit)), c("age", "ward: b - a", "ward: c - a", "(intercept)"))
  expect_identical(dim(vcov(fit)), c(4L, 4L))
  expect_equal(unname(sqrt(diag(vcov(fit)))), summary(fit)$terms$std_error)
  expect_equal(unname(confint(fit)), unname(as.matrix(fit$terms[c("conf_low", "conf_high")])), tolerance = 1e-6)
  expect_identical(nrow(confint(fit, "age", 0.9)), 1L)
  expect_identical(nobs(fit), 3000L)
  expect_length(predict(fit, d[1:5, ]), 5)
  band <- predict(fit, d[1:5, ], interval = "prediction")
  expect_true(all(band[, "lwr"] < band[, "fit"] & band[, "fit"] < band[, "upr"]))
  expect_identical(rownames(anova(fit)), c("age", "ward"))
  expect_identical(anova(fit, smaller = "age")$Df, 2)
  expect_identical(tidy(fit, conf.int = TRUE)$term, names(coef(fit)))
  expect_identical(glance(fit)$epsilon, 3)
  expect_identical(names(augment(fit, d[1:2, ])), c(names(d), ".fitted"))
  expect_error(predict(fit), class = "unpooled_usage")
  expect_error(predict(fit, d["age"]), "no column ward", class = "unpooled_usage")
  apart <- unpooled_contrast(fit, "ward: b - a", "ward: c - b")
  expect_identical(apart$joint$degrees, 2L)
  expect_output(print(apart), "joint test")
  expect_identical(rownames(summary(fit, reference = list(ward = "b"))$coefficients)[2:3], c("ward: a - b", "ward: c - b"))
  again <- unserialize(serialize(fit, NULL))
  unpooled_stop()
  expect_identical(predict(again, d[1:5, ]), predict(fit, d[1:5, ]))
})

test_that("a logistic fit compares with the first declared class", {
  skip_without_command()
  d <- people()
  fit <- unpooled_glm(ill ~ age + ward, binomial(), d, epsilon = Inf, bounds = known, classes = c("well", "ill"))
  other <- unpooled_glm(ill ~ age + ward, binomial(), d, epsilon = Inf, bounds = known, classes = c("ill", "well"))
  expect_equal(coef(fit), -coef(other), tolerance = 1e-6)
  expect_true(coef(fit)[["age"]] > 0)
  p <- predict(fit, d)
  expect_equal(stats::qlogis(p), predict(fit, d, type = "link"))
  expect_identical(levels(predict(fit, d[1:3, ], type = "class")), c("well", "ill"))
  expect_identical(as.character(predict(fit, d, type = "class")), ifelse(p > 0.5, "ill", "well"))
  expect_output(print(summary(fit, exponentiate = TRUE)), "odds ratio")
  expect_equal(tidy(fit, exponentiate = TRUE)$estimate, exp(unname(coef(fit))))
  seen <- unpooled_diagnose(fit, d, "ill", epsilon = 5)
  expect_true(seen$curves$auc$value > 0.6)
  d$ill <- d$ill == "ill" # truth values declare their classes
  expect_equal(coef(unpooled_glm(ill ~ age + ward, binomial(), d, epsilon = Inf, bounds = known)), coef(fit))
  expect_error(unpooled_glm(ward ~ age, binomial(), d, bounds = known, classes = c("a", "b")), "neither", class = "unpooled_usage")
})

test_that("several classes, counts and times", {
  skip_without_command()
  d <- people()
  several <- unpooled_glm(ward ~ age, "multinomial", d, epsilon = Inf, bounds = known["age"], classes = c("b", "a", "c"))
  expect_identical(names(coef(several))[1], "a: age")
  expect_equal(rowSums(predict(several, d[1:4, ])), rep(1, 4))
  d$falls <- rpois(nrow(d), 2)
  counts <- unpooled_glm(falls ~ age, poisson(), d,
    epsilon = Inf, bounds = known["age"], y_bounds = c(0, 20), dispersion = 1,
    exposure = rep(c(1, 2), 1500), exposure_bounds = c(1, 2)
  )
  expect_equal(predict(counts, d[1:2, ], exposure = c(2, 2)), 2 * predict(counts, d[1:2, ], exposure = c(1, 1)))
  d$time <- rexp(nrow(d), 0.2)
  d$event <- d$time < 6
  times <- unpooled_surv(Surv(time, event) ~ age, d, epsilon = Inf, bounds = known["age"], y_bounds = c(0, 6), cuts = 3)
  expect_s3_class(times, "unpooled_surv")
  expect_identical(colnames(predict(times, d[1:2, ], type = "survival")), c("survival to 3", "survival to 6"))
  grDevices::pdf(NULL)
  on.exit(grDevices::dev.off())
  plot(times)
  plot(times, "survival")
  plot(several, exponentiate = TRUE)
  expect_error(plot(counts, "survival"), class = "unpooled_usage")
})

test_that("bounds that are read off the data warn and promise nothing; a factor's first level stays the reference", {
  skip_without_command()
  d <- people()
  d$ward <- stats::relevel(d$ward, "c")
  expect_warning(fit <- unpooled_lm(y ~ ward, d, y_bounds = c(-5, 12)), class = "PrivacyLeakWarning")
  expect_false(fit$holds)
  expect_identical(names(coef(fit))[1:2], c("ward: a - c", "ward: b - c"))
})

test_that("missing values are refused until they are declared", {
  skip_without_command()
  d <- people()
  d$age[3] <- NA
  d$ward[4] <- NA
  expect_error(unpooled_lm(y ~ age + ward, d, bounds = known, y_bounds = c(-5, 12)), "missing", class = "unpooled_usage")
  fit <- unpooled_lm(y ~ age + ward, d, bounds = known, y_bounds = c(-5, 12), missing = "absent")
  expect_identical(fit$nobs, 3000L)
  expect_length(predict(fit, d[1:5, ]), 5)
})

test_that("what is typical of a column is said among the further arguments", {
  skip_without_command()
  d <- people()
  fit <- unpooled_lm(y ~ age + ward, d, bounds = known, y_bounds = c(-5, 12), typical = list(age = c(50, 15)))
  expect_identical(fit$nobs, 3000L)
  expect_error(
    unpooled_lm(y ~ age + ward, d, bounds = known, y_bounds = c(-5, 12), typical = list(age = 50)), "two numbers",
    class = "unpooled_usage"
  )
})

test_that("sites may be a list of frames", {
  skip_without_command()
  d <- people()
  apart <- split(d, d$site)
  fit <- unpooled_lm(y ~ age, apart, epsilon = Inf, bounds = known["age"], y_bounds = c(-5, 12))
  expect_equal(coef(fit), coef(unpooled_lm(y ~ age, d, "site", epsilon = Inf, bounds = known["age"], y_bounds = c(-5, 12))), tolerance = 1e-8)
  expect_error(unpooled_lm(y ~ age, apart, "site"), class = "unpooled_usage")
})

test_that("releases print their table and their statement", {
  skip_without_command()
  d <- people()
  found <- unpooled_describe(d, known, "site", epsilon = 1)
  expect_output(print(found), "A guarantee holds")
  expect_true("group" %in% names(tidy(found)))
  expect_true(glance(found)$holds)
  by <- unpooled_describe(d, known, by = "ward", epsilon = 2)
  expect_identical(by$kind, "ArmsDescription")
  table <- unpooled_tabulate(d, c("ward", "age"), known, cuts = list(age = I(50)), epsilon = 2)
  expect_output(print(table), "independence")
  expect_output(print(unpooled_statement(found)), "NOT protected")
})

test_that("columns at two parties", {
  skip_without_command()
  d <- people()
  parties <- list(clinic = "age", lab = c("ward", "y"))
  fit <- unpooled_joint(y ~ age + ward, d, parties, epsilon = Inf, bounds = c(known, list(y = c(-5, 12))))
  expect_equal(coef(fit)[["age"]], 0.05, tolerance = 0.2)
  found <- unpooled_joint(data = d[c("age", "y")], parties = list(clinic = "age", lab = "y"), bounds = list(age = c(0, 128), y = c(-5, 12)), epsilon = 5)
  expect_output(print(found), "correlation of")
})

test_that("treatment effects", {
  skip_without_command()
  d <- people(6000)
  d$arm <- factor(ifelse(runif(6000) < stats::plogis(0.02 * (d$age - 55)), "new", "old"), levels = c("old", "new"))
  d$y <- d$y + 2 * (d$arm == "new")
  known <- c(known, list(arm = levels(d$arm), y = c(-5, 15)))
  found <- unpooled_effect(d, "arm", "y", ~ age + ward, known, "site", epsilon = 3)
  line <- tidy(found)[1, ]
  expect_identical(line$term, "ATE: new - old")
  expect_lt(abs(line$estimate - 2), 6 * line$std.error)
  expect_true(glance(found)$holds)
  expect_output(print(found), "A guarantee holds")
  expect_identical(unpooled_effect(d, "arm", "y", c("age", "ward"), known, estimand = "ATT", estimator = "iptw", epsilon = Inf)$kind, "TreatmentEffect")
  expect_error(unpooled_effect(d, "ward", "y", "age", known), class = "unpooled_usage")
  drawn <- unpooled_effect(d, "arm", "y", ~ age + ward, known, "site", epsilon = 3, prior = list(lund = c(ATE = 2.1), first = found))
  expect_output(print(drawn), "'lund' .*'first'")
  expect_true(is.na(tidy(drawn)$p.value[1]))
})

test_that("a fit is drawn to earlier models, and has no tests", {
  skip_without_command()
  d <- people()
  fit <- function(...) {
    unpooled_lm(y ~ age + ward, d, epsilon = 10, bounds = known, y_bounds = c(-5, 12), random_state = 1, ...)
  }
  found <- fit(prior = c(age = 0.05, "ward = b" = 1))
  seen <- summary(found)
  expect_identical(colnames(seen$coefficients), c("Estimate", "Deviation", "lower", "upper"))
  expect_equal(coef(found)[["age"]], 0.05, tolerance = 0.1)
  expect_output(print(seen), "how far they drew each term: .*ward: b - a")
  expect_true(all(is.na(tidy(found)$p.value)) && all(is.na(tidy(found)$privacy)))
  expect_error(anova(found), "leave prior out", class = "unpooled_usage")
  first <- d[1:500, ]
  levels(first$ward) <- levels(d$ward)
  several <- fit(prior = list(register = stats::lm(y ~ age + ward, first), earlier = found, lund = c(age = 0.04)))
  expect_output(print(summary(several)), "'register' .*'earlier' .*'lund'")
  expect_error(fit(prior = c(height = 1)), "height", class = "unpooled_usage")
  for (wrong in list(3, "x", list(1), list(a = "x"), c(1, 2))) expect_error(fit(prior = wrong), class = "unpooled_usage")
  ill <- unpooled_glm(ill ~ age, binomial(), d,
    epsilon = 10, bounds = known["age"], classes = c("well", "ill"), random_state = 1,
    prior = stats::glm(ill == "ill" ~ age, binomial(), first)
  )
  expect_equal(coef(ill)[["age"]], 0.05, tolerance = 0.3)
  expect_identical(rownames(summary(ill, exponentiate = TRUE)$coefficients), names(coef(ill)))
})

test_that("the range or the classes of the response may stand among the bounds", {
  skip_without_command()
  d <- people()
  seed <- list(epsilon = 3, random_state = 1)
  fit <- function(...) do.call(unpooled_lm, c(list(y ~ age, d), seed, list(...)))
  expect_equal(coef(fit(bounds = list(age = c(0, 128), y = c(-5, 12)))), coef(fit(bounds = known["age"], y_bounds = c(-5, 12))), tolerance = 1e-12)
  ill <- function(...) do.call(unpooled_glm, c(list(ill ~ age, binomial(), d), seed, list(...)))
  apart <- ill(bounds = known["age"], classes = c("well", "ill"))
  expect_identical(coef(ill(bounds = c(known["age"], list(ill = c("well", "ill"))))), coef(apart))
  expect_identical(levels(predict(apart, d[1:2, ], type = "class")), c("well", "ill"))
})

test_that("a smaller model follows from the same release, and a fit of classes has none", {
  skip_without_command()
  set.seed(2)
  d <- data.frame(age = runif(4000, 20, 90), ward = sample(c("a", "b"), 4000, TRUE))
  d$y <- 0.05 * d$age + (d$ward == "b") + rnorm(4000)
  known <- list(age = c(0, 120), ward = c("a", "b"))
  fit <- unpooled_lm(y ~ age + ward, d, epsilon = 3, bounds = known, y_bounds = c(-5, 12), random_state = 1)
  small <- unpooled_submodel(fit, "ward")
  expect_equal(small$terms$term, c("ward: b - a", "(intercept)"))
  expect_lt(abs(small$terms$estimate[1] - 1), 0.5)
  expect_output(print(small), "ward: b - a")
  expect_s3_class(tidy(small), "data.frame")
  expect_error(unpooled_submodel(fit, "height"), "names declared columns", class = "unpooled_usage")
  expect_error(unpooled_submodel(fit, character()), "say which columns", class = "unpooled_usage")
  d$old <- d$age > 55
  classes <- unpooled_glm(old ~ ward, data = d, epsilon = 5, bounds = known["ward"], classes = c(FALSE, TRUE), random_state = 1)
  expect_error(unpooled_submodel(classes, "ward"), "linear regression", class = "unpooled_usage")
})
