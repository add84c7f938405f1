"""Former place of `qbe.index.index.IndexReader`."""

from qbe.index.index import IndexReader as IndexReader
