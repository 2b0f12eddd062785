"""How parties and a coordinator talk: messages, roles, the driver, transcripts."""
