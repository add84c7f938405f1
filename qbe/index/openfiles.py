"""Former place of `qbe.index.store.Files`."""

from qbe.index.store import Files as OpenFiles

has_digest = None
__all__ = ["OpenFiles", "has_digest"]
