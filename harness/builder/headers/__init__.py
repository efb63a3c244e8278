"""Headers that this machine's torch and nvcc lack: fetched from PyPI wheels."""
