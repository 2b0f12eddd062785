# Figures with base graphics.

plot.unpooled_fit <- function(x, which = c("coefficients", "survival"), level = 0.95, exponentiate = FALSE, ...) {
  which <- match.arg(which)
  if (which == "survival") {
    if (is.null(x$curve)) usage("there is no survival curve: it comes with unpooled_surv")
    plot_survival(list(all = x$curve), ...)
    return(invisible(x))
  }
  table <- summary(x, level = level, exponentiate = exponentiate)
  plot_terms(table, ...)
  invisible(x)
}

# Each line with its interval; the darker part of it would be there without privacy.
plot_terms <- function(table, ...) {
  terms <- table$terms[!is.na(table$terms$std_error) & table$terms$group != "Kaplan-Meier", ]
  if (!nrow(terms)) usage("there are no standard errors to draw")
  at <- rev(seq_len(nrow(terms)))
  part <- sqrt(pmax(1 - (terms$privacy / terms$std_error)^2, 0))
  ratio <- nzchar(table$ratio)
  inner <- function(end) if (ratio) exp(log(terms$estimate) + part * (log(end) - log(terms$estimate))) else terms$estimate + part * (end - terms$estimate)
  before <- par(mar = c(4, max(nchar(terms$term)) / 2 + 1, 1, 1))
  on.exit(par(before))
  plot(terms$estimate, at,
    xlim = range(terms$conf_low, terms$conf_high), ylim = c(0.5, nrow(terms) + 0.5), yaxt = "n", ylab = "", pch = 19,
    xlab = paste0(if (ratio) table$ratio else "estimate", " with ", format(100 * table$confidence), " % intervals"),
    log = if (ratio) "x" else "", ...
  )
  abline(v = if (ratio) 1 else 0, col = "grey80")
  segments(terms$conf_low, at, terms$conf_high, at, col = "grey60")
  segments(inner(terms$conf_low), at, inner(terms$conf_high), at, lwd = 3, col = "steelblue")
  points(terms$estimate, at, pch = 19, col = "steelblue")
  axis(2, at = at, labels = terms$term, las = 1)
}

plot_survival <- function(curves, ...) {
  end <- max(unlist(lapply(curves, `[[`, "times")))
  plot(NA, xlim = c(0, end), ylim = c(0, 1), xlab = "time", ylab = "survival", ...)
  colours <- c("steelblue", "tomato3", "darkseagreen4", "goldenrod3", "grey40")
  for (k in seq_along(curves)) {
    one <- curves[[k]]
    colour <- colours[(k - 1) %% length(colours) + 1]
    band <- step(one$times, one$low, one$high)
    polygon(band$x, band$y, col = grDevices::adjustcolor(colour, 0.2), border = NA)
    lines(one$times, one$survival, type = "s", col = colour, lwd = 2)
  }
  if (length(curves) > 1) graphics::legend("bottomleft", names(curves), col = colours, lwd = 2, bty = "n")
}

# The outline of a band that is constant between two times.
step <- function(times, low, high) {
  n <- length(times)
  x <- c(times[1], rep(times[-1], each = 2))
  k <- c(rep(seq_len(n - 1), each = 2), n)
  list(x = c(x, rev(x)), y = c(low[k], rev(high[k])))
}

plot.unpooled_release <- function(x, which = c("roc", "calibration"), ...) {
  which <- match.arg(which)
  if (is.null(x$curves$cells) && length(x$curves)) {
    plot_survival(x$curves, ...)
    return(invisible(x))
  }
  if (is.null(x$curves$cells)) usage("there is nothing to draw: unpooled_diagnose has curves")
  if (which == "roc" && !is.null(x$curves$roc)) {
    band <- lapply(x$curves$roc, as.numeric)
    plot(band$false, band$true,
      type = "n", xlim = 0:1, ylim = 0:1, xlab = "false positives", ylab = "true positives",
      main = paste("AUC", format(x$curves$auc$value, digits = 3)), ...
    )
    polygon(c(band$false, rev(band$false)), c(band$low, rev(band$high)), col = grDevices::adjustcolor("steelblue", 0.2), border = NA)
    lines(band$false, band$true, col = "steelblue", lwd = 2)
    abline(0, 1, lty = 3, col = "grey60")
    return(invisible(x))
  }
  cells <- lapply(x$curves$cells, as.numeric)
  classes <- !is.null(x$curves$roc)
  plot(cells$predicted, cells$observed,
    type = "n", ylim = range(cells$low, cells$high, na.rm = TRUE),
    xlab = if (classes) "predicted probability" else "fitted mean", ylab = if (classes) "observed share" else "mean residual", ...
  )
  polygon(c(cells$predicted, rev(cells$predicted)), c(cells$low, rev(cells$high)), col = grDevices::adjustcolor("steelblue", 0.2), border = NA)
  lines(cells$predicted, cells$observed, type = "b", pch = 19, col = "steelblue")
  if (classes) abline(0, 1, lty = 3, col = "grey60") else abline(h = 0, lty = 3, col = "grey60")
  invisible(x)
}
