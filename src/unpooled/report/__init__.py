"""A run of a study as one self-contained page, for those who must sign it off."""
