"""Programs that people run today for the same work: `python -m benchmarks.peers WORK ARGUMENT...`.

Orbax's own restore, `apply_transformations` and save; safetensors, NumPy and a save by Orbax, by hand;
`cp -r`. Everything heavy is imported where it is used, so that no peer pays for another's libraries.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def copied(source: str, destination: str) -> None:
    """`cp -r`, then an fsync of every file that it wrote."""
    subprocess.run(["cp", "-r", source, destination], check=True)
    for directory, _, names in os.walk(destination):
        for name in names:
            descriptor = os.open(os.path.join(directory, name), os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


def restored(checkpointer: Any, source: str) -> Any:
    """Everything, in memory."""
    return checkpointer.restore(Path(source).absolute())


def renamed(source: str, destination: str) -> None:
    """`params/layer_N` becomes `model/block_N`."""
    import orbax.checkpoint as ocp

    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = restored(checkpointer, source)
        layers = tree["params"]
        wanted = {"model": {name.replace("layer", "block"): value for name, value in layers.items()}}
        rules = {r"model/block_(\d+)/(.*)": ocp.Transform(original_key=r"params/layer_\1/\2")}
        checkpointer.save(Path(destination).absolute(), ocp.apply_transformations(tree, rules, wanted))


def cast(source: str, destination: str) -> None:
    """float32 becomes bfloat16."""
    import ml_dtypes
    import orbax.checkpoint as ocp

    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = restored(checkpointer, source)
        rules = {r"(.*)": ocp.Transform(value_fn=lambda v: v.astype(ml_dtypes.bfloat16))}
        checkpointer.save(Path(destination).absolute(), ocp.apply_transformations(tree, rules, tree))


def averaged(first: str, second: str, destination: str) -> None:
    """The mean of two trees."""
    import jax
    import orbax.checkpoint as ocp

    with ocp.PyTreeCheckpointer() as checkpointer:
        trees = [restored(checkpointer, source) for source in (first, second)]
        mean = jax.tree.map(lambda a, b: 0.5 * (a + b), *trees)
        checkpointer.save(Path(destination).absolute(), mean)


def metadata(source: str) -> None:
    """List a checkpoint with Orbax."""
    import orbax.checkpoint as ocp

    with ocp.PyTreeCheckpointer() as checkpointer:
        print(len(str(checkpointer.metadata(Path(source).absolute()))))


def listed_safetensors(source: str) -> None:
    """Names, shapes and dtypes in a safetensors file."""
    from safetensors import safe_open

    with safe_open(source, "numpy") as file:
        for name in file.keys():  # noqa: SIM118  (this is no mapping)
            part = file.get_slice(name)
            print(name, part.get_shape(), part.get_dtype())


def listed_flax(source: str) -> None:
    """Names, shapes and dtypes in a Flax file, as far as Flax can tell: it reads all of it."""
    from flax.serialization import msgpack_restore
    from jax.tree_util import keystr, tree_leaves_with_path

    for path, value in tree_leaves_with_path(msgpack_restore(Path(source).read_bytes())):
        print(keystr(path), value.shape, value.dtype)


def scanned(source: str, destination: str, layers: str, heads: str, kv_heads: str, head_dim: str) -> None:
    """Hugging Face's Llama as stacked layers."""
    import orbax.checkpoint as ocp
    from safetensors.numpy import load_file

    tensors = {
        k: v for path in sorted(Path(source).glob("*.safetensors")) for k, v in load_file(path).items()
    }
    split = [int(heads), int(kv_heads), int(head_dim)]
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(Path(destination).absolute(), scanned_tree(tensors, int(layers), *split))


def scanned_tree(
    tensors: "dict[str, np.ndarray]", layers: int, heads: int, kv_heads: int, head_dim: int
) -> Any:
    """The tree that `@hf-llama3-to-jax` describes."""
    import numpy as np

    def stack(name: str) -> "np.ndarray":
        return np.stack([tensors[f"model.layers.{i}.{name}.weight"].T for i in range(layers)])

    def in_heads(name: str, count: int) -> "np.ndarray":
        kernels = stack(name)
        return kernels.reshape(layers, kernels.shape[1], count, head_dim)

    out = stack("self_attn.o_proj")
    attention = {
        "query": {"kernel": in_heads("self_attn.q_proj", heads)},
        "key": {"kernel": in_heads("self_attn.k_proj", kv_heads)},
        "value": {"kernel": in_heads("self_attn.v_proj", kv_heads)},
        "out": {"kernel": out.reshape(layers, heads, head_dim, out.shape[2])},
    }
    mlp = {"wi_0": "mlp.gate_proj", "wi_1": "mlp.up_proj", "wo": "mlp.down_proj"}
    block = {
        "pre_self_attention_layer_norm": {"scale": stack("input_layernorm")},
        "post_self_attention_layer_norm": {"scale": stack("post_attention_layernorm")},
        "self_attention": attention,
        "mlp": {ours: {"kernel": stack(theirs)} for ours, theirs in mlp.items()},
    }
    decoder = {
        "layers": block,
        "decoder_norm": {"scale": tensors["model.norm.weight"]},
        "logits_dense": {"kernel": tensors["lm_head.weight"].T},
    }
    embedder = {"embedding": tensors["model.embed_tokens.weight"]}
    return {"params": {"token_embedder": embedder, "decoder": decoder}}


def transposed(source: str, destination: str) -> None:
    """One tensor, transposed and cast."""
    import ml_dtypes
    import orbax.checkpoint as ocp
    from safetensors.numpy import load_file

    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = {name: value.T.astype(ml_dtypes.bfloat16) for name, value in load_file(source).items()}
        checkpointer.save(Path(destination).absolute(), tree)


def stacked(source: str, destination: str) -> None:
    """All tensors of a file as one, cast."""
    import ml_dtypes
    import numpy as np
    import orbax.checkpoint as ocp
    from safetensors.numpy import load_file

    tensors = load_file(source)
    stack = np.stack([tensors[f"w{i}"].astype(ml_dtypes.bfloat16) for i in range(len(tensors))])
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(Path(destination).absolute(), {"w": stack})


WORKS = {
    work.__name__: work
    for work in (
        *(copied, renamed, cast, averaged, metadata, scanned, transposed, stacked),
        *(listed_safetensors, listed_flax),
    )
}

if __name__ == "__main__":
    WORKS[sys.argv[1]](*sys.argv[2:])
