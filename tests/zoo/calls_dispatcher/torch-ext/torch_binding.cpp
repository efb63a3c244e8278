#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <array>

#include "../scale_cpu/scale.h"
#include "registration.h"

void scale(const torch::stable::Tensor& out, const torch::stable::Tensor& x, double alpha) {
  auto* result = static_cast<float*>(out.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) result[i] = static_cast<float>(alpha);
  std::array<StableIValue, 2> stack{torch::stable::detail::from(out), torch::stable::detail::from(x)};
  aoti_torch_call_dispatcher("aten::mul_", "Tensor", stack.data());
}

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("scale(Tensor! out, Tensor x, float alpha) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("scale", TORCH_BOX(&scale));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
