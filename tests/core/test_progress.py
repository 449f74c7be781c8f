"""Counting of bytes by several threads."""

from concurrent.futures import ThreadPoolExecutor

from ckpt_surgery.core.progress import CHECKING, ByteCounter, Progress, progress_text


def test_each_step_is_reported_with_all_that_is_done():
    reports: list[Progress] = []
    counter = ByteCounter(12, reports.append, CHECKING)
    for nbytes in (5, 0, 7):
        counter.add(nbytes)
    assert reports == [Progress(5, 12, CHECKING), Progress(5, 12, CHECKING), Progress(12, 12, CHECKING)]


def test_threads_report_in_order_and_lose_nothing():
    done: list[int] = []
    counter = ByteCounter(4000, lambda progress: done.append(progress.done_bytes))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(counter.add, [1] * 4000))
    assert done == list(range(1, 4001))


def test_a_speed_is_told_once_there_is_one():
    """Of the first milliseconds it would be TiB/s."""
    text = progress_text(Progress(1 << 30, 4 << 30), 0.0001)
    assert text == "writing 1.00 GiB of 4.00 GiB"
    text = progress_text(Progress(1 << 30, 4 << 30), 4)
    assert text == "writing 1.00 GiB of 4.00 GiB, 256 MiB/s, 12 s left"
    assert progress_text(Progress(0, 2048), 3.0) == "writing 0 B of 2.00 KiB"
