"""Rows and rounds that linear models share: layouts, standardised rows, second moments, descent along noisy gradients."""
