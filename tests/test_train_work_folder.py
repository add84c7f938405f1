"""What a training keeps in its work folder: files written in one step, damage that is noticed, digests."""

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from qbe.errors import ModelError, UsageError
from qbe.train.work import Sources, check_provenance, load_arrays, save_arrays, save_state
from qbe.util.files import sha256

pytestmark = pytest.mark.slow


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_kept_is_flushed_to_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: events.append("flush") or fsync(number))
    monkeypatch.setattr(os, "replace", lambda *paths: events.append("name") or replace(*paths))
    save_arrays(tmp_path / "a.npz", {"numbers": np.arange(3)})
    save_state(tmp_path / "b.pt", {"step": 3})
    assert events == ["flush", "name"] * 2
    assert load_arrays(tmp_path / "a.npz", "numbers", "numbers")["numbers"].tolist() == [0, 1, 2]
    assert torch.load(tmp_path / "b.pt", weights_only=True) == {"step": 3}


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from qbe.train.work import save_arrays

class Deadly:
    def __array__(self, *_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

save_arrays(Path(sys.argv[1]), {"first": np.zeros(9), "second": Deadly()})
"""


def test_a_killed_call_leaves_no_part_of_a_file_and_the_next_one_cleans_up(tmp_path):
    path = tmp_path / "seed-0.npz"
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
        assert killed.returncode == -signal.SIGKILL
    (left,) = names(tmp_path)  # of two killed calls: the second removed what the first left
    assert left.startswith(".seed-0.npz.")
    (tmp_path / ".seed-1.npz.other.partial").touch()
    save_arrays(path, {"first": np.zeros(9)})
    assert names(tmp_path) == [".seed-1.npz.other.partial", "seed-0.npz"]


class Dangerous:
    """What executes code when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("executed"),)


@pytest.mark.parametrize("harm", ["cut", "empty", "pickle", "other", "pickled array"])
def test_arrays_that_cannot_be_read(tmp_path, monkeypatch, harm):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "seed-0.npz"
    if harm == "pickled array":
        np.savez(path, matrix=np.array([Dangerous()], dtype=object))
    else:
        save_arrays(path, {"matrix": np.ones((40, 40)), "more": [1]})
        content = path.read_bytes()
        harmed = {"cut": content[:900], "empty": b"", "pickle": pickle.dumps(Dangerous()), "other": content}
        path.write_bytes(harmed[harm])
    message = r"seed-0\.npz: expected the projections of this training, found: .+; delete it$"
    with pytest.raises(ModelError, match=message) as caught:
        load_arrays(path, "the projections", "weights" if harm == "other" else "matrix")
    assert "\n" not in str(caught.value)
    assert not Path("executed").exists()


def test_a_training_that_made_nothing_does_not_bind_its_folder(tmp_path):
    for recipe in ("wrong", "right"):
        check_provenance(tmp_path, {"recipe": recipe})
    (tmp_path / "seed-0.npz").touch()
    with pytest.raises(ModelError, match="of the same recipe and data"):
        check_provenance(tmp_path, {"recipe": "wrong"})
    check_provenance(tmp_path, {"recipe": "right"})


def test_files_of_one_folder_and_name_are_told_apart(tmp_path):
    first, second = (tmp_path / parent / "pairs" / "train.tsv" for parent in "ab")
    for path in (first, second):
        path.parent.mkdir(parents=True)
        path.write_text(f"{path}\n")
    with pytest.raises(UsageError) as caught:
        Sources(train=(first, second)).digests()
    assert str(caught.value) == (
        "expected files with different folder and name, found pairs/train.tsv twice; rename one"
    )
    assert Sources(train=(first, first)).digests() == {
        "pairs/train.tsv": sha256(first)
    }  # the same file is no other
