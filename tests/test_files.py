"""Atomic files, the cache folder, locks."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qbe.cli import common as _cli
from qbe.errors import OutputError
from qbe.util import files
from qbe.util.files import atomic_file, lock, write_text


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_atomic_file_appears_with_its_content(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "x"
    with files.atomic_file(target) as stream:
        stream.write(b"abc")
        assert not target.exists()
    assert target.read_bytes() == b"abc"
    assert names(target.parent) == ["x"]
    umask = os.umask(0)
    os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o666 & ~umask


def test_atomic_file_keeps_the_former_content_on_an_exception_and_a_kill(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(RuntimeError, match="stop"), files.atomic_file(tmp_path / "x") as stream:
        stream.write(b"half")
        raise RuntimeError("stop")
    assert (tmp_path / "x").read_bytes() == b"old"
    assert names(tmp_path) == ["x"]
    code = (
        "import os, signal, sys, pathlib; from qbe.util.files import atomic_file\n"
        "with atomic_file(pathlib.Path(sys.argv[1])) as stream:\n"
        "    stream.write(b'half'); stream.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "x")], check=False)
    assert (tmp_path / "x").read_bytes() == b"old"


def test_atomic_file_tells_of_a_full_disk_and_passes_on_errors_of_other_files(tmp_path: Path) -> None:
    full = pytest.raises(OutputError, match=r"cannot write .*x: No space left on device; free some space")
    with full, files.atomic_file(tmp_path / "x"):
        raise refused(None, errno.ENOSPC)
    with pytest.raises(FileNotFoundError), files.atomic_file(tmp_path / "x"):
        (tmp_path / "absent").read_bytes()
    assert names(tmp_path) == []


def refused(path: object, code: int = errno.EACCES) -> OSError:
    return OSError(code, os.strerror(code), None if path is None else str(path))


def test_the_command_line_says_what_could_not_be_read(tmp_path, capsys):
    def main(_: list[str]) -> None:
        raise refused(tmp_path / "vectors.npy", errno.EIO)

    with pytest.raises(SystemExit) as end:
        _cli.run("qbe search", main, arguments=[])
    assert end.value.code == 1
    assert capsys.readouterr().err == (
        f"qbe search: cannot read {tmp_path}/vectors.npy: Input/output error; check the path\n"
    )


def test_atomic_file_keeps_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "x")
    files.write_text(tmp_path / "link", "abc")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "x").read_text() == "abc"
    assert names(tmp_path / "real") == ["x"]


def test_atomic_file_writes_to_a_pipe_directly() -> None:
    code = "from qbe.util.files import write_text; write_text('/dev/stdout', 'abc')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "abc"
    assert Path("/dev/null").is_char_device()
    files.write_text(Path("/dev/null"), "abc")
    assert Path("/dev/null").is_char_device()


def test_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBE_CACHE", "/a/b")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert files.cache_folder() == Path("/a/b")
    monkeypatch.delenv("QBE_CACHE")
    assert files.cache_folder() == Path("/c/qbe")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert files.cache_folder() == Path.home() / ".cache" / "qbe"


def test_what_a_killed_writer_left_goes_and_what_another_writes_stays(tmp_path):
    target = tmp_path / "out.jsonl"
    (tmp_path / ".out.jsonl.0123abcd.partial").write_text("left")
    with atomic_file(target) as stream:
        stream.write(b"slow")
        write_text(target, "fast")
        assert len(list(tmp_path.iterdir())) == 2
    assert [each.read_text() for each in tmp_path.iterdir()] == ["slow"]


@pytest.mark.parametrize("name", [".out.lock", ".out.part", ".out.building"])
def test_a_link_in_the_place_of_a_hidden_file_is_refused(tmp_path, name):
    (tmp_path / "thesis").mkdir()
    (tmp_path / name).symlink_to(tmp_path / "thesis")
    with pytest.raises(OutputError), lock(tmp_path / ".out.lock"):
        pass
    assert (tmp_path / name).is_symlink()
