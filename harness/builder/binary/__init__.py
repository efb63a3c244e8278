"""What a built library is: its ABI, what it calls, and the kernels in it."""
