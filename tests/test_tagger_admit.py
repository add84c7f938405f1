"""A tagger on the states of another encoder than it was trained on."""

import random
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from support.trainings import write

from qbe.errors import ModelError
from qbe.models.cards import TAGGER
from qbe.models.encoder import Encoder
from qbe.models.export.encoder import export_encoder
from qbe.models.tagger import Tagger
from qbe.train import tagger as training
from qbe.train.tagger import admit, measure
from qbe.train.tagger_network import LABELS, SPLITS, read_csabstruct

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def csabstruct(tmp_path_factory, papers) -> Path:
    """A folder laid out like CSAbstruct's release, labels drawn at random."""
    folder, chance = tmp_path_factory.mktemp("csabstruct"), random.Random(0)
    for place, split in enumerate(SPLITS):
        records = [
            {
                "sentences": [sentence.text for sentence in paper.sentences],
                "labels": [chance.choice(LABELS) for _ in paper.sentences],
            }
            for paper in papers[10 * place : 10 * place + 10]
        ]
        write(folder / f"{split}.jsonl", *records)
    return folder


@pytest.fixture(scope="module")
def near_encoder(tiny_model, tmp_path_factory):
    """The tiny model with its weights moved a little, exported."""
    folder = tmp_path_factory.mktemp("near") / "near"
    shutil.copytree(tiny_model, folder)
    moved = {name: part * 1.001 for name, part in load_file(folder / "model.safetensors").items()}
    save_file(moved, folder / "model.safetensors", {"format": "pt"})
    export_encoder(folder, "near", "built here", folder / "exported")
    return folder / "exported"


def test_a_tagger_is_admitted_to_an_encoder_near_its_own(
    tiny_tagger, tiny_encoder, near_encoder, csabstruct, tmp_path
):
    folder = Path(shutil.copytree(tiny_tagger, tmp_path / "tagger"))
    encoder = Encoder.open(str(near_encoder))
    assert not Tagger.open(str(folder)).supports(encoder)
    for _ in range(2):  # the second time it takes the place of the first
        actual = admit(folder, str(near_encoder), csabstruct, 1)
    tagger = Tagger.open(str(folder))
    assert tagger.supports(encoder)
    assert tagger.supports(Encoder.open(str(tiny_encoder)))
    (noted,) = tagger.metadata.also_reads
    assert noted["measured"] == actual
    assert actual["test"] == measure(encoder, tagger, read_csabstruct(csabstruct)["test"]).figures


def test_a_tagger_is_not_admitted_to_another_encoder(tiny_tagger, csabstruct, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(tiny_tagger, tmp_path / "tagger"))
    before = (folder / TAGGER.metadata_file).read_text()
    with pytest.raises(ModelError, match=r"of 16 dimensions, found facet-encoder of 384; give another `enc"):
        admit(folder, "facet-encoder", csabstruct, 1)
    monkeypatch.setattr(training, "MAX_LOSS", -100)
    with pytest.raises(ModelError, match=r"expected a loss of at most -100 points.*found 0.00 on"):
        admit(folder, Tagger.open(str(folder)).metadata.trunk["name"], csabstruct, 1)
    assert (folder / TAGGER.metadata_file).read_text() == before
