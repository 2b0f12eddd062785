test_that("one process answers all calls of a session", {
  skip_without_command()
  first <- ask("hello")
  expect_identical(ask("hello")$process, first$process)
  unpooled_stop()
  expect_false(identical(ask("hello")$process, first$process))
})

test_that("a process that dies is replaced", {
  skip_without_command()
  skip_on_os("windows")
  pid <- ask("hello")$process
  tools::pskill(pid, tools::SIGKILL)
  Sys.sleep(0.3)
  expect_false(identical(ask("hello")$process, pid))
})

test_that("after an interrupt requests and answers are in step, and the process goes on", {
  skip_without_command()
  skip_on_os("windows")
  set.seed(1)
  pid <- ask("hello")$process
  d <- data.frame(x = runif(1e6, -1, 1), y = rpois(1e6, 1))
  system(paste0("(sleep 0.4; kill -INT ", Sys.getpid(), ") &"))
  ended <- tryCatch(
    {
      unpooled_glm(y ~ x + I(x^2) + exp(x) + I(x^3), poisson(), d, epsilon = Inf, bounds = list(x = c(-1, 1)), y_bounds = c(0, 20))
      Sys.sleep(5)
    },
    interrupt = function(e) "interrupted"
  )
  expect_identical(ended, "interrupted")
  expect_identical(ask("hello")$process, pid)
})

test_that("single calls give the same answers", {
  skip_without_command()
  known <- list(x = c(-1, 1))
  set.seed(1)
  d <- data.frame(x = runif(500, -1, 1))
  one <- unpooled_describe(d, known, random_state = 1)
  before <- options(unpooled.single = TRUE)
  on.exit(options(before))
  expect_identical(unpooled_describe(d, known, random_state = 1)$terms, one$terms)
})

test_that("the bridge takes less than 50 ms on top of the command's own time", {
  skip_without_command()
  skip_if(single_calls())
  d <- data.frame(x = runif(1e4), y = runif(1e4), w = sample(letters, 1e4, TRUE))
  data <- columns(d)
  ask("hello")
  took <- vapply(1:20, function(k) system.time(ask("hello"))[["elapsed"]], 0)
  expect_lt(stats::median(took), 0.05)
  expect_lt(system.time(to_json(columns(d)))[["elapsed"]], 0.5)
})

test_that("the process ends when R is killed", {
  skip_without_command()
  skip_on_os("windows")
  skip_if_not(full, "the long tests")
  out <- tempfile()
  where <- dirname(find.package("unpooled"))
  code <- sprintf("library(unpooled, lib.loc = '%s'); cat(unpooled:::ask('hello')$process, Sys.getpid(), file = '%s'); Sys.sleep(60)", where, out)
  system2(file.path(R.home("bin"), "Rscript"), c("-e", shQuote(code)), wait = FALSE)
  for (k in 1:200) if (file.exists(out) && length(scan(out, quiet = TRUE)) == 2) break else Sys.sleep(0.1)
  pids <- scan(out, quiet = TRUE)
  expect_true(tools::pskill(pids[1], 0))
  tools::pskill(pids[2], tools::SIGKILL)
  for (k in 1:50) if (!tools::pskill(pids[1], 0)) break else Sys.sleep(0.1)
  expect_false(tools::pskill(pids[1], 0))
})
