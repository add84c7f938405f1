"""What is gone."""

BuildShard = Parts = build_part = merge_parts = read_part = None
