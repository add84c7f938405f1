"""Former place of checks, in `qbe.index.store`."""

from qbe.index.store import check_index as check_index
from qbe.index.store import save_papers as save_papers
from qbe.index.store import write_lock as write_lock

check_own_files = None
