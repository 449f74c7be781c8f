"""Work is cancelled in the thread that it was begun in, and nowhere else."""

import threading

import pytest

from ckpt_surgery.core.cancellation import Stopped, check_wanted, until


def test_work_that_nobody_can_cancel_goes_on() -> None:
    check_wanted()


def test_work_ends_at_the_first_check_after_the_event() -> None:
    event = threading.Event()
    with until(event):
        check_wanted()
        event.set()
        with pytest.raises(Stopped):
            check_wanted()
        with pytest.raises(Stopped):
            check_wanted()
    check_wanted()


def test_what_was_cancelled_before_it_began_does_nothing() -> None:
    event = threading.Event()
    event.set()
    done = []
    with pytest.raises(Stopped), until(event):
        check_wanted()
        done.append("work")
    assert done == []


def test_inner_work_has_an_event_of_its_own() -> None:
    outer, inner = threading.Event(), threading.Event()
    outer.set()
    with until(outer):
        with until(inner):
            check_wanted()
        with pytest.raises(Stopped):
            check_wanted()


def test_after_an_error_the_event_no_longer_counts() -> None:
    event = threading.Event()
    event.set()
    with pytest.raises(ZeroDivisionError), until(event):
        raise ZeroDivisionError
    check_wanted()


def test_other_threads_go_on() -> None:
    event, found = threading.Event(), []
    event.set()

    def elsewhere() -> None:
        check_wanted()
        found.append("went on")

    with until(event):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert found == ["went on"]
