"""Papers as PDF: title and abstract out of the first pages, read by PDFium in a process of its own."""
