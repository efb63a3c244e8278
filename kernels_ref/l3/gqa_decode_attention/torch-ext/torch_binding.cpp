#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "gqa_decode_attention(Tensor! out, Tensor q, Tensor k_cache, Tensor v_cache, Tensor lengths, "
      "float scale) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("gqa_decode_attention", TORCH_BOX(&gqa_decode_attention));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("gqa_decode_attention", TORCH_BOX(&gqa_decode_attention));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
