#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include "../axpy_cpu/axpy.h"
#include "registration.h"

void axpy(const torch::stable::Tensor& y, const torch::stable::Tensor& x, double alpha) {
  axpy_floats(static_cast<float*>(y.data_ptr()), static_cast<const float*>(x.data_ptr()), x.numel(),
              static_cast<float>(alpha));
}

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("axpy(Tensor! y, Tensor x, float alpha) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("axpy", TORCH_BOX(&axpy));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
