"""What a report is made of, and how it is written as HTML and Markdown."""
