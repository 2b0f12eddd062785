"""What all estimators share: parameters are validated, arrays and frames become tables, a study runs in this process."""
