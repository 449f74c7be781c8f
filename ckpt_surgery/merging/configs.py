"""Write the `config.json` of a merge: that of its base with another dtype and number of layers."""

from collections.abc import Iterator, Mapping
from typing import Any

from ckpt_surgery.merging.models import MergeConfig

LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
"""Names under which configs have the number of layers."""
DTYPES = ("torch_dtype", "dtype")
"""Names under which configs have the dtype: the second since version 5 of transformers."""
INNER = "text_config"
"""Places of the language model's entries in configs of models with several towers."""
PER_LAYER = ("layer_types", "mlp_layer_types", "no_rope_layers")
"""Lists with an entry for each layer."""


def config_changes(config: MergeConfig, base: Mapping[str, Any]) -> dict[tuple[str, ...], Any]:
    """New values of entries by their path. `base`: the config of the base, or else of the first model."""
    changes: dict[tuple[str, ...], Any] = {}
    dtype = config.out_dtype or config.dtype
    if dtype is not None:
        places = [(*path, name) for path, holder in _holders(base) for name in DTYPES if name in holder]
        changes |= dict.fromkeys(places or [DTYPES[:1]], dtype)
    if config.slices is not None:
        # For each layer of the result, the layer of the slice's first source.
        layers = [layer for slice in config.slices for layer in range(*slice.sources[0].layer_range)]
        for path, holder in _holders(base):
            for name in [name for name in LAYERS if isinstance(holder.get(name), int)][:1]:
                changes[*path, name] = len(layers)
                for entry in PER_LAYER:
                    values = holder.get(entry)
                    if isinstance(values, list) and len(values) == holder[name] and max(layers) < len(values):
                        changes[*path, entry] = [values[layer] for layer in layers]
    return changes


def _holders(base: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """The mappings that describe the language model, with their paths."""
    yield (), base
    if isinstance(base.get(INNER), dict):
        yield (INNER,), base[INNER]
