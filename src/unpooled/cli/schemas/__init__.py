"""The data that commands print with ``--json``, as types: JSON schemas are made from them, and no output is printed that does not match."""
