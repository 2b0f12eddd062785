"""Base of all estimators: parameters are validated, arrays and frames become tables, a study runs in this process."""
