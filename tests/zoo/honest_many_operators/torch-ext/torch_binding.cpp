#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>

#include "../scale_cpu/scale.h"
#include "registration.h"

using torch::stable::Tensor;

static float* data(const Tensor& t) { return static_cast<float*>(t.data_ptr()); }

void scale(const Tensor& out, const Tensor& x, double alpha) {
  scale_floats(data(out), data(x), x.numel(), static_cast<float>(alpha));
}

void shift(const Tensor& out, const Tensor& x, double beta) {
  for (int64_t i = 0; i < x.numel(); ++i) data(out)[i] = data(x)[i] + static_cast<float>(beta);
}

void negate(const Tensor& out, const Tensor& x) { scale(out, x, -1.0); }

void fill(const Tensor& out, double value) {
  std::fill(data(out), data(out) + out.numel(), static_cast<float>(value));
}

double largest(const Tensor& x) { return *std::max_element(data(x), data(x) + x.numel()); }

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("scale(Tensor! out, Tensor x, float alpha) -> ()");
  ops.def("shift(Tensor! out, Tensor x, float beta) -> ()");
  ops.def("negate(Tensor! out, Tensor x) -> ()");
  ops.def("fill(Tensor! out, float value) -> ()");
  ops.def("largest(Tensor x) -> float");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("scale", TORCH_BOX(&scale));
  ops.impl("shift", TORCH_BOX(&shift));
  ops.impl("negate", TORCH_BOX(&negate));
  ops.impl("fill", TORCH_BOX(&fill));
  ops.impl("largest", TORCH_BOX(&largest));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
