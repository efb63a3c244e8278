// Causal attention on CUDA: float16 and bfloat16, head_dim up to 128.
//
// hopper_attention.cuh (TMA and wgmma) does the work, flash_attention.cuh (mma.sync) that of sequences of less than
// half a tile; here is where rows lie and what a row sees. Blocks of keys above the diagonal are never loaded, and only
// blocks on it are masked.

#include <cuda_runtime.h>

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "flash_attention.cuh"
#include "hopper_attention.cuh"

namespace {

template <typename T>
struct Head {
  const T *q_rows, *k_rows, *v_rows;
  T* out_rows;
  int queries, dim;
  float scale_log2;
  static constexpr bool vectors = true;

  __device__ const T* q(int row) const { return q_rows + static_cast<int64_t>(row) * dim; }
  __device__ const T* k(int key) const { return k_rows + static_cast<int64_t>(key) * dim; }
  __device__ const T* v(int key) const { return v_rows + static_cast<int64_t>(key) * dim; }
  __device__ T* out(int row) const { return out_rows + static_cast<int64_t>(row) * dim; }
  __device__ int begin(int) const { return 0; }
  __device__ int end(int row) const { return row + 1; }
};

// All heads of all sequences lie one behind the other.
template <typename T>
struct Problem {
  T* out;
  const T *q, *k, *v;
  int length, dim;
  float scale_log2;

  __device__ Head<T> head(int index) const {
    const int64_t start = static_cast<int64_t>(index) * length * dim;
    return {q + start, k + start, v + start, out + start, length, dim, scale_log2};
  }
};

// False, and nothing is started, where the driver refuses an operand.
template <typename T, int D>
bool launch_hopper(const Problem<T>& x, int64_t heads, cudaStream_t stream) {
  const int all = static_cast<int>(heads);
  const int64_t row = x.dim, head = row * x.length;
  const hopper::Problem<T, 1> problem{
      {x.out}, {row}, {head}, {heads * head}, {x.length}, {x.length}, all, all, x.dim, x.scale_log2};
  const auto operand = [&](const T* data) -> hopper::Operand { return {data, x.length, row, head, heads * head}; };
  return hopper::launch<T, D, 128, true, 1>(problem, {operand(x.q)}, {operand(x.k)}, {operand(x.v)}, stream);
}

template <typename T>
bool launch_hopper(const Problem<T>& x, int64_t heads, cudaStream_t stream) {
  if (x.length < hopper::kRows / 2) return false;
  if (x.dim <= 64) return launch_hopper<T, 64>(x, heads, stream);
  if (x.dim <= 96) return launch_hopper<T, 96>(x, heads, stream);
  return launch_hopper<T, 128>(x, heads, stream);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

void attention_causal(const torch::stable::Tensor& out, const torch::stable::Tensor& q, const torch::stable::Tensor& k,
                      const torch::stable::Tensor& v, double scale) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(q.dim() == 4, "attention_causal: expected (batch, heads, length, head_dim)");
  const int64_t heads = q.size(0) * q.size(1), length = q.size(2), dim = q.size(3);
  STD_TORCH_CHECK(dim % 8 == 0 && dim <= 128, "attention_causal: head_dim must be a multiple of 8, at most 128");
  STD_TORCH_CHECK(length < (1 << 20) && heads < (1 << 15), "attention_causal: tensor too large");
  for (const auto* t : {&out, &q, &k, &v}) {
    STD_TORCH_CHECK(t->dim() == 4 && t->size(0) == q.size(0) && t->size(1) == q.size(1) && t->size(2) == length &&
                        t->size(3) == dim,
                    "attention_causal: shapes differ");
    STD_TORCH_CHECK(t->scalar_type() == q.scalar_type(), "attention_causal: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == q.get_device_index(),
                    "attention_causal: expected contiguous tensors on one CUDA device");
    STD_TORCH_CHECK(aligned(t->const_data_ptr()), "attention_causal: expected 16-byte alignment");
  }
  if (heads == 0 || length == 0 || dim == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(q.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(q.get_device_index(), &raw_stream) == 0,
                  "attention_causal: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    const Problem<T> problem{static_cast<T*>(out.mutable_data_ptr()),
                             static_cast<const T*>(q.const_data_ptr()),
                             static_cast<const T*>(k.const_data_ptr()),
                             static_cast<const T*>(v.const_data_ptr()),
                             static_cast<int>(length),
                             static_cast<int>(dim),
                             static_cast<float>(scale) * flash::kLog2E};
    const cudaError_t error = launch_hopper(problem, heads, stream)
                                  ? cudaGetLastError()
                                  : flash::launch<T>(problem, heads, length, dim, stream);
    STD_TORCH_CHECK(error == cudaSuccess, "attention_causal: ", cudaGetErrorString(error));
  };
  switch (q.scalar_type()) {
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "attention_causal: expected float16 or bfloat16");
  }
}
