#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include "../scale_cuda/scale.h"
#include "registration.h"

void scale(const torch::stable::Tensor& out, const torch::stable::Tensor& x, double alpha) {
  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream) == 0, "scale: no stream");
  const char* error = scale_floats(static_cast<float*>(out.data_ptr()), static_cast<const float*>(x.data_ptr()),
                                   x.numel(), static_cast<float>(alpha), stream);
  STD_TORCH_CHECK(error == nullptr, "scale: ", error);
}

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("scale(Tensor! out, Tensor x, float alpha) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("scale", TORCH_BOX(&scale));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
