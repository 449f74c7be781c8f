"""Prints docs/models.md: the models that packaged recipes convert, from `ckpt_surgery.models`."""

from ckpt_surgery.models import MODELS, Layout, Model, Run

HEAD = """# Models

Recipes for these models come with the package, in both directions. `convert` chooses one by `model_type` in `config.json` and says which:

```text
ckpt-surgery convert llama out --to maxtext
```

Sizes come from `config.json`, too, so that nothing has to be set. `hf` is the layout of Hugging Face transformers, from which and to which all others are converted;
`jax` is that of JAX decoders with stacked layers, `maxtext` what [MaxText](coming-from/maxtext.md) loads, `tunix` what google-tunix loads, `flax` the trees of the Flax classes of
transformers 4.53, `t5x` that of T5X. A recipe's head has all names, shapes and params: `ckpt-surgery recipes NAME` prints it.

"Exact" says that every bit of every weight comes back by the way back. Where a layout wants values that are computed, they are rounded once; the column says which. The
last column names the tests that prove it; beside them, `tests/recipes/test_published.py` plans every size below, in every layout, there and back, on the names and shapes
of its published files.
"""


def main() -> None:
    """Print the page."""
    print(HEAD)
    print("| model | layouts |\n|---|---|")
    for model in MODELS:
        names = ", ".join(f"`{layout.name}`" for layout in model.layouts)
        print(f"| [{model.title}](#{_anchor(model.title)}) | {names} |")
    for model in MODELS:
        print(_section(model), end="")


def _section(model: Model) -> str:
    types = " or ".join(f"`{name}`" for name in model.model_types)
    rows = "\n".join(_row(layout) for layout in model.layouts)
    return (
        f"\n## {model.title}\n\n"
        f"`model_type` {types}. Sizes: {', '.join(model.sizes)}.\n\n"
        "| `--to` | there | back | exact | proved by |\n|---|---|---|---|---|\n"
        f"{rows}\n"
    )


def _row(layout: Layout) -> str:
    exact = f"but for {layout.computed}" if layout.computed else "yes"
    proofs = ", ".join(f"[{path.rpartition('/')[2]}](../{path})" for path in layout.proofs)
    return f"| `{layout.name}` | {_run(layout.there)} | {_run(layout.back)} | {exact} | {proofs} |"


def _run(run: Run) -> str:
    given = "".join(f" `{name}={value}`" for name, value in run.params.items())
    return f"[`{run.recipe}`](../recipes/{run.recipe.removeprefix('@')}.yaml){given}"


def _anchor(title: str) -> str:
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -")
    return kept.replace(" ", "-")


if __name__ == "__main__":
    main()
