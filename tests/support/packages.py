"""Packages that messages advise to install, as the tests expect them."""

import sys

PYSERINI = "pyserini==1.6.0" if sys.version_info < (3, 12) else "pyserini==2.3.0"
