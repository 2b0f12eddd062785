"""``python -m unpooled``: the command line."""

from unpooled.cli.main import main

main()
