"""The format of an encoder: the input of a pass, how vectors are pooled, and how they are compared."""

from __future__ import annotations

from dataclasses import dataclass

from qbe.errors import UsageError

TITLE_ABSTRACT, TITLE_SEP_ABSTRACT, SENTENCES = "title-abstract", "title-sep-abstract", "sentences"
LAYOUTS = (TITLE_ABSTRACT, TITLE_SEP_ABSTRACT, SENTENCES)
MEAN, CLS = "mean", "cls"
POOLINGS = (MEAN, CLS)
COSINE, L2 = "cosine", "l2"
SIMILARITIES = (COSINE, L2)
LEAST_TOKENS = 16
"""A pass of fewer would leave no room for a sentence after the title."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderFormat:
    """What goes into an encoder, and how vectors come out. The defaults are those of all-MiniLM-L6-v2.

    ``layout`` is the input of one pass through the model: ``title-abstract`` is [CLS] title, all sentences
    [SEP]; ``title-sep-abstract`` the same with [SEP] after the title; ``sentences`` is a single sentence, and
    another pass has title and abstract, for the vector of the whole paper. Token types are always 0, as in
    the training of all published encoders for papers that we know.

    ``sentences`` and ``whole`` are the pooling of the last layer's states to a vector: ``mean`` of the tokens
    (of the sentence, or of the pass with its special tokens), or ``cls``, the first token's. A sentence in
    context has no [CLS] of its own, so that there ``sentences`` is ``mean``; with the layout ``sentences`` it
    equals ``whole``. ``similarity`` is ``cosine``, of vectors scaled to unit length, or ``l2``, minus the
    Euclidean distance of unscaled vectors. ``max_tokens`` limits a pass; None: the number of positions of
    the model.

    >>> EncoderFormat(whole="cls", similarity="l2").sentences
    'mean'
    >>> EncoderFormat.pooled("sentences", "cls").sentences
    'cls'
    """

    layout: str = TITLE_ABSTRACT
    sentences: str = MEAN
    whole: str = MEAN
    similarity: str = COSINE
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for unknown values, poolings that the layout does not allow, too few tokens."""
        values = (
            ("layout", self.layout, LAYOUTS),
            ("pooling of the whole", self.whole, POOLINGS),
            ("similarity", self.similarity, SIMILARITIES),
        )
        for name, value, known in values:
            if value not in known:
                raise UsageError(f"expected a {name} of {', '.join(known)}, found {value!r}")
        pooling = self.whole if self.layout == SENTENCES else MEAN
        if self.sentences != pooling:
            raise UsageError(
                f"expected sentences pooled by {pooling} with the layout {self.layout}, found "
                f"{self.sentences!r}"
            )
        if self.max_tokens is not None and self.max_tokens < LEAST_TOKENS:
            raise UsageError(f"expected passes of at least {LEAST_TOKENS} tokens, found {self.max_tokens}")

    @classmethod
    def pooled(
        cls, layout: str, pooling: str, similarity: str = COSINE, max_tokens: int | None = None
    ) -> EncoderFormat:
        """A format with one pooling for the whole and, with the layout ``sentences``, for sentences too."""
        return cls(
            layout=layout,
            sentences=pooling if layout == SENTENCES else MEAN,
            whole=pooling,
            similarity=similarity,
            max_tokens=max_tokens,
        )

    def options(self) -> list[str]:
        """The same as options of ``qbe export encoder``."""
        options = ["--layout", self.layout, "--pooling", self.whole, "--similarity", self.similarity]
        return [*options, "--max-tokens", str(self.max_tokens or 0)]


DEFAULT_FORMAT = EncoderFormat()
