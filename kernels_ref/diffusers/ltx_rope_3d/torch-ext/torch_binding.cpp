#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("ltx_rope_3d(Tensor! out, Tensor x, Tensor cos, Tensor sin) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("ltx_rope_3d", TORCH_BOX(&ltx_rope_3d));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("ltx_rope_3d", TORCH_BOX(&ltx_rope_3d));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
