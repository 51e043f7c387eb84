import errno
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

import weftformer
from weftformer.common import atomic
from weftformer.common.atomic import atomic_folder, atomic_write, partial_file


def test_a_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "notes.txt"
    with atomic_write(path) as temporary:
        temporary.write_text("old")
        assert not path.exists() and temporary.suffix == ".txt" and temporary.parent == tmp_path
    with pytest.raises(RuntimeError), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    with atomic_write(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_a_partial_file_is_kept_after_an_error(tmp_path):
    path, part = tmp_path / "found.jsonl", tmp_path / "found.jsonl.part"
    with pytest.raises(KeyboardInterrupt), partial_file(path) as file:
        file.write("one\n")
        raise KeyboardInterrupt
    assert part.read_text() == "one\n" and not path.exists()
    with partial_file(path) as file:
        file.write("two\n")
    assert path.read_text() == "two\n" and list(tmp_path.iterdir()) == [path]


def test_a_folder_is_whole_or_as_it_was(tmp_path):
    folder = tmp_path / "new" / "out"
    with atomic_folder(folder) as new:
        (new / "file").write_text("old")
        assert not folder.exists()
    with pytest.raises(ValueError, match="is not empty"), atomic_folder(folder):
        pass
    with pytest.raises(OSError), atomic_folder(tmp_path / "filled"):  # by another program, meanwhile
        (tmp_path / "filled").mkdir()
        (tmp_path / "filled" / "file").touch()
    assert (tmp_path / "filled" / "file").exists()
    with pytest.raises(RuntimeError), atomic_folder(folder, replace=True) as new:
        (new / "file").write_text("half")
        raise RuntimeError
    assert (folder / "file").read_text() == "old" and list(folder.parent.iterdir()) == [folder]
    with atomic_folder(folder, replace=True) as new:
        (new / "other").write_text("new")
        assert (folder / "file").read_text() == "old"
    assert [path.name for path in folder.iterdir()] == ["other"] and list(folder.parent.iterdir()) == [folder]
    (tmp_path / "empty").mkdir()
    with atomic_folder(tmp_path / "empty") as new:
        (new / "file").touch()
    assert (tmp_path / "empty" / "file").exists()


def write(kind, path):
    with getattr(atomic, kind)(path, **({"replace": True} if kind == "atomic_folder" else {})) as opened:
        opened.write("new\n") if kind == "partial_file" else ((opened or path) / "new").touch()


# the file alone: the package would take seconds to import
HOLDER = f"""
import runpy, sys, time
names = runpy.run_path({str(Path(weftformer.__file__).parent / "common" / "atomic.py")!r})
with names[sys.argv[1]](sys.argv[2]) as opened:
    if sys.argv[1] == "atomic_folder":
        (opened / "half").touch()
    elif opened:
        opened.write("old\\nhal")
        opened.flush()
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("kind", "left", "found"),
    [
        ("locked_folder", {"out", ".out.lock"}, ["new"]),
        ("atomic_folder", {".out.part", ".out.lock"}, ["new"]),
        ("partial_file", {"out.part", ".out.part.lock"}, "new\n"),
    ],
)
def test_a_second_run_is_refused_until_the_first_has_ended_or_was_killed(tmp_path, kind, left, found):
    path = tmp_path / "out"
    words = [sys.executable, "-c", HOLDER, kind, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "ready\n"
            with pytest.raises(ValueError, match=r"Another run is writing .*out"):
                write(kind, path)
        finally:
            os.kill(holder.pid, signal.SIGKILL)
    assert {file.name for file in tmp_path.iterdir()} == left
    write(kind, path)
    assert ([file.name for file in path.iterdir()] if path.is_dir() else path.read_text()) == found
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_put_aside_by_a_killed_run_is_restored(tmp_path):
    """It was killed between the two renamings of `replace=True`."""
    out, old = tmp_path / "out", tmp_path / ".out.old"
    old.mkdir()
    (old / "file").write_text("old")
    with pytest.raises(ValueError, match="out exists and is not empty"), atomic_folder(out):
        raise AssertionError
    for error, text in ((True, "old"), (False, "new")):
        out.rename(old)
        with pytest.raises(RuntimeError) if error else nullcontext(), atomic_folder(out, replace=True) as folder:
            (folder / "file").write_text("new")
            if error:
                raise RuntimeError
        assert (out / "file").read_text() == text and list(tmp_path.iterdir()) == [out]


def test_a_file_may_be_a_link(tmp_path):
    (tmp_path / "link").symlink_to("file")
    for text in ("old", "new"):
        with atomic_write(tmp_path / "link") as temporary:
            temporary.write_text(text)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == text
    with partial_file(tmp_path / "link") as file:
        file.write("newest")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "newest"


# the second as `write` of an open file, without its name
@pytest.mark.parametrize(
    ("write", "error"),
    [(atomic_folder, RuntimeError("I/O error: No space left on device (os error 28)")),
     (atomic_folder, RuntimeError("PytorchStreamWriter failed writing file")),
     *((write, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) for write in (atomic_write, partial_file))],
)  # fmt: skip
def test_a_full_disk_is_told_with_the_name(tmp_path, write, error):
    with pytest.raises(OSError, match=r"No space left on device: .*plans") as raised, write(tmp_path / "plans"):
        raise error
    assert str(os.getpid()) not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["plans.part"] * (write is partial_file)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_device_is_told_with_its_name():
    with pytest.raises(OSError, match=r"No space left on device: .*/dev/full"), atomic_write("/dev/full") as file:
        file.write_text("C\n")
