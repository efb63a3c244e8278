"""KernelBench problems as tasks: an unmodified checkout is read, converted and admitted."""
