"""Former place of `qbe.index.update`."""

from qbe.index.update import (
    append_papers as append_papers,
)
from qbe.index.update import (
    delete_papers as delete_papers,
)
from qbe.index.update import (
    sync_papers as sync_papers,
)
