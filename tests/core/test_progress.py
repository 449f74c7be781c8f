"""Counting of bytes by several threads."""

from concurrent.futures import ThreadPoolExecutor

from ckpt_surgery.core.progress import CHECKING, ByteCounter, Progress


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
