"""The trusted side: inputs, buffers, truth, verdict and the outside clock. Never loads student code."""
