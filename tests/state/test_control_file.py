"""The control file on disk: whatever is odd about it means pause, and a write is seen whole or not at all."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.control import ControlState, Mode, Only
from experiments.errors import InputError
from experiments.knob import Cost
from state.control import ControlFile, format_control, write_atomically, write_status
from state.errors import StoreUnusable
from tests.state.malformed import MALFORMED

RUN = "mode: run\nauthorized_until: 2026-12-01T07:00:00+08:00\nallow: [hot, restart]\nby: ops\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace that only its owner may write."""
    made = tmp_path / "workspace"
    made.mkdir(mode=0o755)
    return made


@pytest.fixture
def file(folder: Path) -> ControlFile:
    """A control file that says run."""
    (folder / "state.yaml").write_text(RUN)
    (folder / "state.yaml").chmod(0o644)
    return ControlFile(folder / "state.yaml")


def problem_of(file: ControlFile) -> str:
    """Why the file is not followed. What holds then is pause."""
    reading = file.read()
    assert reading.state.mode is Mode.PAUSE
    assert reading.problem is not None
    assert reading.state.reason == reading.problem[:500]
    return reading.problem


def test_a_good_file_is_followed_with_the_hash_of_its_bytes(file: ControlFile) -> None:
    """The hash is of exactly what was acted on."""
    reading = file.read()
    assert reading.problem is None
    assert reading.state.mode is Mode.RUN
    assert hashlib.sha256(RUN.encode()).hexdigest() == reading.sha256


@pytest.mark.parametrize("content", MALFORMED, ids=[str(n) for n in range(len(MALFORMED))])
def test_malformed_content_means_pause(file: ControlFile, content: bytes) -> None:
    """Each malformed file pauses the service, says why in one line, and never raises."""
    Path(file.path).write_bytes(content)
    problem = problem_of(file)
    assert problem.startswith("state.yaml")
    assert problem.isprintable()


def test_there_are_a_hundred_malformed_files() -> None:
    """The corpus is as large as promised, and no file is in it twice."""
    assert len(MALFORMED) >= 100
    assert len(set(MALFORMED)) == len(MALFORMED)


def test_a_missing_file_means_pause(folder: Path) -> None:
    """No word is no permission; nor is a missing folder."""
    assert "No such file" in problem_of(ControlFile(folder / "state.yaml"))
    assert "No such file" in problem_of(ControlFile(folder / "gone" / "state.yaml"))


def _symlink(path: Path) -> None:
    path.rename(path.with_name("real.yaml"))
    path.symlink_to("real.yaml")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o644)


def _socket(path: Path) -> None:
    path.unlink()
    short = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as end:
            end.bind(f"/proc/self/fd/{short}/{path.name}")
    finally:
        os.close(short)


def _device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "link": (_symlink, "cannot be read"),
    "folder": (_folder, "not a regular file"),
    "pipe": (_pipe, "not a regular file"),
    "socket": (_socket, "cannot be read"),
    "device": (_device, "cannot be read"),
    "group writes it": (lambda path: path.chmod(0o664), "others may write it"),
    "anyone writes it": (lambda path: path.chmod(0o646), "others may write it"),
    "group writes the folder": (lambda path: path.parent.chmod(0o775), "others may write its folder"),
    "anyone writes the folder": (lambda path: path.parent.chmod(0o757), "others may write its folder"),
    "a little too large": (lambda path: path.write_bytes(RUN.encode() + b"#" * 65_536), "has 65,6"),
    "a terabyte": (lambda path: os.truncate(path, 1 << 40), "has 1,099,511,627,776 bytes"),
    "empty": (lambda path: path.write_bytes(b""), "empty"),
}


