"""Look for what was planted in a checkpoint, by TensorStore alone: `python -m benchmarks.planted PATH`."""

import sys
from pathlib import Path

import tensorstore as ts

from benchmarks.llama import LLAMA_405B, Llama, Planted, plantings


def element(path: Path, planted: Planted) -> float:
    """The value at the place where the planted one should be."""
    base = {"driver": "ocdbt", "base": f"file://{path}/", "path": planted.key.replace("/", ".") + "/"}
    array = ts.open({"driver": "auto", "kvstore": base}).result()
    return float(array[planted.found_at].read().result())


def main(path: Path, model: Llama = LLAMA_405B) -> int:
    """Count the planted elements; raises ValueError where one is missing."""
    everything = list(plantings(model))
    lost = [planted for planted in everything if element(path, planted) != 1.0]
    if lost:
        raise ValueError(f"not where it belongs: {lost}")
    return len(everything)


if __name__ == "__main__":
    print(main(Path(sys.argv[1]).absolute()))
