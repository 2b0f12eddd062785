"""Text files and data files, from which a study, its plan and its parties are made."""
