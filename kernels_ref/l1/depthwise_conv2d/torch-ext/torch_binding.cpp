#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("depthwise_conv2d(Tensor! out, Tensor x, Tensor weight, Tensor bias) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("depthwise_conv2d", TORCH_BOX(&depthwise_conv2d));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("depthwise_conv2d", TORCH_BOX(&depthwise_conv2d));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
