#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "flux_joint_attention(Tensor! out_text, Tensor! out_image, Tensor q_text, Tensor k_text, Tensor v_text, "
      "Tensor q_image, Tensor k_image, Tensor v_image, float scale) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("flux_joint_attention", TORCH_BOX(&flux_joint_attention));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("flux_joint_attention", TORCH_BOX(&flux_joint_attention));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
