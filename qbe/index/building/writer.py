"""Former place of `qbe.index.update`."""

from qbe.index.update import Written as Written
