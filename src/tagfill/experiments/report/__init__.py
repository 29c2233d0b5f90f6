"""The report of a comparison: one page that needs no other file, and the same as Markdown."""
