"""Numbers only: arrays in, arrays out. Nothing here knows what privacy is."""
