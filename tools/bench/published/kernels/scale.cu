#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/all.h>

template <typename scalar_t>
__global__ void scale_kernel(scalar_t* out, const scalar_t* x, scalar_t factor, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = x[i] * factor;
}

void scale(torch::Tensor& out, const torch::Tensor& x, double factor) {
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  const int64_t n = x.numel();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", [&] {
    scale_kernel<scalar_t><<<static_cast<unsigned>((n + 255) / 256), 256, 0, stream>>>(
        out.data_ptr<scalar_t>(), x.const_data_ptr<scalar_t>(), static_cast<scalar_t>(factor), n);
  });
}
