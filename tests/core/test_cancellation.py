"""Work is cancelled in the thread that it was begun in, and nowhere else."""

import threading

import pytest

from ckpt_surgery.core.cancellation import Cancelled, cancelled_by, raise_if_cancelled


def test_work_ends_at_the_first_check_after_the_event() -> None:
    event = threading.Event()
    raise_if_cancelled()  # nobody can cancel this
    with cancelled_by(event):
        raise_if_cancelled()
        event.set()
        for _ in range(2):
            with pytest.raises(Cancelled):
                raise_if_cancelled()
    raise_if_cancelled()


def test_inner_work_has_an_event_of_its_own_and_none_counts_after_an_error() -> None:
    outer, inner = threading.Event(), threading.Event()
    outer.set()
    with cancelled_by(outer):
        with cancelled_by(inner):
            raise_if_cancelled()
        with pytest.raises(Cancelled):
            raise_if_cancelled()
    with pytest.raises(ZeroDivisionError), cancelled_by(outer):
        raise ZeroDivisionError
    raise_if_cancelled()


def test_other_threads_go_on() -> None:
    event, found = threading.Event(), []
    event.set()

    def elsewhere() -> None:
        raise_if_cancelled()
        found.append("went on")

    with cancelled_by(event):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert found == ["went on"]
