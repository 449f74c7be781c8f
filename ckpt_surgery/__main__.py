"""`python -m ckpt_surgery`."""

from ckpt_surgery.cli import main

if __name__ == "__main__":
    main()
