"""Answers to programs, pages and agents over one open index: requests in, records of JSON values out."""
