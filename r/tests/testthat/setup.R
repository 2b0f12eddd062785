# The list of this user's ledgers is kept in a folder of the tests.
Sys.setenv(XDG_STATE_HOME = tempfile("state-"))
