"""Papers to token ids, arranged in windows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from qbe.encode.windows import SpecialTokens, Window, windows
from qbe.errors import ModelError, check_package
from qbe.types import Paper

SPECIAL_TOKENS = (("<s>", "</s>", "[UNK]"), ("[CLS]", "[SEP]", "[UNK]"))
"""The tokens at the beginning and end of a text and for unknown words: MPNet's, and BERT's. MPNet's
vocabulary holds those of BERT too, with which it was not trained.
"""


class PaperTokenizer:
    """The tokenizer of a BERT-family model, applied to titles and sentences.

    >>> from qbe.models.encoder_files import resolve_encoder
    >>> tokenizer = PaperTokenizer(resolve_encoder().tokenizer)
    >>> len(tokenizer.ids("Fish swim.")), tokenizer.special.cls
    (3, 101)
    """

    def __init__(self, path: Path) -> None:
        """Load a file of the ``tokenizers`` package.

        Raises ModelError where it is not a BERT tokenizer, MissingDependencyError without the package.
        """
        check_package("tokenizers")
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise ModelError(
                f"{path}: expected a tokenizer of the tokenizers package, found: {reason}; install or "
                "export the model again"
            ) from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        for names in SPECIAL_TOKENS:
            ids = [self._tokenizer.token_to_id(name) for name in names]
            known = [token_id for token_id in ids if token_id is not None]
            if len(known) == len(ids):
                self.special = SpecialTokens(*known)
                return
        raise ModelError(
            f"{path}: expected a BERT-family tokenizer with "
            f"{' or '.join(', '.join(names) for names in SPECIAL_TOKENS)}, found not all; give another model"
        )

    def ids(self, text: str) -> list[int]:
        """Token ids of a text, without special tokens."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def first_window(self, paper: Paper, max_tokens: int) -> Window:
        """A paper's title and as many sentences as fit into ``max_tokens``, but at least one (cut)."""
        sentences: Iterator[list[int]] = (self.ids(sentence.text) for sentence in paper.sentences)
        return next(windows(self.ids(paper.title), list(sentences), self.special, max_tokens))
