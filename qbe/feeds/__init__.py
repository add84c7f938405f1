"""Papers as they appear: harvests of repositories, and searches that are kept."""
