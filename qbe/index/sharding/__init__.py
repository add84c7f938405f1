"""An index made of shards: segments of like size that are built apart and find what one index would."""
