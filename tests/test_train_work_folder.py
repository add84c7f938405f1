"""What a training keeps in its work folder: damage that is noticed, notes, digests."""

from pathlib import Path

import numpy as np
import pytest

from qbe.errors import ModelError, UsageError
from qbe.train.work import Sources, check_provenance, load_arrays, save_arrays
from qbe.util.files import sha256

pytestmark = pytest.mark.slow


class Dangerous:
    def __reduce__(self):
        return Path.touch, (Path("executed"),)


@pytest.mark.parametrize("harm", ["cut", "pickled array"])
def test_arrays_that_cannot_be_read(tmp_path, monkeypatch, harm):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "seed-0.npz"
    if harm == "cut":
        save_arrays(path, {"matrix": np.ones((40, 40)), "more": [1]})
        path.write_bytes(path.read_bytes()[:900])
    else:
        np.savez(path, matrix=np.array([Dangerous()], dtype=object))
    with pytest.raises(ModelError, match=r"seed-0\.npz: expected the projections of this training, found"):
        load_arrays(path, "the projections", "matrix")
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
