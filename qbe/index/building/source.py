"""Former place of `qbe.index.source`."""

from qbe.index.source import Corpus as Corpus
from qbe.index.source import Origin as Origin
from qbe.index.source import Source as Source
from qbe.index.source import open_corpus as open_corpus
