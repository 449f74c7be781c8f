"""Prints docs/models.md: the models that packaged recipes convert, from `ckpt_surgery.inputs.models`."""

from collections.abc import Sequence

from ckpt_surgery.inputs.models import Model, ModelLayout, Run, known_models

HEAD = """\
# Models

Recipes for these models come with the package, in both directions. `convert` chooses one by `model_type` in
`config.json` and says which:

```text
ckpt-surgery convert llama out --to maxtext
ckpt-surgery convert out llama-again --to hf
```

Sizes come from `config.json`, too, so that nothing has to be set. `hf` is the layout of Hugging Face
Transformers, from which and to which all others are converted; `jax` is that of JAX decoders with stacked
layers, `maxtext` what [MaxText](coming-from/maxtext.md) loads, `tunix` what google-tunix loads, `flax` the
trees of the [Flax classes](cookbook/hugging-face.md#flax-classes) of Transformers 4.53, `t5x` that of
[T5X](cookbook/t5.md). The head of a recipe has all names, shapes and params: `ckpt-surgery recipes NAME`
prints it.

"Exact" says that every bit of every weight comes back by the way back. What a layout wants computed is
rounded once; the column says what that is. The last column names the tests in `tests/recipes` that prove it;
beside them, `test_published.py` plans every size below in every layout, there and back, on the names, shapes
and dtypes of the files. These come from Transformers itself (`make_keytables.py`), made of published sizes
without weights; nobody ran the recipes on the published weights.

Generated from the package by `make docs`; a test checks that it is current.
"""


def main() -> None:
    """Print the page."""
    print(HEAD)
    sized = [model for model in known_models() if model.sizes]
    print("| model | layouts |\n|---|---|")
    for model in sized:
        names = ", ".join(f"`{layout.name}`" for layout in model.layouts)
        print(f"| [{model.title}](#{_anchor(model.title)}) | {names} |")
    print("| [Others](#other-flax-classes) | `flax` |")
    for model in sized:
        print(_section(model), end="")
    print(_others([model for model in known_models() if not model.sizes]), end="")


def _others(models: Sequence[Model]) -> str:
    """Models of which no published size is planned, and which have one layout, the same for all."""
    [layout] = models[0].layouts
    assert all(model.layouts == models[0].layouts for model in models), "one table is for all"
    rows = "\n".join(f"| {model.title} | `{'`, `'.join(model.model_types)}` |" for model in models)
    return (
        "\n## Other Flax classes\n\n"
        "These were tried with small models of all their classes, not with the published sizes.\n\n"
        f"| `--to` | there | back | exact | proved by |\n|---|---|---|---|---|\n{_row(layout)}\n\n"
        f"| model | `model_type` |\n|---|---|\n{rows}\n"
    )


def _section(model: Model) -> str:
    types = " or ".join(f"`{name}`" for name in model.model_types)
    rows = "\n".join(_row(layout) for layout in model.layouts)
    return (
        f"\n## {model.title}\n\n"
        f"`model_type` {types}. Sizes: {', '.join(model.sizes)}.\n\n"
        "| `--to` | there | back | exact | proved by |\n|---|---|---|---|---|\n"
        f"{rows}\n"
    )


def _row(layout: ModelLayout) -> str:
    of_sizes = f"; of {', '.join(layout.sizes)}" if layout.sizes else ""
    exact = f"but for {layout.computed}" if layout.computed else "yes"
    proofs = ", ".join(f"`{name}`" for name in layout.proofs)
    return f"| `{layout.name}`{of_sizes} | {_run(layout.there)} | {_run(layout.back)} | {exact} | {proofs} |"


def _run(run: Run) -> str:
    given = "".join(f" `{name}={value}`" for name, value in run.params.items())
    return f"[`{run.recipe}`](../recipes/{run.recipe.removeprefix('@')}.yaml){given}"


def _anchor(title: str) -> str:
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -")
    return kept.replace(" ", "-")


if __name__ == "__main__":
    main()
