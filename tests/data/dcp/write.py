"""Writes the checkpoints beside this file, with the version of torch that runs it.

`python write.py alone NAME` writes what one process saves; torch 2.2.2 and 2.4.1 have written `2.2.2` and
`2.4.1`. `python write.py ranks NAME` lets four processes save, with two threads each, tensors that are
divided in every way, and a module under FSDP with its optimizer; torch 2.13.0 has written `2.13.0-ranks`, and
beside it the values of all of its tensors, as process 0 gathers them: `2.13.0-ranks.npz`. NAME is relative,
for torch stores it.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp

RANKS = 4


def state() -> dict[str, Any]:
    """A tree as people save it, in one process."""
    return {
        "model": {
            "layers.0.weight": torch.arange(14.0).reshape(7, 2),
            "bias": torch.arange(3).to(torch.bfloat16),
            "count": torch.tensor(3),
            "none": torch.ones(0, 3),
            "transposed": torch.arange(6.0).reshape(2, 3).t(),
            "part": torch.arange(24.0).reshape(4, 6)[::2, 1:3],
        },
        "optim": {
            "state": {0: {"step": torch.tensor(2.0), "exp_avg": torch.arange(2.0)}},
            "param_groups": [{"lr": 0.1, "betas": (0.9, 0.95), "params": [0], "name": None}],
        },
        "step": 5,
        "name": "run 7",
        "kinds": {1, 2},
    }


def alone(directory: Path) -> None:
    """Save in this process. Up to torch 2.2 that had another name."""
    if hasattr(dcp, "async_save"):
        dcp.save(state(), checkpoint_id=directory)
    else:
        planner = dcp.DefaultSavePlanner(flatten_state_dict=True)
        dcp.save_state_dict(state(), dcp.FileSystemWriter(directory), no_dist=True, planner=planner)


def number(shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor whose elements are all different."""
    return torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape)


def divided(mesh: Any, square: Any) -> dict[str, torch.Tensor]:
    """Tensors divided over four processes, in a row and as a square."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def put(shape: tuple[int, ...], *placements: Any) -> torch.Tensor:
        return distribute_tensor(number(shape), mesh if len(placements) == 1 else square, list(placements))

    return {
        "rows": put((8, 3), Shard(0)),
        "columns": put((3, 8), Shard(1)),
        "replicated": put((2, 3), Replicate()),
        "last row short": put((7, 2), Shard(0)),  # 2, 2, 2 and 1 rows
        "last rank empty": put((5, 2), Shard(0)),  # 2, 2, 1 and no rows
        "square": put((4, 6), Shard(0), Shard(1)),
        "uneven square": put((5, 7), Shard(0), Shard(1)),
        "half replicated": put((4, 2), Replicate(), Shard(0)),
    }


def trained(mesh: Any) -> dict[str, Any]:
    """A module under FSDP after a step of its optimizer, as torch's own functions give its state."""
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.Linear(5, 3, bias=False))
    fully_shard(module, mesh=mesh)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.5)
    module(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    model, optim = get_state_dict(module, optimizer)
    return {"model": model, "optim": optim}


def rank(number: int, directory: Path) -> None:
    """One of the processes."""
    from torch.distributed.device_mesh import init_device_mesh

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{directory.absolute()}.rendezvous", rank=number, world_size=RANKS
    )
    mesh, square = init_device_mesh("cpu", (RANKS,)), init_device_mesh("cpu", (2, 2))
    saved = {"divided": divided(mesh, square), **trained(mesh), "step": 5}
    dcp.save(saved, storage_writer=dcp.FileSystemWriter(directory, thread_count=2))
    values = {key: _whole(value) for key, value in _tensors(saved, "")}
    if number == 0:
        np.savez_compressed(f"{directory}.npz", **values)
    torch.distributed.destroy_process_group()


def _tensors(value: Any, key: str) -> list[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        return [(key, value)]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for name, v in inner for found in _tensors(v, f"{key}/{name}" if key else str(name))]


def _whole(value: Any) -> np.ndarray:
    whole: np.ndarray = (value.full_tensor() if hasattr(value, "full_tensor") else value).numpy()
    return whole


if __name__ == "__main__":
    place = Path(sys.argv[2])
    if sys.argv[1] == "alone":
        alone(place)
    else:
        torch.multiprocessing.spawn(rank, (place,), RANKS)
        Path(f"{place}.rendezvous").unlink()
