#include <torch/csrc/stable/library.h>

#include "registration.h"
#include "torch_binding.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("swiglu_clamped(Tensor! out, Tensor x, float alpha, float limit) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("swiglu_clamped", TORCH_BOX(&swiglu_clamped));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("swiglu_clamped", TORCH_BOX(&swiglu_clamped));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
