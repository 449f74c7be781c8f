"""The program `ckpt-surgery`: it finds its commands, runs one, and turns errors into exit codes.

A command is a module of `commands` that defines one of the same name, whose callback returns the exit code.
Importing one is cheap: NumPy, rich and the library are imported when it runs.
"""

import gc
import importlib
import os
import pkgutil
import shlex
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import click

from ckpt_surgery.cli import commands
from ckpt_surgery.cli.documents.reported_problems import as_report, rendered
from ckpt_surgery.cli.parameters.command import COMPLETE, FROM_VARIABLES, PROGRAM
from ckpt_surgery.cli.parameters.options import global_params, requested_format
from ckpt_surgery.cli.parameters.paths import RULES, with_rule_inside_keys
from ckpt_surgery.cli.terminal.console import PUBLISHED, Settings, print_errors, problem_text, problem_texts
from ckpt_surgery.cli.terminal.streams import guard, unwritten
from ckpt_surgery.core.errors import AGAIN, GO_ON, Code, Interrupted, Problem, StorageError, SurgeryError
from ckpt_surgery.core.memory import memory_errors
from ckpt_surgery.core.text import did_you_mean, shown

KEYBOARD_INTERRUPT = 130

EVERYDAY = (
    *("inspect", "plan", "apply", "convert", "diff", "verify"),
    *("merge", "infer", "explain", "recipes", "demo"),
)
"""Commands that the help lists first."""
RARE = ("lint", "commit", "invert", "schema")
"""Commands that the help lists last."""

LIMITS = "Check permissions, free space and limits (ulimit -a), then run again."
BUG = (
    "This is a bug in ckpt-surgery, not in your input. Please report it to the project's issue tracker, with "
    "the command, the recipe and what the same command prints with -vv."
)


