#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include "../scale_cpu/scale.h"
#include "registration.h"

void scale(const torch::stable::Tensor& out, const torch::stable::Tensor& x, double alpha) {
  scale_floats(static_cast<float*>(out.data_ptr()), static_cast<const float*>(x.data_ptr()), x.numel(),
               static_cast<float>(alpha));
}

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("scale(Tensor! out, Tensor x, float alpha) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("scale", TORCH_BOX(&scale));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
