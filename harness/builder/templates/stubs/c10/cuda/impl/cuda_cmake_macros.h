// liftbench stand-in: PyTorch generates this header in CUDA builds only, and the PyTorch in use is
// CPU-only. It says that c10_cuda is a shared library, as it is in every published CUDA build.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS
