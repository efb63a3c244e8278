#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("masked_softmax(Tensor! out, Tensor scores, Tensor mask, float scale) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("masked_softmax", TORCH_BOX(&masked_softmax));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("masked_softmax", TORCH_BOX(&masked_softmax));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
