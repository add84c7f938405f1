"""What is gone."""

PartShards = build_shards = None
