"""The search of the documentation site finds pages by the words that people use."""

import html
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Entry:
    """A section of a page: how often it has each word."""

    page: str
    title: Counter[str]
    text: Counter[str]


@dataclass(frozen=True, repr=False)
class Index:
    """The index, searched roughly as the theme does: words by their beginnings, rare ones first."""

    separator: re.Pattern[str]
    boost: float
    """Weight of a word in a title; 1 is that in a text."""
    entries: Sequence[Entry]

    @staticmethod
    def read(path: Path) -> "Index":
        data = json.loads(path.read_text())
        separator = re.compile(data["config"]["separator"])

        def counted(markup: str) -> Counter[str]:
            return Counter(words_of(html.unescape(re.sub(r"<[^>]*>", " ", markup)), separator))

        entries = [
            Entry(one["location"].partition("#")[0], counted(one["title"]), counted(one["text"]))
            for one in data["docs"]
        ]
        return Index(separator, data["config"]["fields"]["title"]["boost"], entries)

    def search(self, query: str) -> list[str]:
        """Pages that have any of the words, best ones first."""
        best: Counter[str] = Counter()
        scores = [self.scores(word) for word in words_of(query, self.separator)]
        for entry, *parts in zip(self.entries, *scores, strict=True):
            if any(parts):
                best[entry.page] = max(best[entry.page], sum(parts))
        return [page for page, _ in best.most_common()]

    def scores(self, word: str) -> list[float]:
        """How well each entry fits the word: BM25, with the parameters of lunr."""
        pairs = ((entry.text, entry.title) for entry in self.entries)
        texts, titles = ([beginning(word, c) for c in f] for f in zip(*pairs, strict=True))
        lengths = [entry.text.total() for entry in self.entries]
        having = sum(map(bool, map(max, texts, titles)))
        rarity = math.log(1 + (len(lengths) - having + 0.5) / (having + 0.5))
        mean = sum(lengths) / len(lengths)
        return [
            rarity * (2.2 * n / (n + 0.3 + 0.9 * length / mean) + self.boost * bool(title))
            for n, title, length in zip(texts, titles, lengths, strict=True)
        ]


def words_of(text: str, separator: re.Pattern[str]) -> list[str]:
    return [word.lower() for word in separator.split(text) if word]


def beginning(start: str, words: Counter[str]) -> int:
    """Number of words that begin so."""
    return sum(count for word, count in words.items() if word.startswith(start))


@pytest.fixture(scope="module")
def index(site: Path) -> Index:
    return Index.read(site / "search" / "search_index.json")


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
