// Decoding attention to a contiguous cache on CUDA: float16 and bfloat16, head_dim up to 128, any group.
//
// decode_attention.cuh does the work; here is where keys lie.

#include <cuda_runtime.h>

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "decode_attention.cuh"

namespace {

template <typename T>
struct Cache {
  const T *k, *v;  // (sequences, kv_heads, max_length, dim)
  int kv_heads, max_length, dim;

  __device__ int64_t row(int sequence, int kv_head, int key) const {
    return ((static_cast<int64_t>(sequence) * kv_heads + kv_head) * max_length + key) * dim;
  }
};

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

void gqa_decode_attention(const torch::stable::Tensor& out, const torch::stable::Tensor& q,
                          const torch::stable::Tensor& k_cache, const torch::stable::Tensor& v_cache,
                          const torch::stable::Tensor& lengths, double scale) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(q.dim() == 3 && out.dim() == 3, "gqa_decode_attention: expected (batch, heads, head_dim)");
  STD_TORCH_CHECK(k_cache.dim() == 4 && v_cache.dim() == 4,
                  "gqa_decode_attention: expected (batch, kv_heads, max_len, head_dim)");
  const int64_t batch = q.size(0), heads = q.size(1), dim = q.size(2);
  const int64_t kv_heads = k_cache.size(1), max_length = k_cache.size(2);
  STD_TORCH_CHECK(out.size(0) == batch && out.size(1) == heads && out.size(2) == dim,
                  "gqa_decode_attention: shapes of out and q differ");
  STD_TORCH_CHECK(kv_heads >= 1 && heads % kv_heads == 0,
                  "gqa_decode_attention: heads must be a multiple of kv_heads");
  STD_TORCH_CHECK(dim % 8 == 0 && dim <= 128, "gqa_decode_attention: head_dim must be a multiple of 8, at most 128");
  STD_TORCH_CHECK(lengths.scalar_type() == ScalarType::Int && lengths.dim() == 1 && lengths.size(0) == batch,
                  "gqa_decode_attention: expected lengths (batch,) int32");
  STD_TORCH_CHECK(batch <= 65535 && heads <= 65535 && max_length < (1 << 30), "gqa_decode_attention: too large");
  for (const auto* t : {&k_cache, &v_cache}) {
    STD_TORCH_CHECK(t->size(0) == batch && t->size(1) == kv_heads && t->size(2) == max_length && t->size(3) == dim,
                    "gqa_decode_attention: shapes of the caches differ");
  }
  for (const auto* t : {&out, &q, &k_cache, &v_cache, &lengths}) {
    STD_TORCH_CHECK(t == &lengths || t->scalar_type() == q.scalar_type(), "gqa_decode_attention: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == q.get_device_index(),
                    "gqa_decode_attention: expected contiguous tensors on one CUDA device");
    STD_TORCH_CHECK(t == &lengths || aligned(t->const_data_ptr()), "gqa_decode_attention: expected 16-byte alignment");
  }
  if (batch == 0 || heads == 0 || dim == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(q.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(q.get_device_index(), &raw_stream) == 0,
                  "gqa_decode_attention: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const int64_t group = heads / kv_heads;
  const int splits = decode::choose_splits(batch, kv_heads, group, max_length, q.get_device_index());
  const int64_t parts = splits > 1 ? batch * heads * splits : 0;
  const torch::stable::Tensor workspace = torch::stable::new_empty(q, {parts * (dim + 2)}, ScalarType::Float);
  float* const partial = static_cast<float*>(workspace.mutable_data_ptr());
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    const Cache<T> cache{static_cast<const T*>(k_cache.const_data_ptr()),
                         static_cast<const T*>(v_cache.const_data_ptr()), static_cast<int>(kv_heads),
                         static_cast<int>(max_length), static_cast<int>(dim)};
    const decode::Call<T, Cache<T>> call{static_cast<T*>(out.mutable_data_ptr()),
                                         partial,
                                         partial + parts * dim,
                                         static_cast<const T*>(q.const_data_ptr()),
                                         static_cast<const int32_t*>(lengths.const_data_ptr()),
                                         cache,
                                         static_cast<int>(kv_heads),
                                         static_cast<int>(group),
                                         static_cast<int>(dim),
                                         splits,
                                         static_cast<float>(scale) * decode::kLog2E};
    const cudaError_t error = decode::launch(call, batch, stream);
    STD_TORCH_CHECK(error == cudaSuccess, "gqa_decode_attention: ", cudaGetErrorString(error));
  };
  switch (q.scalar_type()) {
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "gqa_decode_attention: expected float16 or bfloat16");
  }
}
