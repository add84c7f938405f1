"""Exporting an encoder: parity with PyTorch, digests, refusals; whole or not at all."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from support.damage import truncate

from qbe.cli.export import main
from qbe.errors import ModelError, OutputError
from qbe.models.cards import CROSS_ENCODER, ENCODER, read_card
from qbe.models.export import encoder as export
from qbe.models.export.graph import channel_ranges, fuse_attention, smooth
from qbe.models.folders import resolve_encoder
from qbe.models.session import open_session
from qbe.util.files import sha256

pytestmark = pytest.mark.slow


def test_card_states_shape_origin_digests_and_parity(tiny_model, tiny_encoder):
    card = read_card(tiny_encoder, ENCODER)
    assert (card.format, card.name, card.source) == (ENCODER.format, "tiny-bert", str(tiny_model))
    assert (card.dimension, card.layers, card.max_tokens) == (16, 2, 128)
    assert {path.name for path in tiny_encoder.iterdir()} == {ENCODER.metadata_file, *card.files}
    assert card.parity["fp32"]["max_abs_difference"] < 1e-4
    assert card.parity["fp32"]["min_cosine"] > 1 - 1e-6
    assert card.parity["int8"]["min_cosine"] > 0.99


def test_models_are_what_is_documented(tiny_encoder):
    """Attention is one operator, and int8 weights have a scale a channel."""
    for precision in ("fp32", "int8"):
        session = open_session(tiny_encoder / f"model.{precision}.onnx")
        inputs = [(i.name, i.type, i.shape) for i in session.get_inputs()]
        assert inputs == [("input_ids", "tensor(int64)", ["batch", "tokens"])]
        outputs = {output.name: (output.type, output.shape[:2]) for output in session.get_outputs()}
        assert list(outputs) == ["last_hidden_state", "hidden_state_0", "hidden_state_1"]
        assert all(output == ("tensor(float)", ["batch", "tokens"]) for output in outputs.values())
        graph = onnx.load(tiny_encoder / f"model.{precision}.onnx").graph
        kinds = [node.op_type for node in graph.node]
        assert (kinds.count("MultiHeadAttention"), kinds.count("Softmax")) == (2, 0)
        assert "Transpose" not in kinds
    scales = [list(part.dims) for part in graph.initializer if part.name.endswith("_scale")]
    weights = [part for part in graph.initializer if part.data_type == onnx.TensorProto.INT8]
    assert len(weights) >= 12  # six matrices a layer
    assert [32] in scales and [16] in scales


class Attention(torch.nn.Module):
    """Scaled products, to which something may be added."""

    def __init__(self):
        super().__init__()
        self.parts, self.out = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)

    def forward(self, states, more=None):
        parts = self.parts(states).chunk(3, -1)
        query, key, value = (part.view(1, -1, 2, 4).transpose(1, 2) for part in parts)
        logits = query @ key.transpose(2, 3) / 2
        attended = torch.softmax(logits if more is None else logits + more, -1) @ value
        return self.out(attended.transpose(1, 2).reshape(1, -1, 8))


def test_attention_is_fused_where_it_only_scales_and_gives_the_same_numbers(tmp_path):
    """Not where logits have a mask, or a bias by position as in MPNet."""
    module, path = Attention(), tmp_path / "model.onnx"
    states = np.random.default_rng(0).random((1, 6, 8), np.float32)

    def traced(axes: dict[str, dict[int, str]], **inputs: np.ndarray) -> None:
        export._trace(module, {"module": module}, inputs, axes, path, [])

    for shape in ((1, 1, 1, 6), (1, 2, 6, 6)):
        traced({"attended": {}}, states=states, more=np.ones(shape, np.float32))
        before = path.read_bytes()
        assert (fuse_attention(path, 2), path.read_bytes()) == (0, before)
    traced({"states": {1: "tokens"}, "attended": {1: "tokens"}}, states=states)
    assert fuse_attention(path, 2) == 1
    longer = torch.randn(1, 9, 8)
    with torch.inference_mode():
        expected = module(longer).numpy()
    (attended,) = open_session(path).run(None, {"states": longer.numpy()})
    np.testing.assert_allclose(attended, expected, atol=1e-5)


def codes_of(folder):
    """The int8 matrices of an export in progress, or of a finished one."""
    parts = onnx.load(folder / "model.int8.onnx").graph.initializer
    matrices = (part for part in parts if part.data_type == onnx.TensorProto.INT8 and len(part.dims) == 2)
    return [onnx.numpy_helper.to_array(part).astype(int) for part in matrices]


def refused(monkeypatch, too_far):
    """Let int8 models whose matrices are ``too_far`` fail the check, as they do on some processors."""
    write = export._write_models

    def writing(traced, fp32, int8, feeds, figures, is_near, *others, **options):
        def near(figures):
            return is_near(figures) and not too_far(codes_of(int8.parent))

        return write(traced, fp32, int8, feeds, figures, near, *others, **options)

    monkeypatch.setattr(export, "_write_models", writing)


def smoothed_in(model):
    """The names of the tensors that an ONNX model smooths."""
    return [node.output[0] for node in onnx.load(model).graph.node if node.output[0].endswith("/smoothed")]


def test_smoothing_keeps_what_a_model_computes(tmp_path, tiny_encoder):
    """Four tensors of each of two layers: before and behind attention, and two of the feed-forward layer."""
    fp32, smoothed = tiny_encoder / "model.fp32.onnx", tmp_path / "smoothed.onnx"
    feeds = [{"input_ids": np.array([ids])} for ids in ([2, 9, 7, 3], [2, 30, 41, 5, 3])]
    smooth(fp32, channel_ranges(fp32, feeds), smoothed)
    assert len(smoothed_in(smoothed)) == 8
    expected, computed = (open_session(path).run(None, feeds[1]) for path in (fp32, smoothed))
    for left, right in zip(computed, expected, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


@pytest.fixture
def sums(tmp_path) -> Path:
    """A model of two inputs, x @ W + z @ W, with W = [[16], [1]]."""
    weights = onnx.numpy_helper.from_array(np.float32([[16], [1]]), "W")
    inputs, outputs = (
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, size]) for name in names]
        for names, size in (("xz", 2), ("y", 1))
    )
    nodes = [onnx.helper.make_node("MatMul", [name, "W"], [f"{name}W"], name=f"{name}W") for name in "xz"]
    nodes.append(onnx.helper.make_node("Add", ["xW", "zW"], ["y"]))
    graph = onnx.helper.make_graph(nodes, "sums", inputs, outputs, [weights])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "sums.onnx")
    return tmp_path / "sums.onnx"


X, Z = np.float32([[16, 0.1], [0, 0.9], [8, -1]]), np.float32([[1, 1], [1, 0], [0, 1]])


def test_factors_move_the_range_of_a_channel_into_the_weights(sums, tmp_path):
    """max|X| = (16, 1) and max|W| = (16, 1): factors 16 ** 0.75 / 16 ** 0.25 = 4 and 1; of Z = (1, 1) they
    are 1 / 2 and 1. Both multiply the same weights, each its own copy.
    """
    ranges = channel_ranges(sums, [{"x": X, "z": Z}])
    assert {name: part.tolist() for name, part in ranges.items()} == {"x": [16, 1], "z": [1, 1]}
    smooth(sums, ranges, tmp_path / "smoothed.onnx")
    parts = onnx.load(tmp_path / "smoothed.onnx").graph.initializer
    assert {part.name: onnx.numpy_helper.to_array(part).ravel().tolist() for part in parts} == {
        "x/smoothed/factors": pytest.approx([1 / 4, 1]),
        "x/smoothed/W": pytest.approx([64, 1]),
        "z/smoothed/factors": pytest.approx([2, 1]),
        "z/smoothed/W": pytest.approx([8, 1]),
    }
    (computed,) = open_session(tmp_path / "smoothed.onnx").run(None, {"x": X, "z": Z})
    np.testing.assert_allclose(computed[:, 0], (X + Z) @ [16, 1], rtol=1e-6)
    for of_another in ({"x": np.ones(2)}, {"x": np.ones(2), "z": np.ones(3)}):
        with pytest.raises(ModelError, match="expected ranges of the 2 channels of z, found"):
            smooth(sums, of_another, tmp_path / "smoothed.onnx")


def test_activations_are_smoothed_where_int8_is_too_far(tmp_path, tiny_model, tiny_encoder, monkeypatch):
    """By the ranges of the sample's papers: the second of the models, of which the first is refused."""
    plain = codes_of(tiny_encoder)
    refused(monkeypatch, lambda codes: all(map(np.array_equal, codes, plain)))
    export.export_encoder(tiny_model, "tiny", "here", tmp_path / "out")
    assert len(smoothed_in(tmp_path / "out" / "model.int8.onnx")) == 8
    assert [part.shape for part in codes_of(tmp_path / "out")] == [part.shape for part in plain]


