"""Encoders of the hub by name, from files as they are published: what qbe reads is what transformers read.

The weights are random. ``QBE_FULL_SIZE=1 pytest tests/test_published_encoders.py`` makes them in the size of
the published ones (SciBERT's), which takes a minute and 2 GB of disk each; otherwise they are tiny.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.published import SCIBERT, TINY, adapter_tensors, exported_here, write_adapter, write_specter

from qbe.models import folders
from qbe.models.cards import ENCODER
from qbe.models.encoder import Encoder
from qbe.models.export.pytorch import apply_adapter
from qbe.models.folders import ADAPTERS, PUBLISHED, resolve_encoder
from qbe.models.formats import SENTENCES
from qbe.types import Paper

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")

SIZES = SCIBERT if os.environ.get("QBE_FULL_SIZE") else TINY
RTOL, ATOL = (2**-9, 2**-11) if SIZES is SCIBERT else (2**-10, 2**-15)

PICKLED = {"config.json", "pytorch_model.bin", "vocab.txt"}
PICKLED |= {"tokenizer_config.json", "special_tokens_map.json"}
FILES = {  # of the others PICKLED
    "allenai/specter2_base": PICKLED | {"tokenizer.json"},
    "malteos/scincl": PICKLED - {"pytorch_model.bin"} | {"model.safetensors", "tokenizer.json"},
}
# Read as others are, from files of the same kinds.
ALIKE = {name for name in PUBLISHED if "singlem" in name or "biomed" in name} | {"allenai/specter"}
NAMES = [name for name in PUBLISHED if SIZES is SCIBERT or name not in ALIKE]


def write(folder: Path, files: set[str], words: list[str]) -> None:
    """A model with these files, the weights pickled or not."""
    from transformers import AutoModel, AutoTokenizer

    write_specter(folder, words, SIZES)
    AutoTokenizer.from_pretrained(folder, local_files_only=True).save_pretrained(folder)
    if "model.safetensors" in files:
        AutoModel.from_pretrained(folder, local_files_only=True).save_pretrained(folder)
    named = {f"{name}_token": f"[{name.upper()}]" for name in ("cls", "mask", "pad", "sep", "unk")}
    (folder / "special_tokens_map.json").write_text(json.dumps(named))
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()
    assert {path.name for path in folder.iterdir()} == files


class Original(NamedTuple):
    """A model in transformers, with its adapter if it has one."""

    model: Any
    tokenizer: Any
    max_tokens: int | None

    def read(self, text: str) -> tuple[list[int], np.ndarray]:
        """The ids and last states of a text's tokens."""
        batch = self.tokenizer(text, truncation=True, max_length=self.max_tokens, return_tensors="pt")
        assert not batch["token_type_ids"].any()  # title and abstract are one text
        with torch.inference_mode():
            return batch["input_ids"][0].tolist(), self.model(**batch).last_hidden_state[0].numpy()

    def sentences(self, paper: Paper) -> list[np.ndarray]:
        """The mean state of each sentence that is read as a whole."""
        ids, states = self.read(paper.title + self.tokenizer.sep_token + paper.abstract)
        begin, means = ids.index(self.tokenizer.sep_token_id) + 1, []
        for sentence in paper.sentences:
            end = begin + len(self.tokenizer(sentence.text, add_special_tokens=False)["input_ids"])
            if end >= len(ids):
                break
            means.append(states[begin:end].mean(axis=0))
            begin = end
        return means


def published_model(name: str, hub: Path, papers: Sequence[Paper]) -> Original:
    """Write the files of a model, and of its adapter, in a folder for the hub's; gives them as read."""
    from transformers import AutoModel, AutoTokenizer

    weights = ADAPTERS.get(name, name)
    folder = hub / weights
    words = [word for paper in papers for word in paper.abstract.split() if word.isalpha()]
    write(folder, FILES.get(weights, PICKLED), words)
    model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    if name in ADAPTERS:
        write_adapter(hub / name, adapter_tensors(sizes=SIZES))
        apply_adapter(model, hub / name)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return Original(model, tokenizer, PUBLISHED[name].max_tokens)


@pytest.fixture
def requests(tmp_path, monkeypatch) -> list[tuple[str, ...]]:
    """What is asked of the hub, which is the test's folder; exports are made in this process."""
    import huggingface_hub

    asked = []

    def snapshot_download(name, allow_patterns):
        weights = ("model.safetensors", "pytorch_model.bin")
        asked.append((name, *(file for file in weights if file in allow_patterns)))
        return str(tmp_path / name)

    monkeypatch.setattr(folders.work, "run", exported_here)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setenv("QBE_CACHE", str(tmp_path / "cache"))
    return asked


def close(vectors: np.ndarray, expected: np.ndarray) -> None:
    """Equal but for rounding to half precision and to multiples of 2 ** -16."""
    assert vectors.dtype == np.float32
    assert (vectors.astype(np.float16) == vectors).all()
    np.testing.assert_allclose(vectors, expected, rtol=RTOL, atol=ATOL)


@pytest.mark.parametrize("name", NAMES)
def test_a_published_encoder_is_read_as_transformers_reads_it(name, tmp_path, papers, requests):
    """[CLS] of the paper, and means of the tokens of each sentence, or [CLS] of those of a sentence alone."""
    published, original = PUBLISHED[name], published_model(name, tmp_path, papers)
    files = resolve_encoder(name, "fp32")
    expected_downloads = [(ADAPTERS.get(name, name), "model.safetensors")]
    if name != "malteos/scincl":  # pickled weights only where there are no others
        expected_downloads += [(ADAPTERS.get(name, name), "pytorch_model.bin")]
    assert requests == expected_downloads + ([(name,)] if name in ADAPTERS else [])
    assert resolve_encoder(name).folder == files.folder
    card = files.metadata
    assert (card.name, card.source, card.format) == (name.partition("/")[2], name, ENCODER.format)
    assert (card.dimension, card.layers) == (SIZES.hidden, SIZES.layers)
    assert card.max_tokens == published.max_tokens
    assert replace(card.encoder_format, max_tokens=None) == replace(published, max_tokens=None)
    assert card.parity["fp32"]["max_abs_difference"] < 1e-4
    assert files.identity["convention"] == asdict(card.encoder_format)
    assert (card.adapter is None) is (name not in ADAPTERS)
    sentences = tuple(sentence for paper in papers[:20] for sentence in paper.sentences)
    long = Paper("long", "One Paper After Another", sentences)
    of_sentences = published.layout == SENTENCES
    separator = " " if of_sentences else original.tokenizer.sep_token
    for paper in (*papers[:3], long):
        vectors = Encoder(files).encode_paper(paper)
        close(vectors.whole, original.read(paper.title + separator + paper.abstract)[1][0])
        if of_sentences:
            expected = [original.read(sentence.text)[1][0] for sentence in paper.sentences]
        else:
            expected = original.sentences(paper)
            assert (len(expected) < len(paper.sentences)) is (paper is long)
        close(vectors.sentences[: len(expected)], np.array(expected))
