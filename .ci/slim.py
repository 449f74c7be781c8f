"""Print what `make slim` installs: the dependencies in pyproject.toml without jax and Orbax, and h5py."""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
LEFT_OUT = ("jax", "orbax-checkpoint")


def main() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["hdf5"]]:
        if re.split(r"[^\w.-]", requirement)[0] not in LEFT_OUT:
            print(requirement)


if __name__ == "__main__":
    main()
