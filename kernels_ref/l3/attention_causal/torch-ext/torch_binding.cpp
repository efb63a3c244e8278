#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("attention_causal(Tensor! out, Tensor q, Tensor k, Tensor v, float scale) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("attention_causal", TORCH_BOX(&attention_causal));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("attention_causal", TORCH_BOX(&attention_causal));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
