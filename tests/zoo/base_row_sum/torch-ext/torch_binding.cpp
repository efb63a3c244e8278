#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include "../row_sum_cpu/row_sum.h"
#include "registration.h"

void row_sum(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  sum_rows(static_cast<float*>(out.data_ptr()), static_cast<const float*>(x.data_ptr()), x.size(0), x.size(1));
}

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("row_sum(Tensor! out, Tensor x) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("row_sum", TORCH_BOX(&row_sum));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
