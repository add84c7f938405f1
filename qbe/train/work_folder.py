"""To be removed: see `qbe.train.artifacts`."""

from qbe.train.artifacts import (
    Folders,
    RunOptions,
    as_record,
    check_provenance,
    file_digests,
    read_provenance,
)

__all__ = ["Folders", "RunOptions", "as_record", "check_provenance", "file_digests", "read_provenance"]
