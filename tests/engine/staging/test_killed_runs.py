"""Publication across processes: kills, signals, races."""

import os
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.directories import names
from tests.support.generations import NEW, OLD, found, put, write_lock

CHILD = textwrap.dedent(
    """
    import os, select, signal, sys
    from pathlib import Path
    import ckpt_surgery
    from ckpt_surgery.engine import signals
    from ckpt_surgery.engine.staging import local, renaming
    from ckpt_surgery.core.errors import Interrupted, SurgeryError

    # Tests that run in the background of a shell inherit that SIGINT is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    destination, mode, generation = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    one_file = destination.suffix == ".bin"

    def run():
        with signals.interruptible(), local.staged(destination, one_file) as staging:
            if one_file:
                staging.product.write_text((generation + "\\n") * 3)
            else:
                (staging.work / "d").mkdir()
                (staging.work / "d" / "data").write_text(generation)
                (staging.work / "_METADATA").write_text(generation)
            if mode == "wait":
                print("staged", flush=True)
                sys.stdin.readline()
            if mode == "stay":
                print("staged", flush=True)
                while not select.select([sys.stdin], [], [], 0.01)[0]:
                    pass
            local.publish(staging, overwrite=mode in ("lines", "die", "late"))
        for notice in staging.notices:
            print(notice)

    def dying(real, left=[int(sys.argv[4]) if mode == "die" else 0]):
        def call(*args, **keywords):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return real(*args, **keywords)
        return call

    if mode == "die":
        for name in ("open", "write", "mkdir", "fsync", "unlink", "rmdir"):
            setattr(os, name, dying(getattr(os, name)))
        renaming._rename_in_one_step = dying(renaming._rename_in_one_step)
    def counted(frame, event, argument, left=[int(sys.argv[4]) if mode == "lines" else 0]):
        if package not in Path(frame.f_code.co_filename).parents:
            return None
        if event == "line":
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
        return counted

    package = Path(ckpt_surgery.__file__).parent
    if mode == "late":
        rename = renaming._rename_in_one_step
        def late(source, target, way):
            if target == destination:
                os.kill(os.getpid(), signal.SIGTERM)
            rename(source, target, way)
        renaming._rename_in_one_step = late
    if mode == "limited":
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        run()
        if mode == "lines":
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


def finish(process: "subprocess.Popen[str]", text: str = "") -> tuple[int, str, str]:
    out, err = process.communicate(text)
    return process.returncode, out, err


@pytest.mark.parametrize("name", ["out", "out.bin"])
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_leaves_nothing(
    tmp_path: Path, child: Child, number: signal.Signals, code: int, name: str
) -> None:
    process = child(tmp_path / name, "stay")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(number)
    returned, _, err = finish(process)
    assert returned == code
    assert err == f"stopped by {number.name}\n\nnothing was published: {tmp_path}/{name} does not exist\n"
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["out", "out.bin"])
def test_a_signal_during_the_rename_comes_after_it(tmp_path: Path, child: Child, name: str) -> None:
    put(tmp_path / name, OLD)
    returned, _, err = finish(child(tmp_path / name, "late"))
    assert returned == 143
    assert err == f"stopped by SIGTERM\n\n{tmp_path}/{name} itself is new and complete\n"
    assert found(tmp_path / name) == NEW
    assert names(tmp_path) == [name]


def test_of_two_runs_the_first_wins(tmp_path: Path, child: Child) -> None:
    first = child(tmp_path / "out", "wait", "first")
    assert first.stdout is not None
    first.stdout.readline()
    code, _, err = finish(child(tmp_path / "out", "plain", "second"))
    assert code == 4
    assert f"process {first.pid}" in err
    assert finish(first, "go\n")[0] == 0
    assert found(tmp_path / "out") == "first"
    assert names(tmp_path) == ["out"]


def test_many_runs_at_a_dead_lock(tmp_path: Path, child: Child) -> None:
    write_lock(tmp_path / "out", started="1")
    runs = [child(tmp_path / "out", "plain", str(i)) for i in range(4)]
    codes = [finish(run)[0] for run in runs]
    assert sorted(codes) == [0, 4, 4, 4]
    assert found(tmp_path / "out") == str(codes.index(0))
    assert names(tmp_path) == ["out"]


def test_a_full_disk_from_the_first_byte_on(tmp_path: Path, child: Child) -> None:
    code, _, err = finish(child(tmp_path / "out", "limited"))
    assert code == 5
    assert err.startswith(f"{tmp_path}/.out.ckpt-surgery-lock: File too large")
    assert names(tmp_path) == []


@pytest.mark.parametrize("before", [None, OLD], ids=["fresh", "overwrite"])
@pytest.mark.parametrize("call", [0, 1, 2, 5, 8, 10, 11, 12, 13, 15])
@pytest.mark.parametrize("name", ["out", "out.bin"])
def test_killed_at_a_system_call(
    tmp_path: Path, child: Child, before: str | None, call: int, name: str
) -> None:
    if before:
        put(tmp_path / name, before, one_file=name == "out.bin")
    code, _, _ = finish(child(tmp_path / name, "die", NEW, str(call)))
    assert code in (0, -signal.SIGKILL)
    after_a_kill(tmp_path / name, {before, NEW})


@pytest.mark.parametrize("name", ["out", "out.bin"])
def test_killed_at_random_lines(tmp_path: Path, child: Child, name: str) -> None:
    kill_at_random_lines(tmp_path / name, child, times=4, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_killed_at_many_random_lines(tmp_path: Path, child: Child, seed: int) -> None:
    kill_at_random_lines(tmp_path / ("out.bin" if seed % 2 else "out"), child, times=10, seed=seed)


LINES = 200
"""Lines of the package that a run takes, about."""


def kill_at_random_lines(destination: Path, child: Child, times: int, seed: int) -> None:
    """Each time a run that overwrites what the same process has published."""
    chance = random.Random(seed)
    for i in range(times):
        process = child(destination, "lines", str(i), str(chance.randrange(LINES)))
        code, _, err = finish(process)
        assert code in (0, -signal.SIGKILL), err
        after_a_kill(destination, {str(i), "next"})


def after_a_kill(destination: Path, allowed: set[str | None]) -> None:
    assert found(destination) in allowed
    assert len(names(destination.parent)) <= 3  # the destination, a lock, a temporary directory
    put(destination, "next", overwrite=True, one_file=destination.suffix == ".bin")
    assert found(destination) == "next"
    assert names(destination.parent) == [destination.name]
