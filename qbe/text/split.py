"""Sentence splitting of abstracts that come as one string."""

from __future__ import annotations


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, in order, without the white space around them.

    Uses syntok, which was written for running text with abbreviations and citations.
    """
    from syntok import segmenter

    sentences = (sentence for paragraph in segmenter.analyze(text) for sentence in paragraph)
    texts = ("".join(token.spacing + token.value for token in sentence).strip() for sentence in sentences)
    return [sentence for sentence in texts if sentence]