@pytest.mark.parametrize(("spoil", "message"), ODD.values(), ids=ODD)
def test_an_odd_file_means_pause(file: ControlFile, spoil: Callable[[Path], object], message: str) -> None:
    """Links, pipes, devices, folders, files that others may write, and huge ones are not followed, without waiting."""
    spoil(Path(file.path))
    assert message in problem_of(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("target", ["file", "folder"])
def test_a_file_of_another_user_means_pause(file: ControlFile, folder: Path, target: str) -> None:
    """Neither the file nor its folder may belong to anyone but the service and root."""
    os.chown(folder if target == "folder" else file.path, 12_345, -1)
    assert "belongs to user 12345" in problem_of(file)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_means_pause(file: ControlFile) -> None:
    """A file without read permission is no permission."""
    Path(file.path).chmod(0)
    assert "Permission denied" in problem_of(file)


def test_a_sticky_folder_is_good_enough(file: ControlFile, folder: Path) -> None:
    """In a folder like /tmp others cannot replace the file."""
    folder.chmod(0o1777)
    assert file.read().problem is None


def test_the_largest_file_allowed_is_read(file: ControlFile) -> None:
    """64 KiB, to the byte."""
    content = RUN.encode()
    Path(file.path).write_bytes(content + b"#" * (65_536 - len(content) - 1) + b"\n")
    assert file.read().problem is None


def test_swaps_while_reading_never_mix(file: ControlFile, folder: Path) -> None:
    """While a writer replaces the file, readers see one order or the other; a link that appears is never followed."""
    orders = [ControlState(mode=Mode.RUN, by="a" * 90), ControlState(mode=Mode.STOP, by="b")]
    file.write(orders[0])
    stop = threading.Event()

    def swap() -> None:
        other = folder / "other.yaml"
        while not stop.is_set():
            for order in orders:
                write_atomically(file.path, format_control(order))
                other.symlink_to("/etc/hostname")
                other.replace(file.path)
        write_atomically(file.path, format_control(orders[0]))

    writer = threading.Thread(target=swap)
    writer.start()
    try:
        readings = [file.read() for _ in range(500)]
    finally:
        stop.set()
        writer.join()
    for reading in readings:
        if reading.problem is None:
            assert reading.state in orders
        else:
            assert "cannot be read" in reading.problem


def test_what_is_written_is_read_back(folder: Path) -> None:
    """Every field survives the file, and nobody else may write it whatever the umask."""
    file = ControlFile(folder / "state.yaml")
    order = ControlState(
        mode=Mode.DRAIN,
        authorized_until=datetime(2026, 12, 1, 7, tzinfo=UTC),
        allow=(Cost.HOT,),
        approve=("ab" * 32, "12345678"),
        only=Only(card="c03-concurrency-90"),
        reason='the "night" shift: 夜班 #1',
        by="ops: 运维",
    )
    before = os.umask(0)
    try:
        file.write(order)
    finally:
        os.umask(before)
    assert order == file.read().state
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o644
    assert sorted(p.name for p in folder.iterdir()) == [".state.yaml.lock", "state.yaml"]


@settings(deadline=None, max_examples=200)
@given(reason=st.text(max_size=120), by=st.text(min_size=1, max_size=60))
def test_no_text_of_an_operator_breaks_the_file(reason: str, by: str) -> None:
    """A reason or a name can neither add a key nor make the file unreadable; what is invisible becomes a blank."""
    from experiments.control import parse_control

    order = ControlState.model_construct(mode=Mode.PAUSE, allow=(), approve=(), reason=reason, by=by)
    read = parse_control(format_control(order), "state.yaml")
    assert (read.mode, read.approve) == (Mode.PAUSE, ())
    assert "".join(c if c.isprintable() else " " for c in reason) == read.reason


def test_update_keeps_what_it_does_not_change(file: ControlFile) -> None:
    """Pausing keeps lease and allowances; resuming gives the old order back."""
    before = file.read().state
    paused = file.update(lambda s: s.model_copy(update={"mode": Mode.PAUSE}))
    assert before.model_copy(update={"mode": Mode.PAUSE}) == paused == file.read().state
    file.update(lambda s: s.model_copy(update={"mode": Mode.RUN}))
    assert before == file.read().state


def test_update_refuses_a_file_that_cannot_be_followed(file: ControlFile) -> None:
    """Nobody resumes on top of an order that could not be read; the file stays as it is."""
    Path(file.path).write_text("mode: rnu\nby: ops\n")
    with pytest.raises(InputError, match="repair it"):
        file.update(lambda s: s.model_copy(update={"mode": Mode.RUN}))
    assert Path(file.path).read_text() == "mode: rnu\nby: ops\n"


def test_an_order_that_could_not_be_read_back_is_not_written(file: ControlFile) -> None:
    """A programming error in the CLI cannot replace a good file by a bad one."""
    with pytest.raises(InputError):
        file.write(ControlState.model_construct(mode=Mode.RUN, approve=("nonsense",), by="ops"))
    assert Path(file.path).read_text() == RUN


def test_concurrent_updates_are_all_kept(file: ControlFile) -> None:
    """Two people who approve at once both succeed."""
    digests = [f"{n:064x}" for n in range(24)]

    def approve(mine: list[str]) -> None:
        for digest in mine:
            file.update(lambda s, d=digest: s.model_copy(update={"approve": (*s.approve, d)}))

    threads = [threading.Thread(target=approve, args=(digests[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(file.read().state.approve) == digests


def test_a_failed_write_leaves_the_old_file(file: ControlFile, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full the order stays what it was, and no half file lies about."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("state.control.os.fsync", full)
    with pytest.raises(StoreUnusable, match="No space left"):
        file.write(ControlState(mode=Mode.STOP, by="ops"))
    assert Path(file.path).read_text() == RUN
    assert sorted(p.name for p in folder.iterdir()) == [".state.yaml.lock", "state.yaml"]


def test_the_reply_is_flat_yaml(folder: Path) -> None:
    """status.yaml holds one line per key, whatever the texts are."""
    write_status(folder / "status.yaml", {"mode": "pause", "why": "a\nb: c", "safe": True, "eta_s": None})
    lines = (folder / "status.yaml").read_text().splitlines()
    assert lines == ['mode: "pause"', 'why: "a\\nb: c"', "safe: true", "eta_s: null"]
