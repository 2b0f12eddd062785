"""Attacks on our own promises: neighbours, replays, broken studies that must be caught."""
