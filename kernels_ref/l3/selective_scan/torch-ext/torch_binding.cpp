#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("selective_scan(Tensor! out, Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor D) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("selective_scan", TORCH_BOX(&selective_scan));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("selective_scan", TORCH_BOX(&selective_scan));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
