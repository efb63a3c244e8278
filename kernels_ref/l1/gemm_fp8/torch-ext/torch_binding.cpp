#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("gemm_fp8(Tensor! out, Tensor a, Tensor b, Tensor scale_a, Tensor scale_b) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("gemm_fp8", TORCH_BOX(&gemm_fp8));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("gemm_fp8", TORCH_BOX(&gemm_fp8));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
