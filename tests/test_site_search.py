"""The search of the documentation site finds pages by the words that people use."""

import html
import json
import math
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.site import ROOT

PAGES = {
    "how-it-works": ["out of memory", "OOM"],
    "training": ["warm start", "load pretrained weights"],
    "merging": ["ties", "slerp", "dare", "task arithmetic"],
    "inferring": ["automatic mapping"],
    "hooks": ["custom function", "plugin"],
    "formats": ["keras", "pickle"],
    "buckets": ["S3", "gcs", "cloud storage"],
    "machines": ["distributed", "multi-host", "slurm", "kubernetes"],
    "reliability": ["resume", "crash", "disk full"],
    "ci": ["github actions", "pre-commit"],
    "shell": ["bash completion"],
    "deviations": ["differences to Orbax"],
    "coming-from/orbax": ["apply_transformations", "transforms"],
    "coming-from/frameworks": ["model surgery", "flatten_dict", "PLACEHOLDER", "TreeMetadata"],
    "coming-from/maxtext": ["maxtext"],
    "cookbook/average": ["averaging", "average checkpoints", "model soup", "SWA", "weight averaging"],
    "cookbook/ci-job": ["dry run", "continuous integration"],
    "cookbook/devices": ["resharding", "different number of devices", "restore on cpu"],
    "cookbook/encoder": ["only encoder", "extract submodule", "unmatched drop"],
    "cookbook/explain": ["debug"],
    "cookbook/float8": ["quantization", "fp8"],
    "cookbook/fused-qkv": ["split qkv", "fuse query key value"],
    "cookbook/gguf": ["llama.cpp", "ollama"],
    "cookbook/hugging-face": ["huggingface", "port pytorch weights", "hugging face to jax"],
    "cookbook/layers": ["scan_layers", "unstack layers", "scan layers"],
    "cookbook/lora": ["merge lora", "peft adapter"],
    "cookbook/manager": ["CheckpointManager step"],
    "cookbook/missing-leaf": ["missing key", "strict=False", "partial restore", "new parameter"],
    "cookbook/new-head": ["freeze", "frozen params", "transfer learning", "fine-tuning", "num classes"],
    "cookbook/nnx": ["linen to nnx", "migrate linen"],
    "cookbook/one-liners": ["one-liner", "command line rule"],
    "cookbook/optimizer": ["strip optimizer", "remove opt_state", "inference only"],
    "cookbook/params": ["only params", "extract params from TrainState", "export weights", "params only"],
    "cookbook/position-embeddings": [
        "position embedding",
        "positional embeddings",
        "interpolate pos embedding",
    ],
    "cookbook/pytorch": ["state_dict", "_orig_mod", "nanoGPT", "torch.compile", "module prefix"],
    "cookbook/rename": ["remap keys", "rename layers"],
    "cookbook/t5": ["t5", "mesh tensorflow"],
    "cookbook/vocabulary": ["resize_token_embeddings", "vocab size", "add tokens", "pad vocabulary"],
}
"""What people type, by the page that answers it."""
FIRST = 8
"""Number of pages that a reader looks at."""


class Index:
    """The index, searched roughly as the theme does: words by their beginnings, rare ones first."""

    def __init__(self, path: Path) -> None:
        data = json.loads(path.read_text())
        self.separator = re.compile(data["config"]["separator"])
        self.boost = data["config"]["fields"]["title"]["boost"]  # of a word in a title; 1 is that in a text
        self.pages = [one["location"].partition("#")[0] for one in data["docs"]]
        self.titles, self.texts = (
            [Counter(self.words_of(one[part])) for one in data["docs"]] for part in ("title", "text")
        )

    def words_of(self, markup: str) -> list[str]:
        text = html.unescape(re.sub(r"<[^>]*>", " ", markup))
        return [word.lower() for word in self.separator.split(text) if word]

    def search(self, query: str) -> list[str]:
        """Pages that have any of the words, best ones first."""
        best: Counter[str] = Counter()
        scores = [self.scores(word) for word in self.words_of(query)]
        for page, *parts in zip(self.pages, *scores, strict=True):
            best[page] = max(best[page], sum(parts))
        return [page for page, score in best.most_common() if score]

    def scores(self, start: str) -> list[float]:
        """How well each section fits the word: BM25, with the parameters of lunr."""
        texts, titles = (
            [sum(count for word, count in words.items() if word.startswith(start)) for words in part]
            for part in (self.texts, self.titles)
        )
        lengths = [words.total() for words in self.texts]
        having = sum(map(bool, map(max, texts, titles)))
        rarity = math.log(1 + (len(lengths) - having + 0.5) / (having + 0.5))
        mean = sum(lengths) / len(lengths)
        return [
            rarity * (2.2 * n / (n + 0.3 + 0.9 * length / mean) + self.boost * bool(title))
            for n, title, length in zip(texts, titles, lengths, strict=True)
        ]


@pytest.fixture(scope="module")
def index(site: Path) -> Index:
    return Index(site / "search" / "search_index.json")


@pytest.mark.slow("builds the site")
@pytest.mark.parametrize(
    ("page", "query"), [(page, one) for page, queries in PAGES.items() for one in queries]
)
def test_a_page_is_found_by_the_words_that_people_use(page: str, query: str, index: Index) -> None:
    assert f"{page}.html" in index.search(query)[:FIRST]


def test_every_task_of_the_cookbook_is_searched_for() -> None:
    """A new page needs its words here."""
    written = {f"cookbook/{path.stem}" for path in (ROOT / "docs" / "cookbook").glob("*.md")}
    assert written - PAGES.keys() == {"cookbook/index"}
