"""RoBERTa as an encoder and as a cross-encoder, compared with transformers."""

from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import pytest
from support.tiny_roberta import POSITIONS, write_roberta
from tokenizers import Tokenizer

from qbe.models.encoder import Encoder
from qbe.models.encoding import PaperTokenizer
from qbe.models.export.encoder import export_encoder
from qbe.models.folders import resolve_encoder
from qbe.models.formats import MEAN, SENTENCES, EncoderFormat
from qbe.search.rerankers import paper_text

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def texts(papers) -> list[str]:
    return [paper_text(paper) for paper in papers]


def test_an_encoder_reads_as_the_library_does(papers, texts, tmp_path):
    folder = tmp_path / "roberta"
    write_roberta(folder, texts)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = transformers.RobertaModel.from_pretrained(folder).eval()

    def states(text: str) -> np.ndarray:
        with torch.inference_mode():
            return model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0].numpy()

    paper = replace(papers[0], sentences=papers[0].sentences[:2])
    sentences = [sentence.text for sentence in paper.sentences]
    for name, form in (
        ("context", EncoderFormat(similarity="l2")),
        ("alone", EncoderFormat(SENTENCES, MEAN, "l2")),
    ):
        metadata = export_encoder(folder, "tiny", "here", tmp_path / name, form)
        assert metadata.max_tokens == POSITIONS
        vectors = Encoder(resolve_encoder(str(tmp_path / name), "fp32")).encode_paper(paper)
        whole = states(f"{paper.title} {paper.abstract}")
        expected = [states(text).mean(axis=0) for text in sentences]
        if name == "context":
            parts = [tokenizer.encode(f" {text}", add_special_tokens=False).ids for text in sentences]
            title = tokenizer.encode(paper.title, add_special_tokens=False).ids
            starts = list(accumulate(map(len, parts), initial=1 + len(title)))
            expected = [whole[begin:end].mean(axis=0) for begin, end in pairwise(starts)]
            np.testing.assert_allclose(vectors.whole, whole.mean(axis=0), atol=2**-9)
        np.testing.assert_allclose(vectors.sentences, expected, atol=2**-9)


def test_special_tokens(texts, tmp_path):
    write_roberta(tmp_path / "roberta", texts)
    tokenizer = PaperTokenizer(tmp_path / "roberta" / "tokenizer.json")
    assert (tokenizer.special, tokenizer.pad) == ((0, 2, 3), 1)
