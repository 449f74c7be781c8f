"""Common ground of commands: grouped options, variables and examples in their help, no option twice."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import click

from ckpt_surgery.cli.parameters.variables import blame_variable, note_variables

READ = "What to read"
WRITE = "What to write"
RUN = "How to run"
PRINT = "What to print"
OTHERS = "Options"

GROUPS: Mapping[str, Sequence[str]] = {
    READ: (
        *("-e", "--set", "--config", "--target", "--allow-hooks", "--step", "--item", "--last"),
        *("--src-format", "--uint16", "--match", "--under", "--values", "--stats", "--rtol", "--atol"),
        *("--fast", "--sample", "--seed"),
    ),
    WRITE: (
        *("--to", "--format", "--dst-step", "--dst-item", "--shard-size", "--unshard", "--copy-config"),
        *("--link-mode", "--overwrite", "--out", "--recipe"),
    ),
    RUN: (
        *("--dry-run", "--resume", "--verify", "--memory", "--workers", "--engine", "--scheduler", "--shard"),
        *("--check", "--detailed-exitcode", "--exit-code"),
    ),
    PRINT: (
        *("--full", "--flat", "--keys", "--depth", "--sort", "--json", "--report", "--report-format"),
        *("-q", "-v", "--no-color", "-h"),
    ),
}
"""Names of options, in the order in which the help of a command lists them."""
MOST_UNGROUPED = 10
"""Number of options up to which a command has one list of them."""
ELSEWHERE = {("inspect", "--format"): READ, ("verify", "--full"): READ}
"""Groups of options that mean something else in these commands."""


def group_of(command: str, names: Sequence[str]) -> tuple[str, int]:
    """Group of a command's option, by all its names, and its place in the group."""
    for group, members in GROUPS.items():
        for name in names:
            if name in members:
                return ELSEWHERE.get((command, name), group), members.index(name)
    return OTHERS, 0


PROGRAM = "ckpt-surgery"
"""Name of the program."""
COMPLETE = "_CKPT_SURGERY_COMPLETE"
"""Variable in which a shell asks for completions."""


class Command(click.Command):
    """A command that refuses to take an option with a value twice; click silently uses the last one."""

    def __init__(
        self,
        *args: Any,
        examples: Mapping[str, str] | None = None,
        declared: Callable[[], list[click.Parameter]] | None = None,
        **settings: Any,
    ):
        """`declared` gives the parameters when they are asked for: the help of the program lists none."""
        super().__init__(*args, **settings)
        self.examples = examples or {}
        """Command lines without the program's name, and what each of them does."""
        if declared is not None:
            self._params: Callable[[], list[click.Parameter]] = cache(declared)

    @property
    def params(self) -> list[click.Parameter]:
        """Options and arguments."""
        return self._params()

    @params.setter
    def params(self, params: list[click.Parameter]) -> None:
        self._params = lambda: params

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # which asks what a line that is being written can go on with
            self._refuse_repeated(ctx, args)
        try:
            rest = super().parse_args(ctx, args)
        except click.BadParameter as error:
            blame_variable(error, ctx)
            raise
        note_variables(ctx)
        return rest

    def _refuse_repeated(self, ctx: click.Context, args: list[str]) -> None:
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        once = [p for p in given if isinstance(p, click.Option) and not (p.is_flag or p.multiple or p.count)]
        for option in once:
            if once.count(option) > 1:
                raise click.UsageError(f"Option '{option.opts[-1]}' is given more than once.", ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options; many of them by what they are about."""
        shown = [
            (param, record)
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)) is not None
        ]
        if len(shown) <= MOST_UNGROUPED:
            super().format_options(ctx, formatter)
            return
        groups: dict[str, list[tuple[int, tuple[str, str]]]] = {name: [] for name in (*GROUPS, OTHERS)}
        for option, record in shown:
            group, place = group_of(self.name or "", [*option.opts, *option.secondary_opts])
            groups[group].append((place, record))
        for group, records in groups.items():
            if records:
                with formatter.section(group):
                    formatter.write_dl([record for _, record in sorted(records)])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, each on one line of any length, so that it can be copied."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            program = ctx.find_root().info_name
            with formatter.section("Examples"):
                margin = " " * formatter.current_indent
                for line, purpose in self.examples.items():
                    formatter.write(f"{margin}# {purpose}\n{margin}{program} {line}\n")
