library(testthat)
library(unpooled)

test_check("unpooled")
