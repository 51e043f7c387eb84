import pytest

from weftformer.common.atomic import atomic_folder, atomic_write, complete_lines, open_lines, partial_file


def test_a_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "notes.txt"
    with atomic_write(path) as temporary:
        temporary.write_text("old")
        assert not path.exists() and temporary.suffix == ".txt" and temporary.parent == tmp_path
    (tmp_path / "aside").mkdir()
    with pytest.raises(RuntimeError), atomic_write(path, tmp_path / "aside") as temporary:
        temporary.write_text("half")
        assert temporary.parent == tmp_path / "aside"
        raise RuntimeError
    assert path.read_text() == "old" and not list((tmp_path / "aside").iterdir())
    with atomic_write(path, tmp_path / "aside") as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new" and sorted(tmp_path.iterdir()) == [tmp_path / "aside", path]


def test_what_was_written_before_an_error_is_kept_beside(tmp_path):
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


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    (tmp_path / "folder.json").mkdir()
    for path in (tmp_path / "folder.json", tmp_path / "nowhere" / "a.json"):
        with pytest.raises(OSError) as error, atomic_write(path) as temporary:
            temporary.write_text("x")
        assert str(path) in str(error.value) and f".{path.name}" not in str(error.value)
    assert [file.name for file in tmp_path.iterdir()] == ["folder.json"]


def test_lines_that_were_cut_are_mended(tmp_path):
    path = tmp_path / "found.jsonl"
    assert complete_lines(path) == 0 and not path.exists()
    path.write_bytes(b"one\ntwo\x85\nthr")
    assert complete_lines(path) == 2 and path.read_bytes().endswith(b"\n")
    with open_lines(path, append=True) as file:
        file.write("three\n")
    assert complete_lines(path) == 3 and path.read_bytes().endswith(b"\nthree\n")
    with open_lines(path) as file:
        file.write("new\n")
    assert path.read_bytes() == b"new\n"
