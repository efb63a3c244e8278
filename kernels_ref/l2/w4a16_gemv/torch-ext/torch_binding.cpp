#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("w4a16_gemv(Tensor! out, Tensor x, Tensor packed, Tensor scales) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("w4a16_gemv", TORCH_BOX(&w4a16_gemv));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("w4a16_gemv", TORCH_BOX(&w4a16_gemv));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
