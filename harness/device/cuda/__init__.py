"""Device memory that judge and worker share, by calls into NVIDIA's driver. Never loads student code."""
