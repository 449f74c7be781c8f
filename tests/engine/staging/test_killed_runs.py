"""Publication across processes: kills, signals, races."""

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.directories import names
from tests.support.generations import NEW, OLD, age, fill, fill_file, found, lock_of, put, staged, write_lock
from tests.support.slow import slow

CHILD = textwrap.dedent(
    """
    import os, select, shutil, signal, sys
    from pathlib import Path
    import ckpt_surgery
    from ckpt_surgery.system import signals
    from ckpt_surgery.core.errors import Interrupted, SurgeryError
    from tests.support.generations import fill, fill_file, staged

    destination, mode, generation = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    one_file = destination.suffix == ".bin"

    def run():
        overwrite = mode in ("first", "second", "resume")
        place = staged(destination, one_file, resume=mode == "resume", overwrite=overwrite)
        with signals.interruptible(), place as staging:
            if staging.resumed:
                print("resumed")
                shutil.rmtree(staging.tree)
                staging.tree.mkdir()
            (fill_file if one_file else fill)(staging.output, generation)
            (staging.directory / "journal-0.jsonl").write_text("{}\\n")
            if mode == "tasks":
                print("staged", flush=True)
                while not select.select([sys.stdin], [], [], 0.01)[0]:
                    pass
            staging.publish()

    left = list(map(int, sys.argv[4:]))  # the lines of the package after which the run is killed

    def counted(frame, event, argument):
        if package not in Path(frame.f_code.co_filename).parents:
            return None
        if event == "line":
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
        return counted

    package = Path(ckpt_surgery.__file__).parent
    try:
        if mode == "second":
            run()
        if left:
            sys.settrace(counted)
        run()
    except Interrupted as error:
        print(error, file=sys.stderr)
        sys.exit(128 + error.signal_number)
    except SurgeryError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    """
)


@pytest.fixture
def child(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.Popen[str]]:
    script = tmp_path_factory.mktemp("child") / "child.py"
    script.write_text(CHILD)

    def start(destination: Path, mode: str, generation: str = NEW, *more: str) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": os.getcwd()}
        return subprocess.Popen(
            [sys.executable, str(script), str(destination), mode, generation, *more],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    return start


Child = Callable[..., "subprocess.Popen[str]"]


def told(process: "subprocess.Popen[str]") -> str:
    """The next line that a child prints: it has come so far."""
    assert process.stdout is not None
    return process.stdout.readline()


def finish(process: "subprocess.Popen[str]", text: str = "") -> tuple[int, str, str]:
    out, err = process.communicate(text)
    return process.returncode, out, err


@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "out"), (signal.SIGTERM, "out.bin")])
def test_what_a_run_has_done_is_resumed(
    tmp_path: Path, child: Child, number: signal.Signals, name: str
) -> None:
    put(tmp_path / name, OLD, one_file=name == "out.bin")
    first = child(tmp_path / name, "tasks", "first")
    told(first)
    first.send_signal(number)
    code, _, err = finish(first)
    assert code == (143 if number == signal.SIGTERM else -9)
    if number == signal.SIGTERM:
        (kept,) = tmp_path.glob(".*")
        assert f"{tmp_path / name} is as it was before" in err
        assert f"what was written is kept in {kept}: 1 finished task\n" in err
    assert found(tmp_path / name) == OLD
    code, out, _ = finish(child(tmp_path / name, "resume", "second"))
    assert code == 0
    assert out.startswith("resumed\n")
    assert found(tmp_path / name) == "second"
    assert names(tmp_path) == [name]


@pytest.mark.slow("kills processes")
def test_a_stopped_run_is_alive(tmp_path: Path, child: Child) -> None:
    first = child(tmp_path / "out", "tasks", "first")
    told(first)
    first.send_signal(signal.SIGSTOP)
    age(lock_of(tmp_path / "out"), 1000)
    code, _, err = finish(child(tmp_path / "out", "plain", "second"))
    assert code == 4
    assert f"process {first.pid} on" in err
    first.send_signal(signal.SIGCONT)
    assert finish(first, "go\n")[0] == 0
    assert found(tmp_path / "out") == "first"


def test_many_runs_at_a_dead_lock(tmp_path: Path, child: Child) -> None:
    write_lock(tmp_path / "out", started="1")
    runs = [child(tmp_path / "out", "plain", str(i)) for i in range(3)]
    codes = [finish(run)[0] for run in runs]
    assert sorted(codes) == [0, 4, 4]
    assert found(tmp_path / "out") == str(codes.index(0))
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("before", [None, OLD], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("line", [151, 340, *map(slow, (0, 31, 60, 101, 210, 261, 300, 381, 421))])
@pytest.mark.parametrize("name", ["out", "out.bin"])
def test_killed_at_a_line(tmp_path: Path, child: Child, before: str | None, line: int, name: str) -> None:
    if before:
        put(tmp_path / name, before, one_file=name == "out.bin")
    code, _, err = finish(child(tmp_path / name, "first", NEW, str(line)))
    assert code in (0, -signal.SIGKILL), err
    after_a_kill(tmp_path / name, {before, NEW}, resume=line % 2 == 1)


LINES = 510
"""Lines of the package that a run takes, about."""


@pytest.mark.slow("kills processes")
@pytest.mark.parametrize("seed", range(50))
def test_killed_at_random_lines(tmp_path: Path, child: Child, seed: int) -> None:
    """Each time a run that overwrites what the same process has published."""
    chance, destination = random.Random(seed), tmp_path / ("out.bin" if seed % 2 else "out")
    for i in range(10):
        process = child(destination, "second", str(i), str(chance.randrange(LINES)))
        code, _, err = finish(process)
        assert code in (0, -signal.SIGKILL), err
        after_a_kill(destination, {str(i), "next"}, resume=i % 2 == 1)


def after_a_kill(destination: Path, allowed: set[str | None], resume: bool = False) -> None:
    """What every run leaves is put in order by the next one, whether it resumes or begins anew."""
    assert found(destination) in allowed
    assert len(names(destination.parent)) <= 3  # the destination, a lock, a temporary directory
    one_file = destination.suffix == ".bin"
    with staged(destination, one_file, resume=resume, overwrite=True) as staging:
        if staging.resumed:
            shutil.rmtree(staging.tree)
            staging.tree.mkdir()
        (fill_file if one_file else fill)(staging.output, "next")
        staging.publish()
    assert found(destination) == "next"
    assert names(destination.parent) == [destination.name]
