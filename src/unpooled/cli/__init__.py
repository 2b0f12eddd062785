"""The command ``unpooled``: one file per command."""
