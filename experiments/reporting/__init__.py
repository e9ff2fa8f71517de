"""What the report is made of: runs by their cases, sections, figures and the page."""
