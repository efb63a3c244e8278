#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("conv_block(Tensor! out, Tensor x, Tensor weight, Tensor bias, Tensor residual) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("conv_block", TORCH_BOX(&conv_block));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("conv_block", TORCH_BOX(&conv_block));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
