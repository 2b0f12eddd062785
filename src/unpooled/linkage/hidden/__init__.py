"""Hidden linking: a helper gives the rows of parties places, and nobody at a party or at the coordinator learns who is on another list."""
