"""The options of a command by what they are about, for its help."""

from collections.abc import Mapping, Sequence

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
