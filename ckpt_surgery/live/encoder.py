"""What arrays on devices can hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckpt_surgery.core.leaves import Leaf
from ckpt_surgery.core.manifests import Manifest
from ckpt_surgery.core.protocols import Encoder
from ckpt_surgery.live.tree import LiveTree


@dataclass(frozen=True)
class LiveEncoder(Encoder):
    """What arrays on devices can hold."""

    target: LiveTree | None
    shardings: Mapping[str, Any]

    def unsupported(self, leaves: Sequence[Leaf]) -> list[str]:
        """Why JAX cannot hold these leaves, one sentence each; empty: it can."""
        return []

    def adopts(self, leaf: Leaf, manifest: Manifest) -> bool:
        """No stored bytes become arrays without being read."""
        return False
