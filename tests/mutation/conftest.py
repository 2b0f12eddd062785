"""A program of its own (``make mutants``), whose modules import each other: nothing here is a test."""

collect_ignore_glob = ["*.py"]
