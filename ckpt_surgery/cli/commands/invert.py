"""`invert`: the recipe that undoes a recipe."""

import sys
from typing import TYPE_CHECKING, Literal

import click

from ckpt_surgery.cli.command import Command
from ckpt_surgery.cli.completion import complete_path, complete_recipe
from ckpt_surgery.cli.console import STDOUT, Terminal, open_terminal, write_document
from ckpt_surgery.cli.options import (
    global_options,
    json_option,
    memory_option,
    recipe_options,
    selection_options,
    source_format_option,
    uint16_option,
)
from ckpt_surgery.cli.shared_options import draft_options
from ckpt_surgery.cli.written_files import check_documents
from ckpt_surgery.core.errors import VerificationError

if TYPE_CHECKING:
    from ckpt_surgery import Inverse
    from ckpt_surgery.inputs.options import PlanOptions

EXAMPLES = {
    "invert recipe.yaml old": "The recipe that turns the result back into old, on standard output.",
    "invert @hf-llama3-to-jax llama --out back.yaml": "Into a file: `apply back.yaml RESULT DST` goes back.",
    "invert recipe.yaml old --no-check --json -": "From metadata alone, as a JSON document.",
}


@click.command("invert", cls=Command, short_help="Draft the recipe that undoes a recipe.", examples=EXAMPLES)
@click.argument("recipe", metavar="RECIPE", shell_complete=complete_recipe)
@click.argument("sources", metavar="SRC...", nargs=-1, shell_complete=complete_path)
@recipe_options
@selection_options
@source_format_option("--src-format")
@uint16_option
@memory_option
@draft_options
@click.option(
    "--check/--no-check",
    default=True,
    help="Whether both recipes are also run on random values, in memory. [default: --check]",
)
@json_option
@global_options
@click.pass_context
def command(
    ctx: click.Context,
    recipe: str,
    sources: tuple[str, ...],
    rules: tuple[str, ...],
    target: str | None,
    set: tuple[str, ...],
    config: str | None,
    allow_hooks: bool,
    step: int | None,
    item: str | None,
    src_format: str | None,
    uint16: Literal["keep", "bfloat16"] | None,
    memory: int | None,
    out: str | None,
    overwrite: bool,
    check: bool,
    json_to: str | None,
) -> int:
    """Draft the recipe that undoes RECIPE on what it makes of SRC. Reads SRC's metadata only.

    What RECIPE moves, stacks, splits, casts to a wider type or multiplies by a power of two comes back bit
    for bit. What it drops, rounds or computes from several leaves does not: each such leaf is named, and the
    exit code is 3. The draft is planned, and run on random values, before it is shown.
    """
    import ckpt_surgery
    from ckpt_surgery.api.inverting import invert_document
    from ckpt_surgery.cli.given_recipes import given_recipe

    if not (sources or rules):
        raise click.MissingParameter(param_hint="'SRC...'", param_type="argument")
    sources = (recipe, *sources) if rules else sources
    terminal = open_terminal(ctx.find_root().obj, STDOUT if out is None else json_to)
    loaded = given_recipe(recipe, rules, set, terminal)
    read: PlanOptions = {"target": target, "config": config, "step": step, "item": item}
    read["src_format"] = src_format
    check_documents([json_to, out], loaded, sources, None, read)
    found = ckpt_surgery.invert(
        loaded,
        *sources,
        target=target,
        config=config,
        step=step,
        item=item,
        src_format=src_format,
        uint16=uint16,
        memory=memory,
        allow_hooks=allow_hooks,
        check=check,
        out=out,
        overwrite=overwrite,
    )
    if json_to is not None:
        write_document(invert_document(found), json_to)
    if out is None and json_to != STDOUT:
        sys.stdout.write(found.recipe)
    _show(found, terminal)
    return VerificationError.exit_code if found.irreversible or found.problems else 0


def _show(found: "Inverse", terminal: Terminal) -> None:
    """What comes back, and what does not, on stderr."""
    from rich.text import Text

    from ckpt_surgery.core.notices import few_keys
    from ckpt_surgery.core.text import shown

    reasons: dict[str, list[str]] = {}
    for one in found.irreversible:
        reasons.setdefault(one.why, []).append(one.key)
    lines = [
        Text.assemble(("does not come back: ", "bold red"), shown(f"{few_keys(keys)}: {why}"))
        for why, keys in reasons.items()
    ]
    lines += [Text.assemble(("problem: ", "bold red"), shown(problem)) for problem in found.problems]
    if not lines:
        lines.append(Text("everything comes back", "green"))
    if found.sampled:
        lines.append(Text(shown(f"tried in parts, because they are large: {few_keys(found.sampled)}")))
    terminal.wrapped(lines)
