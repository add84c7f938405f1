"""How an encoder is read: what a pass holds, what becomes a vector, and how vectors are compared."""

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
"""A pass of fewer would leave no room for a sentence beside the title."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderFormat:
    """How an encoder is read. What is not given is read as all-MiniLM-L6-v2 is.

    ``layout`` is what a pass through the model holds: ``title-abstract`` [CLS] title, all sentences [SEP];
    ``title-sep-abstract`` the same with [SEP] behind the title; ``sentences`` one sentence alone, and in a
    further pass title and abstract, for the vector of the whole paper. Token types are 0 throughout, as
    all published encoders for papers that we know were trained.

    ``sentences`` and ``whole`` say how a vector comes out of the last layer's states: ``mean`` of the tokens
    (of the sentence, or of the pass with its special tokens), or ``cls``, the first token's. In context there
    is no [CLS] for each sentence, so that there ``sentences`` is ``mean``; read alone, sentences are pooled
    like the whole. ``similarity`` is ``cosine``, of vectors scaled to unit length, or ``l2``, minus the
    Euclidean distance of vectors as they are. A pass holds ``max_tokens``; None: as many as the model has
    positions.
    """

    layout: str = TITLE_ABSTRACT
    sentences: str = MEAN
    whole: str = MEAN
    similarity: str = COSINE
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for unknown words, poolings that the layout has not, and too few tokens."""
        words = (
            ("layout", self.layout, LAYOUTS),
            ("pooling of the whole", self.whole, POOLINGS),
            ("similarity", self.similarity, SIMILARITIES),
        )
        for name, found, known in words:
            if found not in known:
                raise UsageError(f"expected a {name} of {', '.join(known)}, found {found!r}")
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
        """One pooling for all that the layout lets choose: the whole, and sentences that are read alone."""
        return cls(
            layout=layout,
            sentences=pooling if layout == SENTENCES else MEAN,
            whole=pooling,
            similarity=similarity,
            max_tokens=max_tokens,
        )

    def options(self) -> list[str]:
        """The same as options of ``python -m qbe.export encoder``."""
        options = ["--layout", self.layout, "--pooling", self.whole, "--similarity", self.similarity]
        return [*options, "--max-tokens", str(self.max_tokens or 0)]


DEFAULT_FORMAT = EncoderFormat()
