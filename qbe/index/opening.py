"""Former place of `qbe.index.index`."""

from qbe.index.index import Index as Index
from qbe.index.index import build_index as build_index
from qbe.index.several import open_index as open_index
