#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("ltx_geglu(Tensor! out, Tensor x, Tensor bias) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("ltx_geglu", TORCH_BOX(&ltx_geglu));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("ltx_geglu", TORCH_BOX(&ltx_geglu));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
