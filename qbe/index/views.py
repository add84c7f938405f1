"""Former place of `qbe.index.papers`."""

from qbe.index.papers import Papers as PaperStore
from qbe.index.papers import rows_of as rows_of

combined_manifest = open_segments = open_vectors = None
__all__ = ["PaperStore", "combined_manifest", "open_segments", "open_vectors", "rows_of"]
