#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include "../scale_cpu/scale.h"
#include "registration.h"

using torch::stable::Tensor;

static float* data(const Tensor& t) { return static_cast<float*>(t.data_ptr()); }

void scale(const Tensor& out, const Tensor& x, double alpha) {
  scale_floats(data(out), data(x), x.numel(), static_cast<float>(alpha));
}

void scale_square(const Tensor& out, const Tensor& x, double alpha) {
  scale_65536_floats(data(out), data(x), static_cast<float>(alpha));
}

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("scale(Tensor! out, Tensor x, float alpha) -> ()");
  ops.def("scale_square(Tensor! out, Tensor x, float alpha) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("scale", TORCH_BOX(&scale));
  ops.impl("scale_square", TORCH_BOX(&scale_square));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
