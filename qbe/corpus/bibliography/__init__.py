"""Papers as entries of a bibliography: BibTeX and RIS, with keys, and what tables and JSON show of them."""
