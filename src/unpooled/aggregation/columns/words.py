"""Words of a study whose columns lie at several parties."""

#: Columns are split; every party proves that its masked rows are short, or does not.
COLUMNS, PROOF, UNPROVED = "columns", "proof", "none"
