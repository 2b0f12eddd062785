"""Products of columns that lie at different parties, from masked rows, with a proof that rows are no longer than declared."""
