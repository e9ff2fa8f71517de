"""Sections, tables and figures of a report, written as HTML and Markdown."""
