"""Former place of `qbe.index.source`."""

from qbe.index.source import (
    BuildSettings as BuildSettings,
)
from qbe.index.source import (
    Execution as Execution,
)
from qbe.index.source import (
    Progress as Progress,
)
from qbe.index.source import (
    Silent as Silent,
)
