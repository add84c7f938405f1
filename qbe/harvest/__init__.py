"""Papers of a repository by the Open Archives Initiative's protocol (OAI-PMH 2.0), as arXiv offers it."""
