"""Published projects of kernels-community on the emulated GPU, compared with PyTorch."""
