"""Print pip constraints for the lowest versions that pyproject.toml allows: `>=` becomes `==`.

They are those of the package itself and of its demo; what only tests and tools need is left to pip.
"""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
BOUND = re.compile(r"([\w.-]+)>=([\w.]+)")


def main() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["demo"]]:
        bound = BOUND.fullmatch(requirement)
        if bound is None:
            raise SystemExit(f"{requirement}: write it as NAME>=VERSION")
        print(f"{bound[1]}=={bound[2]}")


if __name__ == "__main__":
    main()
