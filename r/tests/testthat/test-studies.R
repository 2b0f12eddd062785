# Hospitals with files of their own.
hospitals <- function(names = c("north", "coast", "city"), epsilon = 3, n = 1500) {
  folder <- tempfile("hospitals-")
  dir.create(folder)
  set.seed(NULL)
  parties <- vapply(names, function(name) {
    d <- data.frame(age = runif(n, 20, 90), ward = sample(c("a", "b"), n, TRUE))
    d$stay <- pmin(pmax(2 + 0.05 * d$age + (d$ward == "b") + rnorm(n), 0), 15)
    d$back <- ifelse(runif(n) < stats::plogis(-3 + 0.04 * d$age), "yes", "no")
    file <- file.path(folder, paste0(name, ".csv"))
    utils::write.csv(d, file, row.names = FALSE)
    unpooled_party(file, name, list(age = c(0, 120), ward = c("a", "b"), stay = c(0, 15), back = c("no", "yes")),
      folder = file.path(folder, name), epsilon = epsilon
    )
  }, "")
  list(folder = folder, parties = parties, study = file.path(folder, "study.toml"))
}

test_that("three hospitals from R alone, and every class of refusal", {
  skip_without_command()
  skip_on_os("windows")
  world <- hospitals()
  study <- unpooled_new("glm", world$parties, back ~ age + ward, epsilon = 2, file = world$study, parameters = list(purpose = "a test"))
  expect_output(print(study), "party .*north")
  plan <- unpooled_plan(study)
  expect_output(print(plan), "distributed Gaussian")
  expect_error(unpooled_new("glm", world$parties, back ~ age, file = world$study), "exists already", class = "unpooled_usage")
  refused <- tryCatch(unpooled_run(study), unpooled_refused = identity)
  expect_s3_class(refused, c("unpooled_refused", "unpooled_error"))
  expect_identical(refused$code, 3L)
  expect_false(inherits(refused, "unpooled_budget"))
  expect_false(unpooled_approve(study, world$parties[["north"]], approve = FALSE)$approved)
  for (party in world$parties) unpooled_approve(study, party, by = "an officer", reason = "a test")
  fit <- unpooled_run(study)
  expect_true(fit$holds)
  expect_identical(fit$nobs, 4500L)
  expect_output(print(summary(fit, exponentiate = TRUE)), "odds ratio")
  expect_output(print(unpooled_contrast(fit, "ward: b - a")), "ward: b - a")
  expect_length(predict(fit, data.frame(age = c(30, 60), ward = c("a", "b"))), 2)
  expect_identical(coef(unpooled_result(study)), coef(fit))
  expect_message(unpooled_run(study), "has run before")
  ledger <- unpooled_ledger(world$parties[["city"]])
  expect_equal(ledger$spent_epsilon, 2, tolerance = 1e-3)
  expect_output(print(ledger), "an officer")

  more <- unpooled_new("glm", world$parties, back ~ age, epsilon = 2.5, file = sub("study", "more", world$study))
  budget <- tryCatch(unpooled_approve(more, world$parties[["north"]]), unpooled_budget = identity)
  expect_s3_class(budget, c("unpooled_budget", "unpooled_refused"))
  expect_error(unpooled_ledger(tempfile()), class = "unpooled_usage")
  expect_error(unpooled_command("plan", "nothing.toml"), class = "unpooled_usage")
  expect_error(unpooled_command("plan", "--nonsense"), class = "unpooled_usage")
})

test_that("a fit writes its study and runs it once all have approved", {
  skip_without_command()
  skip_on_os("windows")
  world <- hospitals(c("north", "coast"), n = 10000) # enough rows for the interaction to be determined whatever the noise
  study <- unpooled_study(world$study, world$parties)
  expect_error(unpooled_lm(stay ~ age * ward, study = study, epsilon = 2), class = "unpooled_refused")
  for (party in world$parties) unpooled_approve(study, party)
  fit <- unpooled_lm(stay ~ age * ward, study = study, epsilon = 2)
  expect_true("age * (ward: b - a)" %in% names(coef(fit)))
  expect_identical(formula(fit), stay ~ age * ward)

  next_one <- unpooled_study(sub("study", "next", world$study), world$parties)
  expect_error(unpooled_lm(stay ~ age * ward, study = next_one, epsilon = 0.1, prior = list(lund = c(age = 0.05), spring = fit)), class = "unpooled_refused")
  expect_match(paste(readLines(next_one$file), collapse = "\n"), "prior = [{ \"name\" = \"lund\"", fixed = TRUE)
  for (party in world$parties) unpooled_approve(next_one, party)
  expect_error(unpooled_run(next_one), "no line of it is printed in more than half of the studies", class = "unpooled_refused")
  drawn <- unpooled_run(next_one, force = TRUE) # earlier models draw it; the plan leaves them out
  expect_output(print(summary(drawn)), "'lund' .*'study.run'")
})

test_that("a study that fits nothing is a release", {
  skip_without_command()
  skip_on_os("windows")
  world <- hospitals(c("north", "coast"))
  study <- unpooled_new("describe", world$parties, file = world$study)
  for (party in world$parties) unpooled_approve(study, party)
  found <- unpooled_run(study)
  expect_s3_class(found, "unpooled_release")
  expect_output(print(found), "age: mean")
  expect_true(glance(found)$holds)
})

test_that("parameters are written over the comments that name them", {
  file <- tempfile()
  writeLines(c("[parameters]", "# ridge = 0.0   # a penalty", "family = \"logistic\"", "[privacy]"), file)
  set_parameters(file, list(ridge = 0.5, family = "survival", cuts = I(2), reference = c(ward = "b")))
  expect_identical(readLines(file), c("[parameters]", "reference = { \"ward\" = \"b\" }", "cuts = [2]", "ridge = 0.5", "family = \"survival\"", "[privacy]"))
})