class Commands(click.Group):
    """The group of all commands; the one place where an exception becomes a message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the work; the ones that few need come last."""
        names = {module.name for module in pkgutil.iter_modules(commands.__path__)}
        return [*EVERYDAY, *sorted(names - {*EVERYDAY, *RARE}), *RARE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = getattr(importlib.import_module(f"{commands.__name__}.{cmd_name}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"Not a command: `{shown(name)}`{did_you_mean(name, known)}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Read before click parses: a wrong option must not exit with 2, which means "changes" here.
        ctx.meta[PROGRAM] = "--detailed-exitcode" in args
        ctx.meta["report"] = requested_format(args)
        ctx.meta["arguments"] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> None:
        """Run a command and exit with its code. The group's `--help` lists the codes."""
        if ctx.obj is None:
            ctx.obj = Settings()
        code = self._code(ctx)
        if code >= 0 and (lost := unwritten()) is not None:
            code = _report(_lost(lost), ctx)
        failed = -128 < code < 0  # what a signal ended keeps its code
        ctx.exit(1 if ctx.meta[PROGRAM] and failed else abs(code))

    def _code(self, ctx: click.Context) -> int:
        """The exit code; negative where it is an error's."""
        try:
            with memory_errors("go on"):
                return int(super().invoke(ctx) or 0)
        except SurgeryError as error:
            return _report(error, ctx)
        except click.ClickException as error:
            error.show()
            problem = Problem(error.format_message(), code=Code.USAGE)
            return _fail([problem], error.exit_code, ctx, printed=True)
        except KeyboardInterrupt:
            problem = Problem("interrupted", code=Code.INTERRUPTED)
            ctx.exit(-_fail([problem], KEYBOARD_INTERRUPT, ctx))
        except (click.exceptions.Exit, click.Abort):
            raise  # click ends the program
        except OSError as error:
            file = "" if error.filename is None else f"{error.filename}: "
            return _report(StorageError(f"{file}{error.strerror or error}", hint=LIMITS), ctx)
        except Exception as error:  # noqa: BLE001  (the last resort: everything else is a bug)
            message = f"internal error: {type(error).__name__}: {error}"
            return _fail([Problem(message, hint=BUG, code=Code.INTERNAL)], 1, ctx)


def _report(error: SurgeryError, ctx: click.Context) -> int:
    rules = ctx.meta.get(RULES, ())
    problems = [_with_command(problem, ctx.meta["arguments"]) for problem in error.problems]
    problems = [with_rule_inside_keys(problem, rules) for problem in problems] if rules else problems
    code = 128 + error.signal_number if isinstance(error, Interrupted) else error.exit_code
    return _fail(problems, code, ctx)


def _with_command(problem: Problem, arguments: Sequence[str]) -> Problem:
    """The problem, with the command that goes on from what was kept, or the variable that is to blame."""
    hint = problem.hint or ""
    variables = click.get_current_context().meta.get(FROM_VARIABLES, {})
    set_by = [name for argument, name in variables.items() if f"`{argument}=" in hint]
    if set_by:
        return replace(problem, hint=f"{hint} The variable {' and '.join(set_by)} sets it now.")
    if not hint.endswith((GO_ON, AGAIN)):
        return problem
    more = ["--resume"] if hint.endswith(GO_ON) and "--resume" not in arguments else []
    return replace(problem, hint=f"Go on from there: {shlex.join((PROGRAM, *arguments, *more))}")


def _fail(problems: Sequence[Problem], code: int, ctx: click.Context, *, printed: bool = False) -> int:
    """Report an error: on stderr unless it is `printed`, on stdout where a format for programs is asked for,
    and on the page of a CI job. Returns the exit code, negated."""
    from ckpt_surgery.cli.render.reports import add_failure

    texts = problem_texts(problems)
    if not printed:
        if ctx.obj.verbose >= 2:
            traceback.print_exc(file=sys.stderr)
        published = ctx.meta.get(PUBLISHED)
        after = "" if published is None else f"\n\n{shown(published)} itself is new and complete"
        print_errors([*texts[:-1], texts[-1] + after], ctx.obj)
    reported = 1 if ctx.meta[PROGRAM] else code
    sys.stdout.write(rendered(ctx.meta["report"], [as_report(problem) for problem in problems], reported))
    sys.stdout.flush()
    if ctx.invoked_subcommand in ("plan", "apply", "convert", "merge"):
        try:
            add_failure(ctx.invoked_subcommand, texts)
        except OSError as error:
            print_errors([f"the summary of the step cannot be written: {error}"], ctx.obj)
    return -code


def _lost(error: OSError) -> StorageError:
    hint = "Free some space, or send the output elsewhere."
    return StorageError(f"standard output cannot be written: {error.strerror}", hint=hint)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name=PROGRAM, prog_name=PROGRAM)
def cli() -> None:
    """Rename, reshape, merge and convert checkpoints by a recipe, without loading them.

    \b
    Exit codes:
      0  done
      1  failed: a damaged source, an overflow
      2  wrong usage, or recipe, checkpoint and target do not go together
      3  verification failed, or `diff --exit-code` found a difference
      4  destination exists or is locked
      5  no space, no permission or an I/O error
      129, 130 and 143  interrupted
    """


cli.params += global_params()


def main() -> NoReturn:
    """The program: runs `sys.argv` and exits."""
    guard()
    # Plans of large checkpoints have millions of small values and no cycles, so that collecting garbage
    # finds nothing. `enable_gc` turns it on again.
    gc.disable()
    # The program has a thread per core; more threads inside NumPy would only compete with them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if COMPLETE in os.environ:
        from click.shell_completion import add_completion_class

        from ckpt_surgery.cli.commands.completion import LineComplete

        add_completion_class(LineComplete)
    try:
        cli(prog_name=PROGRAM, complete_var=COMPLETE)
        leave(0)
    except SystemExit as leaving:
        # Inside the handler, because the exception keeps alive what the command has kept: see `leave`.
        leave(leaving.code)


def leave(code: int | str | None) -> NoReturn:
    """End the program without freeing values one by one (a tenth of a large plan), if no thread runs."""
    lost = unwritten()
    if code == 0 and lost is not None:  # the text of `--help`
        print_errors([problem_text(_lost(lost).problems[0])], Settings())
        code = StorageError.exit_code
    sys.stderr.flush()
    if not isinstance(code, int) or threading.active_count() > 1:
        sys.exit(code)
    os._exit(code)
