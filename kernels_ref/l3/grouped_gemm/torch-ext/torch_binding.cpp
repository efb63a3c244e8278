#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("grouped_gemm(Tensor! out, Tensor x, Tensor weights, Tensor offsets) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("grouped_gemm", TORCH_BOX(&grouped_gemm));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("grouped_gemm", TORCH_BOX(&grouped_gemm));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
