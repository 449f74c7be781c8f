"""What a shard has done, as lines of styled text. Prints nothing."""

from collections.abc import Iterator

from rich.text import Text

from ckpt_surgery.core.text import bytes_text, number_of, seconds_text, shown
from ckpt_surgery.report.shards import ShardResult

MOST_NAMED = 20
"""Number of shards that are named as missing."""


def shard_lines(result: ShardResult) -> Iterator[Text]:
    """What was done, and what is left to do."""
    line = Text.assemble(("done", "bold green"), f"  shard {result.shard}/{result.shards}")
    if result.already_done:
        line.append(" was done before")
    else:
        line.append(f" · {number_of(result.tasks, 'task')} · {bytes_text(result.bytes)}")
        line.append(f" in {seconds_text(result.seconds)}")
    yield line.append(f" · {shown(result.destination)}")
    missing = result.missing_shards
    if not missing:
        yield Text(f"all shards are done: ckpt-surgery commit {shown(result.destination)}")
        return
    named = ", ".join(f"{index}/{result.shards}" for index in missing[:MOST_NAMED])
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    yield Text(f"not done yet: {named}{more}", "dim")
