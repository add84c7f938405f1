"""The command that packs an index."""
