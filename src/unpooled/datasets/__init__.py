"""Simulators of the data that the experiments and demonstrations need."""
