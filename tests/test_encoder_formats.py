"""Encoder formats, compared with the libraries that the encoders were published for."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.damage import truncate
from support.published import BOTTLENECK, HIDDEN, adapter_tensors, exported_here, write_adapter
from support.tiny import write_model

from qbe.cli import export as command
from qbe.cli.parser import parse
from qbe.errors import ModelError, UsageError
from qbe.models import folders, formats
from qbe.models.cards import ENCODER
from qbe.models.encoder import Encoder
from qbe.models.encoding import SpecialTokens, passes, stored
from qbe.models.export.encoder import export_encoder
from qbe.models.export.pytorch import apply_adapter, load_model
from qbe.models.folders import BASE_ENCODER_SENTENCES, BASES, MINILM, PUBLISHED, find, resolve_encoder
from qbe.models.formats import CLS, COSINE, L2, MEAN, SENTENCES, TITLE_ABSTRACT
from qbe.models.formats import EncoderFormat as Format
from qbe.models.tagger import Tagger

pytestmark = pytest.mark.slow

SPECIAL = SpecialTokens(2, 3, 1)


def test_sentences_are_alone_behind_the_whole():
    assert list(passes([10], [[20, 21], [], [30, 31, 32]], SPECIAL, 5, SENTENCES)) == [
        ([2, 10, 20, 21, 3], []),
        ([2, 20, 21, 3], [(0, 4)]),
        ([2, 3], [(0, 2)]),
        ([2, 30, 31, 32, 3], [(0, 5)]),
    ]


TOKENS = st.lists(st.integers(10, 99), min_size=1, max_size=14)


@given(st.lists(TOKENS, min_size=1, max_size=9), st.lists(TOKENS, min_size=1, max_size=1), st.integers(8, 40))
def test_the_first_pass_is_the_paper_cut(sentences, titles, max_tokens):
    title = titles[0][: max_tokens // 4]
    first, *rest = passes(title, sentences, SPECIAL, max_tokens, formats.TITLE_SEP_ABSTRACT)
    paper = [2, *title, 3, *(token for sentence in sentences for token in sentence)]
    assert first.ids == [*paper[: max_tokens - 1], 3]
    room = max_tokens - len(title) - 3
    spans = [window.ids[begin:end] for window in (first, *rest) for begin, end in window.spans]
    assert spans == [sentence[:room] for sentence in sentences]
    assert all(len(window.ids) <= max_tokens for window in rest)
    assert all(window.ids[: len(title) + 2] == [2, *title, 3] for window in rest)


def test_adapter_against_the_adapters_library(tmp_path):
    """[CLS] as version 1.3.0 of the adapters library computes it from the same files."""
    write_model(tmp_path / "bert", ["golden"])
    write_adapter(tmp_path / "adapter", adapter_tensors())
    model, _ = load_model(tmp_path / "bert", "AutoModel", "a BERT")
    apply_adapter(model, tmp_path / "adapter")
    with torch.inference_mode():
        states = model(input_ids=torch.tensor([[2, *range(40, 50), 3]])).last_hidden_state
    expected = [
        *(-1.2712042331695557, -0.42731860280036926, 0.8512940406799316, -0.7224098443984985),
        *(-0.47781381011009216, 0.177243173122406, 0.9986022710800171, 0.7023701667785645),
        *(1.1896473169326782, 0.4790613651275635, -1.3919929265975952, -2.376812696456909),
        *(0.778603196144104, -0.18930134177207947, -0.742499053478241, 2.3995277881622314),
    ]
    np.testing.assert_allclose(states[0, 0], expected, rtol=0, atol=1e-5)


BIAS = "bert.encoder.layer.{}.output.adapters.x.adapter_up.bias"
UP = "encoder.layer.0.output.adapters.x.adapter_up"
WIDE: dict[str, np.ndarray] = {f"{UP}.weight": np.ones((9, BOTTLENECK)), f"{UP}.bias": np.ones(9)}


@pytest.mark.parametrize(
    ("changes", "tensors", "message"),
    [
        ({"non_linearity": "swish"}, {}, "with non_linearity relu, found swish"),
        ({"original_ln_before": False}, {}, "with original_ln_before True, found False"),
        ({"leave_out": [1]}, {}, r"with leave_out \[\], found \[1\]"),
        ({}, {"bert.encoder.layer.0.output.weight": [1]}, "found: a tensor bert.encoder"),
        ({}, {BIAS.format(2): [1]}, "found: 3 layers, where the model has 2"),
        ({}, {BIAS.format(1): [1]}, "found: Error.* size mismatch for bias"),
        ({}, WIDE, "found: Error.* size mismatch for weight"),
    ],
)
def test_another_adapter_is_refused(tmp_path, tiny_model, changes, tensors, message):
    others = {name: np.array(array, np.float32) for name, array in tensors.items()}
    write_adapter(tmp_path, {**adapter_tensors(), **others}, **changes)
    model, _ = load_model(tiny_model, "AutoModel", "a BERT")
    with pytest.raises(ModelError, match=message) as caught:
        apply_adapter(model, tmp_path)
    assert "\n" not in str(caught.value)


class Bomb(NamedTuple):
    """What runs code when it is unpickled."""

    path: Path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_no_pickled_code_is_run(tmp_path, model):
    fuse = tmp_path / "exploded"
    torch.save({"weights": Bomb(fuse)}, model / "pytorch_model.bin")
    for damage in (truncate, Path.unlink):
        damage(model / "model.safetensors")
        with pytest.raises(ModelError, match="expected a BERT-family model, found: ") as caught:
            export_encoder(model, "x", "x", tmp_path / "out")
    write_adapter(tmp_path / "adapter", {})
    torch.save({"weights": Bomb(fuse)}, tmp_path / "adapter" / "pytorch_adapter.bin")
    with pytest.raises(ModelError, match="expected the weights of a bottleneck adapter, found: ") as other:
        apply_adapter(SimpleNamespace(encoder=SimpleNamespace(layer=[])), tmp_path / "adapter")
    assert "\n" not in f"{caught.value}{other.value}"
    assert not fuse.exists()
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_exported_is_told(tmp_path, model, mpnet):
    for source, most in ((model, 128), (mpnet, 64)):  # MPNet's positions begin behind that of padding
        with pytest.raises(UsageError, match=f"`max_tokens` of at most {most}, the positions of the model"):
            export_encoder(source, "x", "x", tmp_path / "out", Format(max_tokens=most + 1))
    with pytest.raises(ModelError, match=r"an adapter with adapter_config\.json and .*, found none"):
        export_encoder(model, "x", "x", tmp_path / "out", adapter=tmp_path)
    (model / "model.safetensors").unlink()
    torch.save({"embeddings.LayerNorm.weight": torch.ones(HIDDEN)}, model / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"the weights of a BERT-family model, found none for .*"):
        export_encoder(model, "x", "x", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def mpnet(tmp_path_factory, papers) -> Path:
    """A tiny MPNet, saved by sentence-transformers: mean pooling, unit length, 40 tokens."""
    pytest.importorskip("sentence_transformers")
    from support.published import write_sentence_mpnet

    folder = tmp_path_factory.mktemp("hub") / "tiny-mpnet"
    write_sentence_mpnet(folder, papers)
    return folder


def test_a_sentence_transformer_against_its_library(mpnet, papers, cache, monkeypatch):
    """What its folder declares is used; its own layout is one text a pass."""
    from sentence_transformers import SentenceTransformer

    monkeypatch.setattr(folders.work, "run", exported_here)
    files = resolve_encoder(str(mpnet), "fp32")
    assert files.metadata.encoder_format == Format(max_tokens=40)
    alone = Format(SENTENCES, MEAN, max_tokens=40)
    encoder = Encoder(replace(files, metadata=replace(files.metadata, encoder_format=alone)))
    theirs = SentenceTransformer(str(mpnet), device="cpu", local_files_only=True)
    for paper in papers[:8]:
        texts = [f"{paper.title} {paper.abstract}", *(sentence.text for sentence in paper.sentences)]
        expected = theirs.encode(texts)
        vectors = encoder.encode_paper(paper)
        np.testing.assert_allclose([vectors.whole, *vectors.sentences], expected, rtol=0, atol=2**-11)


DECLARED = {
    "modules.json": [
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ],
    "1_Pooling/config.json": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
}
NORMALIZED = [*DECLARED["modules.json"], {"path": "2", "type": "x.Normalize"}]


OF_LIBRARY, OF_BERT = "config_sentence_transformers.json", "sentence_bert_config.json"
PLAIN_CLS = Format(TITLE_ABSTRACT, CLS)


def declare(folder: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, Format(TITLE_ABSTRACT, CLS, COSINE, 256)),
        ({"1_Pooling/config.json": {"pooling_mode": "mean"}}, Format(max_tokens=256)),
        ({"modules.json": NORMALIZED}, Format(TITLE_ABSTRACT, CLS, COSINE, 256)),
        ({OF_LIBRARY: {"similarity_fn_name": "euclidean"}}, Format(TITLE_ABSTRACT, CLS, L2, 256)),
        ({OF_BERT: {}, "tokenizer_config.json": {"model_max_length": 10**30}}, PLAIN_CLS),
    ],
)
def test_what_a_folder_declares_is_used(tmp_path, files, expected):
    assert formats.declared_format(tmp_path) is None
    assert formats.declared_format(declare(tmp_path, DECLARED | files)) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("modules.json", "{", r"modules\.json: expected a list of modules, found: "),
        ("modules.json", [3], "expected a list of modules, found: TypeError"),
        (OF_BERT, [3], "expected settings in JSON, found: "),
        ("modules.json", DECLARED["modules.json"][:1], r"Normalize, found \['Transformer'\]"),
        ("modules.json", [*NORMALIZED, {"path": "3", "type": "x.Dense"}], "Normalize, found .*Dense"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "max"]}, r"found \['mean', 'max'\]"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "found .'pooling_mode_max_tokens'"),
        (OF_BERT, {"max_seq_length": "many"}, "at least 16 tokens, found 'many'"),
        (OF_BERT, {"do_lower_case": True}, "found do_lower_case"),
        (OF_LIBRARY, {"similarity_fn_name": "dot"}, "similarity, found dot"),
        (OF_LIBRARY, {"default_prompt_name": "query"}, "no prompt .*found query"),
    ],
)
def test_what_a_folder_declares_beyond_that_is_refused(tmp_path, name, content, message):
    with pytest.raises(ModelError, match=message) as caught:
        resolve_encoder(str(declare(tmp_path, DECLARED | {name: content})))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layout": "abstract"}, "expected a layout of .*, found 'abstract'"),
        ({"whole": "max"}, "expected a pooling of the whole of mean, cls, found 'max'"),
        ({"similarity": "dot"}, "expected a similarity of cosine, l2, found 'dot'"),
        ({"max_tokens": 15}, "expected passes of at least 16 tokens, found 15"),
    ],
)
def test_other_formats_are_refused(tmp_path, tiny_encoder, fields, message):
    with pytest.raises(UsageError, match=message):
        Format(**fields)
    file = shutil.copytree(tiny_encoder, tmp_path / "exported") / ENCODER.metadata_file
    card = json.loads(file.read_text())
    file.write_text(json.dumps(card | {"convention": card["convention"] | fields}))
    with pytest.raises(ModelError, match=message):
        resolve_encoder(str(file.parent))


def test_options_override_what_a_folder_declares(tmp_path):
    def read(*options: str) -> Format:
        arguments = ["encoder", "--model", str(tmp_path), "--output", "x", *options]
        return command.format_of(parse("export", arguments))

    assert read() == Format()
    declare(tmp_path, DECLARED)
    assert read() == Format(TITLE_ABSTRACT, CLS, COSINE, 256)
    assert read("--layout", SENTENCES) == Format(SENTENCES, CLS, COSINE, 256)
    assert read("--max-tokens", "0", "--similarity", L2) == Format(TITLE_ABSTRACT, CLS, L2)
    for encoder_format in (Format(), *PUBLISHED.values()):
        assert read(*encoder_format.options()) == encoder_format


def test_formats_of_the_same_weights_are_kept_apart(monkeypatch, cache, tmp_path):
    """Each has its own place in the cache, by format and adapter."""

    def weights(encoder_format) -> folders.Weights:
        return folders.Weights("x", "x", digest, lambda: tmp_path, encoder_format)

    monkeypatch.setattr(folders.work, "run", lambda *_, **__: SimpleNamespace(returncode=0))
    digest = MINILM.digests["model.safetensors"]
    write_adapter(tmp_path, adapter_tensors())
    adapted = weights(Format())._replace(adapter=tmp_path)
    packaged = (encoder_format for base, encoder_format in BASES.values() if base is MINILM)
    kept = [*map(weights, (*packaged, *PUBLISHED.values())), adapted]
    places = [folders.exported(ENCODER, each) for each in kept]
    assert places[0].name == f"x-{digest[:12]}-{ENCODER.format}"
    assert len(set(places)) == len(set(PUBLISHED.values())) + 3
    # Exports of earlier versions are found again: the suffix of a format never changes.
    for name, suffix in (("all-MiniLM-L6-v2", ""), (BASE_ENCODER_SENTENCES, "-81178e02")):
        source = find(ENCODER, name)._replace(locate=lambda: tmp_path)
        assert folders.exported(ENCODER, source).name.partition(f"-{ENCODER.format}")[2] == suffix


def test_a_tagger_takes_sentences_in_context_only(tiny_encoder, tiny_tagger):
    """With an encoder of the same weights and single sentences, its own encoder is opened as a second one."""
    files = resolve_encoder(str(tiny_encoder))
    single = replace(files.metadata, encoder_format=Format(SENTENCES, MEAN))
    tagger = Tagger.open(str(tiny_tagger))
    assert tagger.supports(Encoder(files))
    assert not tagger.supports(Encoder(replace(files, metadata=single)))


def test_vectors_beyond_half_precision_are_refused():
    assert stored(np.array([3.0, 4.0], np.float32), L2).tolist() == [3, 4]
    for similarity, number in ((L2, 7e4), (L2, np.nan), (COSINE, np.nan), (COSINE, np.inf)):
        with np.errstate(invalid="ignore"), pytest.raises(ModelError, match=r"numbers up to 65504\.0"):
            stored(np.array([1.0, number], np.float32), similarity)
