"""Former place of `qbe.index.store`."""

from typing import Any

Snapshot = OpenSegment = Segment = Commit = Deletions = Any
COMMIT, ROOT, SEGMENTS, DELETED = "segments.json", ".", "segments", "deleted"
open_snapshot = read_commit = write_commit = segment_name = None
