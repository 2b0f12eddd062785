test_that("numbers keep all bits, missing values their meaning", {
  x <- c(0.1, 1 / 3, -0, 5e-324, NA, 1e300)
  found <- column(x, "x")
  back <- readBin(jsonlite::base64_dec(found$values), "double", 6, endian = "little")
  expect_identical(back[-5], x[-5])
  expect_true(is.nan(back[5]))
  expect_identical(1 / back[3], -Inf)
  y <- stats::runif(200) * 10^stats::runif(200, -300, 300)
  expect_identical(jsonlite::fromJSON(to_json(y)), y)
})

test_that("factors keep their levels and dates their meaning", {
  found <- column(factor(c("b", NA, "a"), levels = c("b", "a", "c")), "f")
  expect_identical(unclass(found$levels), c("b", "a", "c"))
  expect_identical(readBin(jsonlite::base64_dec(found$codes), "integer", 3, endian = "little"), c(0L, -1L, 1L))
  days <- as.Date(c("2020-01-03", NA))
  known <- declared(list(day = as.Date(c("2020-01-01", "2020-12-31"))))
  expect_equal(unclass(known$bounds$day), c(0, 365))
  coded <- columns(data.frame(day = days), known$since)$day
  expect_equal(readBin(jsonlite::base64_dec(coded$values), "double", 2, endian = "little"), c(2, NaN))
  expect_equal(days(as.POSIXct("1970-01-02 12:00", tz = "UTC")), 1.5)
})

test_that("JSON is JSON", {
  expect_identical(to_json(list(a = 1, b = I(2), c = c("x", "\"y\""), d = NULL, e = TRUE)), '{"a":1,"b":[2],"c":["x","\\"y\\""],"d":null,"e":true}')
  expect_identical(to_json(c(age = "absent")), '{"age":"absent"}')
  expect_identical(to_json(c(NA, 1)), "[null,1]")
  expect_identical(to_json(Inf), '"inf"')
  long <- strrep("x", 3e6)
  expect_identical(to_json(long), paste0('"', long, '"'))
  expect_identical(jsonlite::fromJSON(to_json("\u00e9\n\\")), "\u00e9\n\\")
  expect_error(to_json(quote(x)), class = "unpooled_usage")
})

test_that("formulas are text as the one parser reads it", {
  expect_identical(formula_text(y ~ I(age^2) + `a^b`), "y ~ I(age**2) + `a^b`")
  expect_identical(formula_text(y ~ bs(x, knots = c(1, 2)) + C(w, ref = "c(1)")), "y ~ bs(x, knots = [1, 2]) + C(w, ref = \"c(1)\")")
  expect_identical(formula_text(survival::Surv(t, e) ~ x), "Surv(t, e) ~ x")
  expect_identical(formula_text(y ~ I(x / 2L)), "y ~ I(x/2)")
  expect_identical(left_side(Surv(t, e) ~ x), c("t", "e"))
  expect_error(left_side(log(y) ~ x), class = "unpooled_usage")
})

test_that("what cannot be handed over is refused by name", {
  expect_error(columns(data.frame(x = 1:2 + 1i)), "column 'x'", class = "unpooled_usage")
  expect_error(columns(list(x = 1)), class = "unpooled_usage")
  expect_error(declared(list(1, 2)), class = "unpooled_usage")
  expect_error(family_name(Gamma()), "link", class = "unpooled_usage")
  expect_error(family_name(inverse.gaussian()), class = "unpooled_usage")
  expect_identical(family_name(binomial), "logistic")
  expect_identical(family_name("multinomial"), "multinomial")
})

test_that("without the command an error says how to install it", {
  before <- options(unpooled.command = "/no/such/command")
  on.exit(options(before))
  expect_false(unpooled_available())
  expect_error(unpooled_command("schema"), "pip install", class = "unpooled_missing")
})
