"""From text files and data files to a study, its plan and its parties."""
