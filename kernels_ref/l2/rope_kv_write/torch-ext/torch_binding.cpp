#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("rope_kv_write(Tensor! key_cache, Tensor! value_cache, Tensor key, Tensor value, Tensor cos, Tensor sin, "
          "Tensor slots) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("rope_kv_write", TORCH_BOX(&rope_kv_write));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("rope_kv_write", TORCH_BOX(&rope_kv_write));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
