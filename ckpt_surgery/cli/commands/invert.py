"""`invert`: the recipe that undoes a recipe."""

import sys
from typing import Annotated, Unpack

import click

from ckpt_surgery.cli.parameters.command import command
from ckpt_surgery.cli.parameters.completion import complete_recipe
from ckpt_surgery.cli.parameters.options import Argument, DraftTo, Form, JsonTo, Rules
from ckpt_surgery.cli.parameters.paths import check_documents, given_recipe
from ckpt_surgery.cli.terminal.console import STDOUT, Line, Terminal
from ckpt_surgery.core.errors import VerificationError
from ckpt_surgery.core.text import shown
from ckpt_surgery.inputs.options import InvertOptions, ReplaceOut

EXAMPLES = {
    "invert recipe.yaml old": "The recipe that turns the result back into old, on standard output.",
    "invert @hf-llama3-to-jax llama --out back.yaml": "Into a file: `apply back.yaml RESULT DST` goes back.",
    "invert recipe.yaml old --no-check --json -": "From metadata alone, as a JSON document.",
}


@command("invert", EXAMPLES, "Draft the recipe that undoes a recipe.")
def invert(
    terminal: Terminal,
    recipe: Annotated[str, Argument("RECIPE", complete=complete_recipe)],
    sources: Annotated[tuple[str, ...], Argument("SRC...", more={"nargs": -1})],
    rules: Rules,
    out: DraftTo,
    overwrite: ReplaceOut,
    check: Annotated[
        bool,
        "Whether both recipes are also run on random values, in memory. [default: --check]",
        Form(names=("--check/--no-check",), more={"default": True}),
    ],
    json_to: JsonTo,
    **options: Unpack[InvertOptions],
) -> int:
    """Draft the recipe that undoes RECIPE on what it makes of SRC. Reads SRC's metadata only.

    What RECIPE moves, stacks, splits, casts to a wider type or multiplies by a power of two comes back bit
    for bit. What it drops, rounds or computes from several leaves does not: each such leaf is named, and the
    exit code is 3. The draft is planned, and run on random values, before it is shown.
    """
    import ckpt_surgery
    from ckpt_surgery.api.inverting import InvertDocument
    from ckpt_surgery.core.folding import few_keys

    if not (sources or rules):
        raise click.MissingParameter(param_hint="'SRC...'", param_type="argument")
    sources = (recipe, *sources) if rules else sources
    loaded = given_recipe(recipe, rules, options.pop("set", None) or (), terminal)
    check_documents([json_to, out], loaded, sources, None, options)
    inverse = ckpt_surgery.invert(loaded, *sources, check=check, out=out, overwrite=overwrite, **options)
    terminal.write(InvertDocument.from_attributes, inverse)
    if out is None and json_to != STDOUT:
        sys.stdout.write(inverse.recipe)
    reasons: dict[str, list[str]] = {}
    for one in inverse.irreversible:
        reasons.setdefault(one.why, []).append(one.key)
    lost = [("does not come back: ", f"{few_keys(keys)}: {why}") for why, keys in reasons.items()]
    lost += [("problem: ", problem) for problem in inverse.problems]
    lines: list[Line] = [((word, "bold red"), shown(text)) for word, text in lost]
    lines = lines or [(("everything comes back", "green"),)]
    if inverse.sampled:
        lines.append(shown(f"tried in parts, because they are large: {few_keys(inverse.sampled)}"))
    terminal.wrapped(lines)
    return VerificationError.exit_code if lost else 0
