"""Encoders of the hub by name, from files as they are published: what qbe reads is what transformers read.

The weights are random. ``QBE_FULL_SIZE=1 pytest tests/test_published_encoders.py`` makes them in the size of
the published ones (SciBERT's), which takes a minute and 2 GB of disk each; otherwise they are tiny.
"""

import contextlib
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.published import SCIBERT, TINY, adapter_tensors, write_adapter, write_specter

from qbe.encode.encoder import Encoder
from qbe.export import __main__ as command
from qbe.models import sources
from qbe.models.encoder_files import resolve_encoder
from qbe.models.encoder_format import SENTENCES
from qbe.models.registry import PUBLISHED

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")

SIZES = SCIBERT if os.environ.get("QBE_FULL_SIZE") else TINY

PICKLED = {
    "config.json",
    "pytorch_model.bin",
    "vocab.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
}
FILES = {
    "allenai/specter2_base": PICKLED | {"tokenizer.json"},
    "malteos/scincl": PICKLED - {"pytorch_model.bin"} | {"model.safetensors", "tokenizer.json"},
}
"""Of the others PICKLED."""

ALIKE = {name for name in PUBLISHED if "singlem" in name or "biomed" in name} | {"allenai/specter"}
"""Read as others are, from files of the same kinds."""

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


@pytest.mark.parametrize("name", NAMES)
def test_a_published_encoder_is_read_as_transformers_reads_it(name, tmp_path, papers, monkeypatch):
    """The whole paper, and of the encoder of sentences each sentence."""
    import huggingface_hub
    from transformers import AutoModel, AutoTokenizer

    published = PUBLISHED[name]
    words = [word for paper in papers for word in paper.abstract.split() if word.isalpha()]
    write(tmp_path / published.weights, FILES.get(published.weights, PICKLED), words)
    model = AutoModel.from_pretrained(tmp_path / published.weights, local_files_only=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / published.weights, local_files_only=True)
    if published.adapter:
        from qbe.export.adapter import apply_adapter

        write_adapter(tmp_path / published.adapter, adapter_tensors(sizes=SIZES))
        apply_adapter(model, tmp_path / published.adapter)

    def run(arguments, **_):
        with contextlib.redirect_stdout(io.StringIO()):
            command.main(arguments[3:])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(sources.processes, "run", run)
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, allow_patterns: str(tmp_path / name)
    )
    monkeypatch.setenv("QBE_CACHE", str(tmp_path / "cache"))
    files = resolve_encoder(name, "fp32")
    assert files.metadata.dimension == SIZES.hidden
    assert files.metadata.layers == SIZES.layers
    assert files.metadata.max_tokens == published.encoder_format.max_tokens
    expected_format = replace(published.encoder_format, max_tokens=None)
    assert replace(files.metadata.encoder_format, max_tokens=None) == expected_format
    encoder = Encoder(files)

    def first_state(text: str) -> np.ndarray:
        limit = published.encoder_format.max_tokens
        batch = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")
        with torch.inference_mode():
            return model(**batch).last_hidden_state[0, 0].numpy()

    for paper in papers[:3]:
        vectors = encoder.encode_paper(paper)
        of_sentences = published.encoder_format.layout == SENTENCES
        separator = " " if of_sentences else tokenizer.sep_token
        expected = [first_state(paper.title + separator + paper.abstract)]
        actual = [vectors.whole]
        if of_sentences:
            expected += [first_state(sentence.text) for sentence in paper.sentences]
            actual += list(vectors.sentences)
        np.testing.assert_allclose(np.array(actual), np.array(expected), rtol=2**-9, atol=2**-11)
