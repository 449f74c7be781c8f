"""What the codes of problems mean: the one table of them, for `explain` and for reports."""

from collections.abc import Mapping
from dataclasses import dataclass

from ckpt_surgery.core.problem_codes import Code


@dataclass(frozen=True)
class Explanation:
    """What a code means, in words that do not depend on a recipe or a checkpoint."""

    title: str
    """What is wrong, as a sentence without its full stop."""
    text: str
    """Why it is a problem and what to do, in a few sentences."""
    example: str
    """A recipe, or a command after `$`, with a problem of this code."""


def _rules(*rules: str, before: str = "") -> str:
    return f"version: 1\n{before}rules:\n" + "".join(f"  - {rule}\n" for rule in rules)


EXPLANATIONS: Mapping[Code, Explanation] = {
    Code.UNREADABLE: Explanation(
        "The recipe cannot be read",
        "The file does not exist, is not text in UTF-8, is larger than a recipe can be, or does not "
        "hold a mapping of fields. A name that starts with @ is that of a recipe of the package; "
        "`ckpt-surgery recipes` lists those.",
        "- match: step\n",
    ),
    Code.YAML: Explanation(
        "The recipe is not YAML",
        "The text breaks the rules of YAML at the place that is shown, or a little before it. Put regular "
        "expressions and templates in single quotes: there a backslash is a backslash, and `: `, `#` and "
        "brackets are plain characters. Indent with spaces, not with tabs.",
        _rules(r'{match: "layers/\d+", drop: true}'),
    ),
    Code.YAML_FEATURE: Explanation(
        "The recipe uses a part of YAML that recipes do without",
        "A recipe is plain data, in which each value has one place. Anchors, aliases, merge keys, tags and "
        "a second document are not accepted. Write the value out, or give it a name under `params`.",
        _rules("&first {match: step, drop: true}"),
    ),
    Code.UNCLEAR_VALUE: Explanation(
        "A value that programs read differently",
        "Some read an unquoted `no`, `010` or `1:30` as text, others as a truth value, a number or a time. "
        "Write it in quotes if it is text, and else in the way that the message proposes. Names of fields "
        "are text, too.",
        _rules("{match: step, drop: yes}"),
    ),
    Code.REPEATED_FIELD: Explanation(
        "A field appears twice",
        "One of the two values would silently be lost. Remove one, or make two rules.",
        _rules("{match: step, drop: true, match: epoch}"),
    ),
    Code.UNKNOWN_FIELD: Explanation(
        "A field that does not exist",
        "The recipe language has no field of this name here; it may be misspelt, or belong elsewhere. A "
        "rule renames with `match` and `to`, and computes with `value`. `ckpt-surgery schema` prints a JSON"
        " Schema with which editors complete and check fields.",
        _rules("{match: step, rename: global_step}"),
    ),
    Code.MISSING_FIELD: Explanation(
        "A field or its value is missing",
        "A recipe starts with `version: 1`; an `add` rule has a `value`; a field that is written has a "
        "value.",
        _rules("{add: step}"),
    ),
    Code.WRONG_VALUE: Explanation(
        "A field has a value of the wrong type, or none of its choices",
        "The message says what the field takes and what it has. Text that looks like a number or a truth "
        "value goes in quotes.",
        _rules("{match: step, drop: maybe}"),
    ),
    Code.FIELDS_DISAGREE: Explanation(
        "Fields that do not go together",
        "Each rule has one of `match`, `fill` and `add`, and each of these goes with some fields only. A "
        "rule that drops leaves cannot name or compute them as well. Remove one of the fields, or make two "
        "rules.",
        _rules("{match: step, drop: true, to: global_step}"),
    ),
    Code.NAME: Explanation(
        "A name that is not allowed, or is taken",
        "Params, tables, named groups and `for` variables share one space of names with the "
        "functions of expressions and with `x`, `xs`, `key` and the like. So do sources, which may only be "
        "called like a function: a call is the function, a subscript the source. Choose another one.",
        _rules("{match: step}", before="params: {x: 1}\n"),
    ),
    Code.UNKNOWN_SOURCE: Explanation(
        "The recipe does not have this source, or another number of sources",
        "`sources` lists the names of the checkpoints that a recipe reads, in the order of the command "
        "line; without it there is one, called `source`. `*` at its end stands for any number of further "
        "ones.",
        _rules("{match: step, source: lora}"),
    ),
    Code.MIRROR: Explanation(
        "A tree cannot be mirrored",
        "`mirror` gives the trees whose leaves follow those of the params, such as the moments of an "
        "optimizer. They have to exist and to lie apart, a leaf cannot be renamed out of its tree, and only"
        " values that change no more than layout can be repeated: for others say with `mirror_value` what "
        "becomes of the mirrored leaves.",
        _rules("{match: step}", before="mirror: {params: [params/mu]}\n"),
    ),
    Code.SHARDING: Explanation(
        "A sharding does not fit",
        "`output.sharding` needs a `mesh`, and each spec names axes of that mesh, each of them once. An "
        "array has at least as many axes as its spec, and their lengths are multiples of the number of "
        "parts.",
        "version: 1\noutput:\n  sharding:\n    mesh: {data: 2}\n    specs: {'.*': [model]}\nrules: []\n",
    ),
    Code.PATTERN: Explanation(
        "A regular expression is not one",
        "The message says what is wrong and the caret where. A pattern has to match a whole key. Brackets, "
        "braces, dots and stars have a meaning in it; a backslash before one stands for the character "
        "itself.",
        _rules("{match: 'layers(/.*', drop: true}"),
    ),
    Code.SLOW_PATTERN: Explanation(
        "A regular expression takes too long",
        "A repetition inside another, such as `(a|aa)+` in brackets, can be matched in so many ways that "
        "trying them all takes longer than the age of the checkpoint. Say more exactly what a part matches:"
        " `[^/]+` instead of `.*`, for example.",
        _rules("{match: '(?:([a-z]|[a-z][a-z])+)+$', drop: true}"),
    ),
    Code.INSERTED_PARAM: Explanation(
        "A param cannot be inserted into a pattern",
        "`${name}` in a pattern stands for the text of a param. There has to be one of this name; it has to"
        " be text, an integer or a list of those, and it cannot come from a config, because patterns are "
        "read before any checkpoint is.",
        _rules("{match: 'layers/${layer}/.*', drop: true}"),
    ),
    Code.TEMPLATE: Explanation(
        "A template is wrong, or makes an empty key",
        "A template is a key with `\\1` or `\\g<name>` for groups of the match and `${…}` for expressions. "
        "No component between slashes can be empty; a dollar sign is written `$$` and a backslash `\\\\`.",
        _rules("{match: step, to: 'a//b'}"),
    ),
    Code.EXPRESSION: Explanation(
        "An expression is not one",
        "Expressions have numbers, texts, lists, operators, conditions, comparisons, indexing and calls of "
        "the functions of the language. Statements, methods, attributes other than a few such as `.shape`, "
        "and anything else of Python are left out, so that a recipe can do no harm.",
        _rules("{match: step, value: x.tolist()}"),
    ),
    Code.UNKNOWN_NAME: Explanation(
        "A name that means nothing here",
        "An expression can use params, tables, sources, the named groups and `for` variables of its rule, "
        "and `x`, `xs`, `key`, `g` and `target` where these have a meaning. Text goes in quotes.",
        _rules("{match: step, value: y + 1}"),
    ),
    Code.UNKNOWN_FUNCTION: Explanation(
        "A function that does not exist",
        "It is misspelt, or belongs to another library. The reference lists all functions; the user's own "
        "are called as `hooks.name(…)`.",
        _rules("{match: '.*/kernel', value: tranpose(x)}"),
    ),
    Code.CALL: Explanation(
        "A function is called with the wrong arguments",
        "An argument is missing, is one too many, or has a name that the function does not know. The "
        "message shows how it is called.",
        _rules("{match: '.*/kernel', value: 'transpose(x, axs=[1, 0])'}"),
    ),
    Code.ARGUMENTS: Explanation(
        "A function or an operator does not take these values",
        "The shapes, types or numbers do not go together: an axis that an array does not have, texts that "
        "are added to numbers, sizes that do not multiply to the right one. The message has the values.",
        _rules("{match: '.*/bias', value: 'transpose(x, [1, 0])'}"),
    ),
    Code.NO_ENTRY: Explanation(
        "A source, a table or a config has no such entry",
        "The key is misspelt, or this checkpoint does not have it. `has(…)` tells whether there is one, and"
        " `get(…, default)` gives the default if there is none; an entry `_` of a table stands for all "
        "others.",
        _rules("{match: step, value: \"source['epoch']\"}"),
    ),
    Code.NO_GROUP: Explanation(
        "The regular expression has no such group",
        "Groups are counted by their opening brackets from 1, and `(?:…)` is none; named ones are written "
        "`(?P<name>…)`. An `add` rule has no regular expression and so no groups.",
        _rules(r"{match: 'params/(.*)', to: 'model/\2'}"),
    ),
    Code.PARAM: Explanation(
        "A param has no value that fits",
        "`--set NAME=VALUE` gives a value to a param that the recipe has, of the type of its default. A "
        "config that gives it another type is overruled in the same way.",
        _rules("{match: step}", before="params:\n  sizes: {default: [1, 2], config: sizes}\n"),
    ),
    Code.HOOKS: Explanation(
        "Hooks are not allowed, do not load, or fail",
        "Hooks are Python code in a file beside the recipe, which runs with your rights. Read that file, "
        "then allow it with `--allow-hooks`. Where it fails, the message has Python's own and the line.",
        _rules("{match: step}", before="hooks: ../elsewhere/hooks.py\n"),
    ),
    Code.CLAIMS_NOTHING: Explanation(
        "A rule has no effect",
        "No key matches as a whole, or earlier rules have claimed those that do, or the rule's `when` is "
        "false everywhere. Most often the pattern is misspelt or lacks `/.*` at its end. The first rule "
        "that matches a leaf wins, so that narrow rules go above wide ones. Write `optional: true` if it is"
        " fine.",
        _rules("{match: 'parms/.*', drop: true}"),
    ),
    Code.UNCLAIMED: Explanation(
        "Leaves that no rule claims",
        "The recipe says `unmatched: error`, so that nothing is forgotten. Add rules for these leaves, or "
        "`drop: true` to remove them.",
        _rules("{match: 'params/.*'}", before="unmatched: error\n"),
    ),
    Code.NOTHING_LEFT: Explanation(
        "No leaf is left",
        "All leaves are dropped, by rules or by `unmatched: drop`, so that there is nothing to write.",
        _rules("{match: '.*', drop: true}"),
    ),
    Code.SAME_KEY: Explanation(
        "Two leaves would have the same key",
        "Insert a group or a variable into the template, so that the keys differ; or make one leaf of "
        "several, with a `value` such as `stack(xs)`.",
        _rules(r"{match: 'params/dense_\d/(.*)', to: 'params/dense/\1'}"),
    ),
    Code.LEAF_AND_CONTAINER: Explanation(
        "A key would be both a leaf and a container",
        "No checkpoint has both `a` and `a/b`. Rename one of them, or drop it.",
        _rules("{match: step, to: params}"),
    ),
    Code.ORDER: Explanation(
        "`for` or `by` gives no order, or repeats a leaf",
        "`for` needs a list or a `range(n)`. `by` gives each of the leaves that share a key a place of its "
        "own: an integer or a text, all of one type, none of them twice.",
        _rules(
            r"{match: 'params/dense_(\d)/bias', to: params/bias, by: \"'a'\", value: stack(xs)}".replace(
                '\\"', '"'
            )
        ),
    ),
    Code.NOT_AN_ARRAY: Explanation(
        "A value that is not an array",
        "Strings, random keys and empty nodes can be kept, renamed, dropped or filled, but no expression "
        "can compute with them. A `value` gives an array or a number. Objects of a tree in memory that are "
        "neither arrays of JAX or NumPy nor numbers or texts can only be dropped.",
        _rules("{match: step, value: \"'ten'\"}"),
    ),
    Code.SOURCE_UNUSED: Explanation(
        "Nothing of a source is used",
        "The result would be made of other sources, or of the target's own values, which are random numbers "
        "in a model that was just made. Add rules that take the leaves to where they belong, leave out the "
        "source, or drop it on purpose with `drop: true`.",
        "$ ckpt-surgery plan fallback.yaml SRC --target OTHER\n",
    ),
    Code.NO_TARGET: Explanation(
        "A target, or a value of it, is needed",
        "`fill`, `fallback`, `sharding: target` and the name `target` need `--target PATH`: a checkpoint, "
        "or a listing, which has shapes and types but no values. `fill` rules belong to the last pass.",
        _rules("{fill: '.*'}"),
    ),
    Code.TARGET_MISSING: Explanation(
        "Nothing gives a leaf of the target",
        "The result has to have every leaf of the target. Add rules that give them; the hint has those by "
        "which leaves below another prefix fit. Where leaves are new in the model, `{fill: …, fallback: "
        "missing}` takes the target's own values.",
        "$ ckpt-surgery plan empty.yaml SRC --target LARGER\n",
    ),
    Code.TARGET_MISFIT: Explanation(
        "A leaf does not fit the target's",
        "It has another shape or kind, or a cast to the target's type would lose more than precision. "
        "Change the value with a rule, or say what should happen with `target: {on_shape_mismatch: "
        "fallback}` or `target: {dtype: target}`.",
        "$ ckpt-surgery plan empty.yaml SRC --target WIDER\n",
    ),
    Code.TARGET_EXTRA: Explanation(
        "A leaf is not in the target",
        "The recipe says `target: {extra: error}`, and this leaf would be dropped because the target does "
        "not have its key. Rename it, or drop it on purpose with `drop: true`.",
        "$ ckpt-surgery plan strict.yaml SRC --target SMALLER\n",
    ),
    Code.UNSUITED: Explanation(
        "The destination's format cannot hold this",
        "Formats differ in the types, kinds of leaves, names and trees that they can store. Convert or drop"
        " the leaf with a rule, or choose another `--format`.",
        "$ ckpt-surgery plan empty.yaml SRC out.safetensors\n",
    ),
    Code.BUDGET: Explanation(
        "A step needs more memory than the budget",
        "Everything is computed in parts that fit the budget, but one part needs more than that. Give more "
        "with `--memory`; the message says how much is enough.",
        "$ ckpt-surgery plan sort.yaml SRC --memory 1MiB\n",
    ),
    Code.TOO_MUCH: Explanation(
        "A recipe asks for more than a plan can have",
        "The number of leaves, the length of their names and the number of functions are limited, far above"
        " what checkpoints have. Most often a `for` has more values than was meant.",
        _rules("{add: 'a/${i}/${j}', for: {i: range(100000), j: range(100)}, value: i + j}"),
    ),
    Code.CHANGED: Explanation(
        "What was decided before does not hold any more",
        "A saved plan, or a run that is to be resumed, belongs to a recipe, options and checkpoints as they"
        " were. Make the plan again, or start from the beginning.",
        "$ ckpt-surgery apply other.yaml SRC DST --resume\n",
    ),
    Code.USAGE: Explanation(
        "The command line, or the call, is wrong",
        "An option does not exist, lacks its value, or does not go with another one; a path does not exist; "
        "or a library is not installed, and the hint has the command that installs it. `ckpt-surgery COMMAND "
        "--help` lists the options.",
        "$ ckpt-surgery plan recipe.yaml missing/\n",
    ),
    Code.SOURCE: Explanation(
        "A checkpoint cannot be read",
        "It is damaged or incomplete, no format recognizes it, or it holds something that is not supported."
        " `ckpt-surgery verify PATH` looks at all of it.",
        "$ ckpt-surgery inspect truncated.safetensors\n",
    ),
    Code.DATA: Explanation(
        "The values of an array do not allow it",
        "A cast would overflow, for example. Such problems show only when values are read. Say in the "
        "recipe what should happen, as with `on_overflow`.",
        "$ ckpt-surgery apply to-float16.yaml SRC DST\n",
    ),
    Code.NO_MEMORY: Explanation(
        "The system gave no more memory",
        "Give a smaller budget with `--memory`, fewer threads with `--workers`, or run on a larger machine.",
        "$ ckpt-surgery apply recipe.yaml SRC DST --memory 900GiB\n",
    ),
    Code.VERIFICATION: Explanation(
        "What was written reads back differently",
        "The destination is not published where this is found before; keep the old checkpoint and look at "
        "the disk.",
        "$ ckpt-surgery verify DST\n",
    ),
    Code.DESTINATION: Explanation(
        "The destination exists, or is being written",
        "Nothing is overwritten without `--overwrite`. Wait for the other run, or choose another "
        "destination.",
        "$ ckpt-surgery convert SRC existing/\n",
    ),
    Code.STORAGE: Explanation(
        "No space, no permission, or an error of a disk or of a network",
        "The message has the system's own. What was written so far can be taken up again with `--resume`.",
        "$ ckpt-surgery convert SRC /full/disk\n",
    ),
    Code.INTERRUPTED: Explanation(
        "The run was interrupted",
        "A signal, such as that of Ctrl-C, ended it, or another process of the same run did. The "
        "destination is as it was; `--resume` goes on with what was written.",
        "$ timeout 1 ckpt-surgery apply recipe.yaml SRC DST\n",
    ),
    Code.INTERNAL: Explanation(
        "A bug in ckpt-surgery",
        "This is not a mistake in your input. Please report it to the project's issue tracker, with the "
        "command, the recipe and what the same command prints with -vv.",
        "$ ckpt-surgery apply -vv recipe.yaml SRC DST\n",
    ),
}
"""The explanation of every code."""
