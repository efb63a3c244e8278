#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("gemm_bias_gelu(Tensor! out, Tensor x, Tensor weight, Tensor bias) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("gemm_bias_gelu", TORCH_BOX(&gemm_bias_gelu));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("gemm_bias_gelu", TORCH_BOX(&gemm_bias_gelu));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
