"""Exporting a cross-encoder: parity with PyTorch, the score of one and two labels, refusals."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.tiny_classifier import write_classifier

from qbe.errors import ModelError
from qbe.models.cards import CROSS_ENCODER, read_card
from qbe.models.export import encoder as export
from qbe.models.folders import resolve_reranker
from qbe.models.session import open_session

pytestmark = pytest.mark.slow

PRECISIONS = ("int8", "fp32", "fp16")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def test_card_states_shape_and_parity(tiny_cross_encoder):
    card = read_card(tiny_cross_encoder, CROSS_ENCODER)
    assert (card.format, card.kind, card.max_tokens) == (1, "pair", 128)
    assert (card.labels, card.token_types) == (1, True)
    assert {path.name for path in tiny_cross_encoder.iterdir()} == {CROSS_ENCODER.metadata_file, *card.files}
    assert tuple(card.parity) == PRECISIONS
    assert card.parity["fp32"]["max_abs_difference"] < 1e-4
    assert card.parity["int8"]["max_abs_difference"] > 1e-4
    assert card.parity["fp32"]["max_abs_difference"] < card.parity["fp16"]["max_abs_difference"] < 0.05
    spreads = [figures["max_abs_difference"] / figures["share_of_spread"] for figures in card.parity.values()]
    assert spreads == pytest.approx([spreads[0]] * 3)


def test_models_take_and_give_what_is_documented(tiny_cross_encoder):
    for precision in PRECISIONS:
        session = open_session(tiny_cross_encoder / f"model.{precision}.onnx")
        inputs = [(i.name, i.type, i.shape) for i in session.get_inputs()]
        assert inputs == [(name, "tensor(int64)", ["batch", "tokens"]) for name in INPUTS]
        (score,) = session.get_outputs()
        assert (score.name, score.type, score.shape) == ("score", "tensor(float)", ["batch"])


def test_two_labels_score_the_log_odds_of_the_second(tmp_path, tiny_model):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    write_classifier(tmp_path / "two", tiny_model, labels=2)
    assert export.export_cross_encoder(tmp_path / "two", "two", "here", tmp_path / "out").labels == 2
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "two").eval()
    ids = np.array([[2, *range(40, 50), 3, *range(60, 70), 3], [2, *range(80, 90), 3, *range(50, 60), 3]])
    types = np.array([[0] * 12 + [1] * 11] * 2)
    with torch.inference_mode():
        logits = model(torch.from_numpy(ids), token_type_ids=torch.from_numpy(types)).logits
    relevant = logits.softmax(dim=1)[:, 1].double()
    expected = (relevant / (1 - relevant)).log().numpy()
    session = open_session(tmp_path / "out" / "model.fp32.onnx")
    (scores,) = session.run(["score"], dict(zip(INPUTS, (ids, np.ones_like(ids), types), strict=True)))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-4)


def test_parity_check_refuses_what_is_not_within_a_bound(tmp_path, tiny_classifier, monkeypatch, caplog):
    """Not even where a difference is no number; int8 and fp16 are left out."""
    monkeypatch.setattr(export, "INT8_MAX_SHARE_OF_SPREAD", float("nan"))
    card = export.export_cross_encoder(tiny_classifier, "tiny", "here", tmp_path / "single")
    assert [*card.parity] == ["fp32"]
    assert {path.name for path in (tmp_path / "single").iterdir()} == {"reranker.json", *card.files}
    for precision in ("int8", "fp16"):
        assert f"no {precision} model: expected one within nan of the scores' standard dev" in caplog.text
    assert resolve_reranker(str(tmp_path / "single")).precision == "fp32"
    told = "expected the reranker tiny in int8, found it only in fp32; give `pre"
    with pytest.raises(ModelError, match=told):
        resolve_reranker(str(tmp_path / "single"), "int8")
    monkeypatch.setattr(export, "FP32_MAX_DIFFERENCE", float("nan"))
    with pytest.raises(ModelError, match="parity check: expected fp32"):
        export.export_cross_encoder(tiny_classifier, "tiny", "here", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def constant_scores(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"][:] = 0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def another_tokenizer(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("[CLS]", "<cls>").replace("[SEP]", "<sep>"))


@pytest.mark.parametrize(
    ("labels", "damage", "message"),
    [
        (3, None, "expected a classifier of 1 or 2 labels, or of background, method, result, found 3"),
        (0, None, r"found no classifier\.bias, classifier\.weight in model"),  # a model without a classifier
        (1, constant_scores, "expected scores that differ between pairs, found one for all"),
        (1, another_tokenizer, r"expected a BERT-family tokenizer with .*\[CLS\], \[SEP\]"),
    ],
)
def test_another_model_is_refused(tmp_path, tiny_model, labels, damage, message):
    folder = tmp_path / "model"
    if labels:
        write_classifier(folder, tiny_model, labels=labels)
    if damage:
        damage(folder)
    with pytest.raises(ModelError, match=message):
        export.export_cross_encoder(folder if labels else tiny_model, "x", "here", tmp_path / "out")
    assert not (tmp_path / "out").exists()
