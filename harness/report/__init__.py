"""Reports: records to Summary to terminal, HTML, JSON, CSV, Markdown and JUnit."""
