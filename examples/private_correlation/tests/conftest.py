"""Turn on the plugin of the contract, and find the cases next to this file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = ["unpooled.testing"]
