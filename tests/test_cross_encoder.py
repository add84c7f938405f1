"""The pair cross-encoder: its numbers against the original's, its inputs, and what it refuses."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr
from support.damage import truncate, vouch
from support.rerankers import score
from tokenizers import Tokenizer

from qbe.errors import ModelError
from qbe.query import Query
from qbe.search.rerankers import open_reranker
from qbe.types import Facet, Paper, Sentence
from qbe.util.work import Workers

pytestmark = pytest.mark.slow

BACKGROUND, METHOD, RESULT = Facet
SENTENCES = {
    "Search is hard.": BACKGROUND,
    "We read pairs.": METHOD,
    "It works.": RESULT,
    "We cut them.": METHOD,
}
QUERY = Paper("q", "Ranking papers", tuple(Sentence(*each) for each in SENTENCES.items()), labelled=True)
CANDIDATES = [
    Paper("a", "Do retinas age?", (Sentence("We photograph eyes."), Sentence("They do."))),
    Paper("b", "", (Sentence("No title."),)),
    Paper("c", "A longer title about graphs and code", (Sentence("Graphs of code are compared."),) * 4),
]
TEXTS = [
    "Do retinas age? We photograph eyes. They do.",
    "No title.",
    "A longer title about graphs and code." + " Graphs of code are compared." * 4,
]
METHOD_TEXT = "Ranking papers. We read pairs. We cut them."


@pytest.fixture
def exported(tmp_path, tiny_cross_encoder) -> Path:
    return Path(shutil.copytree(tiny_cross_encoder, tmp_path / "exported"))


@pytest.fixture(scope="module")
def original(tiny_classifier):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.BertForSequenceClassification.from_pretrained(tiny_classifier).eval()

    def logit(ids, types) -> float:
        with torch.inference_mode():
            output = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types]))
        return output.logits.item()

    return logit


def scores(reranker, query: Query) -> list[float]:
    return [judged.score for judged in score(reranker, query, CANDIDATES)]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (Query(QUERY, Facet.METHOD), METHOD_TEXT),
        (Query(QUERY, positions=(2, 0)), "Ranking papers. Search is hard. It works."),
        (Query(QUERY), f"Ranking papers. {QUERY.abstract}"),
    ],
)
def test_scores_are_the_logits_of_transformers(tiny_cross_encoder, tiny_classifier, original, query, text):
    reranker = open_reranker(str(tiny_cross_encoder), precision="fp32")
    tokenizer = Tokenizer.from_file(str(tiny_classifier / "tokenizer.json"))
    encodings = [tokenizer.encode(text, candidate) for candidate in TEXTS]
    expected = [original(encoding.ids, encoding.type_ids) for encoding in encodings]
    assert max(expected) - min(expected) > 1e-2
    np.testing.assert_allclose(scores(reranker, query), expected, rtol=0, atol=1e-5)


def test_each_side_is_cut_at_its_end(tiny_cross_encoder, tiny_classifier, original):
    """The tiny model reads 128 tokens: 64 of each side."""
    reranker = open_reranker(str(tiny_cross_encoder), precision="fp32", workers=Workers(2))
    tokenizer = Tokenizer.from_file(str(tiny_classifier / "tokenizer.json"))
    long = Paper("long", "Words", (Sentence("Graphs of code are compared."),) * 30)
    query, candidate = (
        tokenizer.encode(text, add_special_tokens=False).ids for text in (f"Words. {long.abstract}", TEXTS[0])
    )
    ids = [2, *query[:62], 3, *candidate, 3]
    (judged,) = score(reranker, Query(long), CANDIDATES[:1])
    assert judged.score == pytest.approx(original(ids, [0] * 64 + [1] * (len(ids) - 64)), abs=1e-5)
    ids = [2, *candidate, 3, *query[:63], 3]
    (judged,) = score(reranker, Query(CANDIDATES[0]), [long])
    first = len(candidate) + 2
    assert judged.score == pytest.approx(original(ids, [0] * first + [1] * (len(ids) - first)), abs=1e-5)


def test_smaller_numbers_keep_the_order(tiny_cross_encoder, papers):
    query = Query(papers[23], Facet.METHOD)
    exact, rounded = (open_reranker(str(tiny_cross_encoder), precision=p) for p in ("fp32", "int8"))
    assert exact.name == "tiny-classifier"
    judged = [score(reranker, query, papers) for reranker in (exact, rounded)]
    assert {each.match for each in judged[0]} == {None}  # it knows no sentences
    numbers = [[each.score for each in one] for one in judged]
    assert numbers[0] != numbers[1]
    assert spearmanr(*numbers).statistic > 0.9


def test_a_model_without_token_types_is_given_none(tmp_path, tiny_classifier):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from qbe.models.export.encoder import export_cross_encoder

    tokenizer = Tokenizer.from_file(str(tiny_classifier / "tokenizer.json"))
    sizes = {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 128}
    config = transformers.DistilBertConfig(
        vocab_size=tokenizer.get_vocab_size(), num_labels=1, initializer_range=0.5, **sizes
    )
    torch.manual_seed(1)
    model = transformers.DistilBertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path / "distil")
    shutil.copyfile(tiny_classifier / "tokenizer.json", tmp_path / "distil" / "tokenizer.json")
    card = export_cross_encoder(tmp_path / "distil", "distil", "here", tmp_path / "out")
    assert not card.token_types
    reranker = open_reranker(str(tmp_path / "out"), precision="fp32")
    with torch.inference_mode():
        pairs = [tokenizer.encode(METHOD_TEXT, text).ids for text in TEXTS]
        expected = [model(torch.tensor([ids])).logits.item() for ids in pairs]
    np.testing.assert_allclose(scores(reranker, Query(QUERY, Facet.METHOD)), expected, rtol=0, atol=1e-5)


def other_tokens(path: Path) -> None:
    path.write_text(path.read_text().replace("[CLS]", "<s>"))


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.int8.onnx", truncate, r"model\.int8\.onnx: expected an ONNX model, found: "),
        ("model.int8.onnx", None, "found a model of input_ids to last"),
        ("tokenizer.json", lambda path: path.write_text("{}"), "expected a tokenizer of the tokenizers pack"),
        ("tokenizer.json", other_tokens, "a BERT-family tokenizer with .*, found not all"),
    ],
)
def test_other_files_with_their_digests_are_refused(exported, tiny_encoder, name, damage, message):
    if damage:
        damage(exported / name)
    else:
        shutil.copyfile(tiny_encoder / name, exported / name)
    vouch(exported, name)
    with pytest.raises(ModelError, match=message) as caught:
        open_reranker(str(exported)).batch_score([])
    assert "\n" not in str(caught.value)
