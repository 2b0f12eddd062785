"""Communication of parties and a coordinator: messages, roles, the driver, transcripts."""
