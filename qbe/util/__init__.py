"""What every package may use: files, HTTP, threads and processes, harmless text."""
