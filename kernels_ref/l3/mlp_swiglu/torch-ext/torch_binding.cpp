#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("mlp_swiglu(Tensor! out, Tensor x, Tensor w_gate, Tensor w_up, Tensor w_down) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("mlp_swiglu", TORCH_BOX(&mlp_swiglu));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("mlp_swiglu", TORCH_BOX(&mlp_swiglu));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
