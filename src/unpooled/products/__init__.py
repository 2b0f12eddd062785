"""Sums over people whose columns lie at different organisations: masked products, the proof that rows are short, joint moments."""
