// Attention without a mask on CUDA: float16 and bfloat16, head_dim up to 128.
//
// Rows that begin at multiples of 16 bytes go to hopper_attention.cuh (TMA and wgmma), unless the queries would fill
// less than half of a tile. All others take flash_attention.cuh (mma.sync), which copies rows that are not aligned one
// element at a time: that is as slow as it sounds, and right.

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
  int queries, keys, dim;
  bool vectors;
  float scale_log2;

  __device__ const T* q(int row) const { return q_rows + static_cast<int64_t>(row) * dim; }
  __device__ const T* k(int key) const { return k_rows + static_cast<int64_t>(key) * dim; }
  __device__ const T* v(int key) const { return v_rows + static_cast<int64_t>(key) * dim; }
  __device__ T* out(int row) const { return out_rows + static_cast<int64_t>(row) * dim; }
  __device__ int begin(int) const { return 0; }
  __device__ int end(int) const { return keys; }
};

// All heads of all sequences lie one behind the other.
template <typename T>
struct Problem {
  T* out;
  const T *q, *k, *v;
  int queries, keys, dim;
  bool vectors;
  float scale_log2;

  __device__ Head<T> head(int index) const {
    const int64_t first_row = static_cast<int64_t>(index) * queries * dim;
    const int64_t first_key = static_cast<int64_t>(index) * keys * dim;
    return {q + first_row, k + first_key, v + first_key, out + first_row, queries, keys, dim, vectors, scale_log2};
  }
};

// False, and nothing is started, where the driver refuses an operand.
template <typename T, int D, int N>
bool launch_hopper(const Problem<T>& x, int64_t heads, cudaStream_t stream) {
  const int all = static_cast<int>(heads);
  const int64_t row = x.dim, q_head = row * x.queries, k_head = row * x.keys;
  const hopper::Problem<T, 1> problem{
      {x.out}, {row}, {q_head}, {heads * q_head}, {x.queries}, {x.keys}, all, all, x.dim, x.scale_log2};
  const auto operand = [&](const T* data, int rows, int64_t head) -> hopper::Operand {
    return {data, rows, row, head, heads * head};
  };
  return hopper::launch<T, D, N, false, 1>(problem, {operand(x.q, x.queries, q_head)}, {operand(x.k, x.keys, k_head)},
                                           {operand(x.v, x.keys, k_head)}, stream);
}

template <typename T>
bool launch_hopper(const Problem<T>& x, int64_t heads, cudaStream_t stream) {
  if (!x.vectors || x.queries < hopper::kRows / 2) return false;
  if (x.dim <= 64 && x.keys <= 80) return launch_hopper<T, 64, 80>(x, heads, stream);
  if (x.dim <= 64) return launch_hopper<T, 64, 128>(x, heads, stream);
  if (x.dim <= 96) return launch_hopper<T, 96, 128>(x, heads, stream);
  return launch_hopper<T, 128, 128>(x, heads, stream);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

void attention_full(const torch::stable::Tensor& out, const torch::stable::Tensor& q, const torch::stable::Tensor& k,
                      const torch::stable::Tensor& v, double scale) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(q.dim() == 4 && k.dim() == 4, "attention_full: expected (batch, heads, length, head_dim)");
  const int64_t heads = q.size(0) * q.size(1), queries = q.size(2), keys = k.size(2), dim = q.size(3);
  STD_TORCH_CHECK(dim <= 128, "attention_full: head_dim must be at most 128");
  STD_TORCH_CHECK(keys >= 1, "attention_full: there must be a key");
  STD_TORCH_CHECK(queries < (1 << 20) && keys < (1 << 30) && heads < (1 << 15), "attention_full: tensor too large");
  bool vectors = dim % 8 == 0;
  for (const auto* t : {&out, &q, &k, &v}) {
    STD_TORCH_CHECK(t->dim() == 4 && t->size(0) == q.size(0) && t->size(1) == q.size(1) && t->size(3) == dim &&
                        t->size(2) == (t == &out || t == &q ? queries : keys),
                    "attention_full: shapes differ");
    STD_TORCH_CHECK(t->scalar_type() == q.scalar_type(), "attention_full: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == q.get_device_index(),
                    "attention_full: expected contiguous tensors on one CUDA device");
    vectors = vectors && aligned(t->const_data_ptr());
  }
  if (heads == 0 || queries == 0 || dim == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(q.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(q.get_device_index(), &raw_stream) == 0,
                  "attention_full: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    const Problem<T> problem{static_cast<T*>(out.mutable_data_ptr()),
                             static_cast<const T*>(q.const_data_ptr()),
                             static_cast<const T*>(k.const_data_ptr()),
                             static_cast<const T*>(v.const_data_ptr()),
                             static_cast<int>(queries),
                             static_cast<int>(keys),
                             static_cast<int>(dim),
                             vectors,
                             static_cast<float>(scale) * flash::kLog2E};
    const cudaError_t error = launch_hopper(problem, heads, stream)
                                  ? cudaGetLastError()
                                  : flash::launch<T>(problem, heads, queries, dim, stream);
    STD_TORCH_CHECK(error == cudaSuccess, "attention_full: ", cudaGetErrorString(error));
  };
  switch (q.scalar_type()) {
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "attention_full: expected float16 or bfloat16");
  }
}
