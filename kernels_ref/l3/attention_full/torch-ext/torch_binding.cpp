#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("attention_full(Tensor! out, Tensor q, Tensor k, Tensor v, float scale) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("attention_full", TORCH_BOX(&attention_full));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("attention_full", TORCH_BOX(&attention_full));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
