#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("moe_dispatch(Tensor! x_sorted, Tensor! order, Tensor! offsets, Tensor x, Tensor ids, Tensor! load) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("moe_dispatch", TORCH_BOX(&moe_dispatch));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("moe_dispatch", TORCH_BOX(&moe_dispatch));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
