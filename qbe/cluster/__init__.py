"""Building and searching on a Ray cluster: shards on several machines, the results of one index."""
