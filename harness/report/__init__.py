"""Records to Summary to terminal, HTML, JSON, CSV, Markdown, JUnit. Reads no run folder, grades nothing."""
