"""Where the real tables are that some tests use: not in this repository, and those tests are skipped without them."""

import os
from pathlib import Path

SHARED = Path(os.environ.get("KITT_DATA_DIR", Path(__file__).parents[2] / "shared" / "data"))
ATLAS, UCI = SHARED / "atlas", SHARED / "uci"
