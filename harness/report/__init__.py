"""Records to Summary to terminal, HTML, JSON, CSV, Markdown and JUnit. Reads no run folder and grades nothing."""
