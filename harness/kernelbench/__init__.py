"""KernelBench problems as tasks: an unmodified checkout is read, converted and admitted.

Owns: everything that knows KernelBench's files and rules. Does not own: grading, which sees ordinary tasks.
"""
