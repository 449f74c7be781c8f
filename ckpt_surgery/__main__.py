"""`python -m ckpt_surgery`."""

import sys

from ckpt_surgery.cli import main

if __name__ == "__main__":
    sys.exit(main())
