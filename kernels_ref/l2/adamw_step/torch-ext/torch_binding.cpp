#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("adamw_step(Tensor! p, Tensor grad, Tensor! exp_avg, Tensor! exp_avg_sq, float lr, float beta1, float beta2, "
          "float eps, float weight_decay, int step) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("adamw_step", TORCH_BOX(&adamw_step));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("adamw_step", TORCH_BOX(&adamw_step));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
