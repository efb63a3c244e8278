"""Where untrusted code builds and runs. Imports nothing of harness except its errors."""
