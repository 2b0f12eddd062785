ages <- function() data.frame(age = runif(2000, 20, 90), y = runif(2000))
known <- list(age = c(0, 110))

test_that("calls of every kind are debited to one budget, which refuses what has no room", {
  skip_without_command()
  skip_if(single_calls())
  set.seed(NULL)
  d <- ages()
  budget <- unpooled_budget(3, 1e-6)
  expect_output(print(budget), "spent: 0, left: 3, by 0 releases")
  fit <- unpooled_lm(y ~ age, d, epsilon = 1, delta = 1e-6, bounds = known, y_bounds = c(0, 1), budget = budget)
  expect_equal(summary(budget)$spent, 1, tolerance = 1e-3)
  unpooled_describe(d["age"], known, epsilon = 0.5, delta = 1e-6, budget = budget)
  unpooled_diagnose(fit, d, "y", epsilon = 0.5, delta = 1e-6, budget = budget)
  unpooled_lasso(y ~ age, d, list(a = "age"), epsilon = 0.5, delta = 1e-6, bounds = known, y_bounds = c(0, 1), unit = "record", budget = budget)
  spent <- summary(budget)
  expect_gte(spent$releases, 4)
  expect_lt(spent$spent, 1 + 3 * 0.5 + 1e-3) # composed: less than the sum
  refused <- tryCatch(unpooled_describe(d["age"], known, epsilon = 2.9, delta = 1e-6, budget = budget), unpooled_budget = identity)
  expect_s3_class(refused, c("unpooled_budget", "unpooled_refused", "unpooled_error"))
  expect_match(conditionMessage(refused), "no room")
  expect_identical(summary(budget)$spent, spent$spent) # a refusal costs nothing
  expect_output(print(budget), "left: ")
  expect_error(unpooled_describe(d["age"], known, epsilon = 0.1, budget = budget, random_state = 1), "promises nothing", class = "unpooled_budget")
})

test_that("a budget ends with the process that keeps it, and is never counted as fresh", {
  skip_without_command()
  skip_if(single_calls())
  skip_on_os("windows")
  d <- ages()
  budget <- unpooled_budget(3, 1e-6)
  unpooled_describe(d["age"], known, epsilon = 1, delta = 1e-6, budget = budget)
  read <- unserialize(serialize(budget, NULL)) # of the same process: the same account
  expect_equal(summary(read)$spent, 1, tolerance = 1e-3)
  unpooled_stop()
  for (one in list(budget, read)) {
    expect_error(unpooled_describe(d["age"], known, budget = one), "ended with the process", class = "unpooled_budget")
    expect_error(summary(one), class = "unpooled_budget")
    expect_output(print(one), "of no use any more")
  }
  ask("hello") # a new process
  expect_error(unpooled_describe(d["age"], known, budget = budget), class = "unpooled_budget")
  # The process itself refuses a name that it did not give, whatever R believes.
  forged <- budget
  forged$process <- session$process
  expect_error(unpooled_describe(d["age"], known, budget = forged), "give it a file (path = ...)", fixed = TRUE, class = "unpooled_budget")
  killed <- unpooled_budget(3, 1e-6)
  tools::pskill(session$process, tools::SIGKILL)
  Sys.sleep(0.3)
  expect_error(unpooled_describe(d["age"], known, budget = killed), class = "unpooled_budget")
})

test_that("a budget in a file outlives the process, and works where each call is a process of its own", {
  skip_without_command()
  d <- ages()
  file <- tempfile("budget-")
  on.exit(unlink(paste0(file, c("", "-wal", "-shm", ".lock"))))
  budget <- unpooled_budget(3, 1e-6, path = file)
  unpooled_describe(d["age"], known, epsilon = 1, delta = 1e-6, budget = budget)
  unpooled_stop()
  expect_equal(summary(budget)$spent, 1, tolerance = 1e-3)
  expect_output(print(budget), "kept in ")
  before <- options(unpooled.single = TRUE)
  on.exit(options(before), add = TRUE)
  unpooled_describe(d["age"], known, epsilon = 1, delta = 1e-6, budget = budget)
  spent <- summary(budget)$spent
  expect_true(spent > 1 && spent < 2)
  expect_error(unpooled_describe(d["age"], known, epsilon = 2.99, delta = 1e-6, budget = budget), class = "unpooled_budget")
  expect_error(unpooled_budget(3, 1e-6), "path = ", class = "unpooled_usage")
})

test_that("what is no budget is refused", {
  skip_without_command()
  skip_if(single_calls())
  d <- ages()
  expect_error(unpooled_describe(d["age"], known, budget = 3), "unpooled_budget\\(epsilon, delta\\)", class = "unpooled_usage")
  expect_error(unpooled_budget(Inf, 1e-6), "finite", class = "unpooled_usage")
  expect_error(unpooled_budget(1, 2), "delta", class = "unpooled_usage")
  expect_error(unpooled_budget(1, 1e-6, "nobody"), "'record'", class = "unpooled_usage")
  expect_error(unpooled_lm(y ~ age, study = "x.toml", budget = unpooled_budget(1, 1e-6)), "ledgers of its parties", class = "unpooled_usage")
  # A condition of this class is printed as a condition, and not as a budget.
  refused <- tryCatch(fail("budget", "no room"), unpooled_budget = identity)
  expect_output(print(refused), "no room")
})

test_that("errors and warnings name the syntax of R", {
  skip_without_command()
  d <- ages()
  expect_error(unpooled_lm(y ~ age, d, bounds = known, fit_intercept = 3), "fit_intercept must be TRUE or FALSE, not a number", class = "unpooled_usage")
  expect_error(unpooled_lasso(y ~ age, d, list(a = "age"), bounds = known, y_bounds = 1:3), "c(low, high)", class = "unpooled_usage", fixed = TRUE)
  expect_error(unpooled_plan(unpooled_lasso, formula = y ~ age, n = 100, bounds = known), "y_bounds = c(low, high)", class = "unpooled_usage", fixed = TRUE)
  expect_warning(unpooled_lm(y ~ age, d, y_bounds = c(0, 1)), "Pass bounds = list\\(age = c\\(0, 110\\)", class = "PrivacyLeakWarning")
  expect_error(unpooled_lm(y ~ bs(age), d, bounds = known, y_bounds = c(0, 1)), "knots = c(", class = "unpooled_usage", fixed = TRUE)
})
