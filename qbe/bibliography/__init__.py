"""Papers as entries of a bibliography: BibTeX and RIS, with keys, and what tables and JSON show of them."""

from qbe.bibliography.reference import Reference, reference_of
from qbe.bibliography.writing import Bibliography, entries

__all__ = ["Bibliography", "Reference", "entries", "reference_of"]
