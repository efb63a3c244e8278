// One AdamW step on CUDA: parameters and gradients in float16, bfloat16 or float32, moments in float32.
//
// Bound by memory, so the design is about moving bytes: a thread has as many parameters as fit 16 bytes, loads them,
// their gradients and both moments with 16-byte accesses (64 to 96 bytes in flight for each thread), and writes three
// of the four back. Nothing is read or written twice; square root and division hide behind the loads. What is left
// after the last whole vector is updated by the first threads of the grid, one element each.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

constexpr int kThreads = 256;

// N elements moved as one access of N * sizeof(T) bytes.
template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T v[N];
};

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
template <typename T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v) { return v; }
template <>
__device__ __forceinline__ __half from_float<__half>(float v) { return __float2half_rn(v); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }

// What the scalars come to, computed in double on the host.
struct Factors {
  float beta1, beta2, gain1, gain2, root_gain, eps, decay, step_size;
};

template <typename T>
__device__ __forceinline__ void update_one(T& p, const T& grad, float& m, float& v, const Factors& f) {
  const float g = to_float(grad);
  m = m * f.beta1 + g * f.gain1;
  v = v * f.beta2 + g * g * f.gain2;
  p = from_float<T>(to_float(p) * f.decay - f.step_size * m / (sqrtf(v) * f.root_gain + f.eps));
}

// A thread updates one vector of N; moments are moved F at a time, which is at most 16 bytes.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) update_all(T* __restrict__ p, const T* __restrict__ grad,
                                                       float* __restrict__ exp_avg, float* __restrict__ exp_avg_sq,
                                                       int64_t count, Factors f) {
  constexpr int F = N < 4 ? N : 4;
  using Vec = Pack<T, N>;
  using Floats = Pack<float, F>;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t vectors = count / N;
  if (thread < vectors) {
    Vec* p_at = reinterpret_cast<Vec*>(p) + thread;
    Floats* m_at = reinterpret_cast<Floats*>(exp_avg) + thread * (N / F);
    Floats* v_at = reinterpret_cast<Floats*>(exp_avg_sq) + thread * (N / F);
    Vec parameters = *p_at;
    const Vec gradients = reinterpret_cast<const Vec*>(grad)[thread];
    Floats m[N / F], v[N / F];
#pragma unroll
    for (int k = 0; k < N / F; ++k) {
      m[k] = m_at[k];
      v[k] = v_at[k];
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
      update_one(parameters.v[n], gradients.v[n], m[n / F].v[n % F], v[n / F].v[n % F], f);
    }
    *p_at = parameters;
#pragma unroll
    for (int k = 0; k < N / F; ++k) {
      m_at[k] = m[k];
      v_at[k] = v[k];
    }
  }
  const int64_t rest = vectors * N + thread;
  if (rest < count) update_one(p[rest], grad[rest], exp_avg[rest], exp_avg_sq[rest], f);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T>
void launch(T* p, const T* grad, float* exp_avg, float* exp_avg_sq, int64_t count, const Factors& f,
            cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  const bool whole = aligned(p) && aligned(grad) && aligned(exp_avg) && aligned(exp_avg_sq);
  const int64_t vectors = (count + N - 1) / N, work = whole ? vectors : count;  // the tail counts as one vector
  const auto kernel = whole ? update_all<T, N> : update_all<T, 1>;
  kernel<<<static_cast<unsigned>((work + kThreads - 1) / kThreads), kThreads, 0, stream>>>(p, grad, exp_avg,
                                                                                           exp_avg_sq, count, f);
}

}  // namespace

void adamw_step(const torch::stable::Tensor& p, const torch::stable::Tensor& grad,
                const torch::stable::Tensor& exp_avg, const torch::stable::Tensor& exp_avg_sq, double lr, double beta1,
                double beta2, double eps, double weight_decay, int64_t step) {
  using torch::headeronly::ScalarType;
  const int64_t count = p.numel();
  for (const auto* t : {&p, &grad, &exp_avg, &exp_avg_sq}) {
    STD_TORCH_CHECK(t->dim() == 1 && t->numel() == count, "adamw_step: expected four tensors of shape (count,)");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == p.get_device_index(),
                    "adamw_step: expected contiguous tensors on one CUDA device");
  }
  STD_TORCH_CHECK(grad.scalar_type() == p.scalar_type(), "adamw_step: dtypes of p and grad differ");
  STD_TORCH_CHECK(exp_avg.scalar_type() == ScalarType::Float && exp_avg_sq.scalar_type() == ScalarType::Float,
                  "adamw_step: exp_avg and exp_avg_sq are float32");
  STD_TORCH_CHECK(count <= static_cast<int64_t>(INT32_MAX) * kThreads, "adamw_step: tensor too large");
  STD_TORCH_CHECK(step >= 1, "adamw_step: steps count from 1");
  if (count == 0) return;
  const double times = static_cast<double>(step);
  const Factors f{static_cast<float>(beta1),
                  static_cast<float>(beta2),
                  static_cast<float>(1.0 - beta1),
                  static_cast<float>(1.0 - beta2),
                  static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, times))),
                  static_cast<float>(eps),
                  static_cast<float>(1.0 - lr * weight_decay),
                  static_cast<float>(lr / (1.0 - std::pow(beta1, times)))};

  const torch::stable::accelerator::DeviceGuard guard(p.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(p.get_device_index(), &raw_stream) == 0,
                  "adamw_step: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(p.mutable_data_ptr()), static_cast<const T*>(grad.const_data_ptr()),
           static_cast<float*>(exp_avg.mutable_data_ptr()), static_cast<float*>(exp_avg_sq.mutable_data_ptr()), count,
           f, stream);
  };
  switch (p.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "adamw_step: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "adamw_step: ", cudaGetErrorString(error));
}