def test_without_an_int8_model_the_other_precision_is_named(tmp_path, tiny_model, monkeypatch, caplog):
    monkeypatch.setattr(export, "INT8_MIN_COSINE", 1.5)
    assert list(export.export_encoder(tiny_model, "tiny", "here", tmp_path / "out").parity) == ["fp32"]
    assert sorted(path.name for path in (tmp_path / "out").glob("*.onnx")) == ["model.fp32.onnx"]
    assert "no int8 model: expected one with a cosine of 1.5 or more with the original" in caplog.text
    assert resolve_encoder(str(tmp_path / "out"), "fp32").model.exists()
    with pytest.raises(ModelError, match="in int8, found it only in fp32; give `precision` fp16, or fp32"):
        resolve_encoder(str(tmp_path / "out"))


def test_parity_check_covers_every_layer(tmp_path, tiny_model, monkeypatch):
    trace = export._trace

    def astray(*given):
        return [[last, embeddings + 0.01, *others] for last, embeddings, *others in trace(*given)]

    monkeypatch.setattr(export, "_trace", astray)
    with pytest.raises(ModelError, match="parity check: expected fp32"):
        export.export_encoder(tiny_model, "tiny", "here", tmp_path / "out")


# What the exports of all kinds promise.


KINDS = {"encoder": ("tiny_model", ENCODER, export.export_encoder)}
KINDS |= {"cross-encoder": ("tiny_classifier", CROSS_ENCODER, export.export_cross_encoder)}


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


