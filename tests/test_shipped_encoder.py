"""The facet encoder that the package carries: whole, small, read as the one that it began as."""

import numpy as np
from support.processors import exact_int8

from qbe.encode.encoder import Encoder
from qbe.models.encoder_files import resolve_encoder
from qbe.models.encoder_format import DEFAULT_FORMAT
from qbe.models.registry import BASE_ENCODER, DEFAULT_ENCODER
from qbe.tag.tagger import Tagger
from qbe.types import Paper, Sentence

SIZE = 30e6
"""Bytes that the package may carry for it."""


def test_it_is_small_and_whole_and_needs_no_export(cache):
    files = resolve_encoder()
    files.verify()
    assert files.metadata.name == DEFAULT_ENCODER
    assert files.metadata.encoder_format == DEFAULT_FORMAT
    assert (files.folder / "README.md").read_text().startswith(f"# {DEFAULT_ENCODER}\n")
    assert sum(path.stat().st_size for path in files.folder.iterdir()) <= SIZE
    assert not cache.exists()


def test_the_tagger_reads_it_and_what_it_began_as():
    tagger = Tagger.open()
    assert tagger.metadata.trunks[0]["name"] == DEFAULT_ENCODER
    assert all(tagger.supports(Encoder.open(name)) for name in (DEFAULT_ENCODER, BASE_ENCODER))


@exact_int8
def test_what_shares_an_aspect_is_nearer():
    """Of two papers the one with the same problem is nearer in its first sentence, the one with the same
    method in its second.
    """
    encoder = Encoder.open()

    def vectors(title: str, *sentences: str) -> np.ndarray:
        return encoder.encode_paper(Paper("x", title, tuple(map(Sentence, sentences)))).sentences

    query = vectors(
        "Segmenting Chinese words with conditional random fields",
        "Chinese is written without spaces, so that words must be found before parsing.",
        "We label characters with a linear-chain conditional random field over character n-grams.",
    )
    problem = vectors(
        "A greedy dictionary segmenter for Chinese text",
        "Chinese text has no spaces between words, and every parser needs them.",
        "We match the longest entry of a lexicon from left to right.",
    )
    method = vectors(
        "Tagging genes in clinical notes",
        "Names of genes in clinical notes are to be found for curation.",
        "A linear-chain conditional random field over character n-grams labels each token.",
    )
    assert (query[0] @ problem.T).max() > (query[0] @ method.T).max() + 0.05
    assert (query[1] @ method.T).max() > (query[1] @ problem.T).max() + 0.05
