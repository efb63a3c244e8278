#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("rms_norm_quant_fp8(Tensor! q, Tensor! scale, Tensor x, Tensor weight, float eps) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("rms_norm_quant_fp8", TORCH_BOX(&rms_norm_quant_fp8));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("rms_norm_quant_fp8", TORCH_BOX(&rms_norm_quant_fp8));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
