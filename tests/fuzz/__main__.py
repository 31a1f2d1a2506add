"""`python -m tests.fuzz`: the campaign; see docs/background/testing.md."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "oracles")]

if __name__ == "__main__":
    from campaign import main

    main()
