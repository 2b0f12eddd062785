# Shared budgets: an account that several calls are debited to. It is kept by the process behind the package, or by a file.

unpooled_budget <- function(epsilon, delta, unit = "record", path = NULL) {
  if (is.null(path) && single_calls()) {
    usage("here every call is a process of its own, and a budget without a file ends with its process: unpooled_budget(epsilon, delta, path = \"people.budget\")")
  }
  if (!is.numeric(epsilon) || length(epsilon) != 1 || !is.finite(epsilon)) {
    usage("epsilon of a budget is a finite number: leave budget out of the calls to spend without a limit")
  }
  of <- if (!is.null(path)) list(of = "file", path = path(path), epsilon = epsilon, delta = delta, unit = unit)
  told <- ask("budget", of = of, epsilon = epsilon, delta = delta, unit = unit, caller = match.call())
  structure(
    list(epsilon = told$epsilon, delta = told$delta, unit = told$unit, path = of$path, name = told$name, process = told$process),
    class = "unpooled_account"
  )
}

# The process that keeps the account, where there is one, still answers this session.
still_kept <- function(budget) {
  !is.null(budget$path) || !single_calls() && running() && identical(session$process, budget$process)
}

ENDED <- paste(
  "this budget ended with the process that kept its account, so that nobody knows what is left of it: make a new one for people who were in",
  "no fit yet, and give it a file where it has to outlive the process: unpooled_budget(epsilon, delta, path = \"people.budget\")"
)

# What a request says of the budget that it is debited to; nothing without one.
debit <- function(budget) {
  if (is.null(budget)) return(NULL)
  if (!inherits(budget, "unpooled_account")) usage("budget is one of unpooled_budget(epsilon, delta)")
  if (!still_kept(budget)) fail("budget", ENDED)
  list(budget = meant_budget(budget))
}

meant_budget <- function(budget) {
  if (is.null(budget$path)) return(list(of = "memory", name = budget$name))
  c(list(of = "file"), unclass(budget)[c("path", "epsilon", "delta", "unit")])
}

# What is spent so far: asked each time, for other calls and other sessions spend it too.
state_of <- function(budget) {
  debit(budget)
  ask("budget", of = meant_budget(budget))
}

print.unpooled_account <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  cat("A budget of epsilon = ", format(x$epsilon, digits = digits), " at delta = ", format(x$delta), " per ", x$unit, "\n", sep = "")
  if (!still_kept(x)) {
    cat(strwrap(paste0("It is of no use any more: ", ENDED), exdent = 2), sep = "\n")
    return(invisible(x))
  }
  now <- state_of(x)
  cat(
    "spent: ", format(now$spent, digits = digits), ", left: ", format(max(x$epsilon - now$spent, 0), digits = digits), ", by ", now$fits,
    if (now$fits == 1) " release" else " releases", "\n",
    sep = ""
  )
  if (!is.null(x$path)) cat("kept in ", x$path, "\n", sep = "")
  invisible(x)
}

summary.unpooled_account <- function(object, ...) {
  now <- state_of(object)
  data.frame(
    epsilon = object$epsilon, delta = object$delta, unit = object$unit, spent = now$spent,
    left = max(object$epsilon - now$spent, 0), releases = now$fits
  )
}
