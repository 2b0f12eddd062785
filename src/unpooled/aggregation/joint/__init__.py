"""Second moments of rows whose columns lie at different parties: masked products, the proof that rows are short, and the sum that opens the total."""
