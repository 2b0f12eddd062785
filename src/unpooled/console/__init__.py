"""The console: pages on this machine where a party's people read studies, decide about them, and see the budget. No script, no other host."""