@pytest.fixture
def source(kind, request, tmp_path) -> Path:
    """A model to export, which may be damaged."""
    return Path(shutil.copytree(request.getfixturevalue(KINDS[kind][0]), tmp_path / "source"))


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors", "config.json"])
def test_a_folder_with_a_damaged_file_or_without_one_is_refused(kind, source, name):
    for damage in (truncate, Path.unlink):
        damage(source / name)
        with pytest.raises(ModelError, match=f"found no {name}" if damage is Path.unlink else None) as caught:
            KINDS[kind][2](source, "tiny", "here", source.parent / "out")
        assert "\n" not in str(caught.value)
        assert [path.name for path in source.parent.iterdir()] == ["source"]


def test_the_command_prints_the_differences_and_replaces_models_only(kind, source, capsys, monkeypatch):
    output = source.parent / "out"
    arguments = [kind, "--model", str(source), "--output", str(output), "--name"]
    main([*arguments, "given", "--source", "there"])
    card = read_card(output, KINDS[kind][1])
    assert (card.name, card.source) == ("given", "there")
    assert card.weights_sha256 == sha256(source / "model.safetensors")
    assert card.files == {name: sha256(output / name) for name in card.files}
    assert (output / "tokenizer.json").read_bytes() == (source / "tokenizer.json").read_bytes()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(card.parity)
    for line, (precision, figures) in zip(lines, card.parity.items(), strict=True):
        assert line.startswith(f"{precision}: largest difference {figures['max_abs_difference']:.2g}, ")
    (output / "stray").touch()
    with pytest.raises(OutputError, match="found stray in it"):
        main([*arguments, "second"])
    assert read_card(output, KINDS[kind][1]).name == "given"
    (output / "stray").unlink()
    main([*arguments, "second"])
    monkeypatch.setattr(export, "FP32_MAX_DIFFERENCE", -1.0)
    with pytest.raises(ModelError, match="parity"):
        main([*arguments, "third"])
    assert read_card(output, KINDS[kind][1]).name == "second"
    assert {path.name for path in source.parent.iterdir()} == {"source", "out"}
