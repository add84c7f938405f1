"""Former place of the manifest, in `qbe.index.store`."""

from qbe.index.store import (
    FORMAT_VERSION as FORMAT_VERSION,
)
from qbe.index.store import (
    MANIFEST as MANIFEST,
)
from qbe.index.store import (
    Manifest as Manifest,
)
from qbe.index.store import (
    describe_files as describe_files,
)
from qbe.index.store import (
    digest as digest,
)
from qbe.index.store import (
    read_manifest as read_manifest,
)

PULLED = "pack.json"
write_manifest = None
