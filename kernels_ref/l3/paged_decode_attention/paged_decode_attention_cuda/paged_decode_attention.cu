// Decoding attention to a paged cache on CUDA: float16 and bfloat16, head_dim up to 128, any group.
//
// decode_attention.cuh does the work; here is where keys lie: one division and one entry of the table for each key,
// asked for two steps ahead.

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
  const T *k, *v;        // (blocks, block_size, kv_heads, dim)
  const int32_t* table;  // (sequences, max_blocks)
  int max_blocks, block_size, kv_heads, dim;

  __device__ int64_t row(int sequence, int kv_head, int key) const {
    const int64_t block = table[static_cast<int64_t>(sequence) * max_blocks + key / block_size];
    return ((block * block_size + key % block_size) * kv_heads + kv_head) * dim;
  }
};

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

void paged_decode_attention(const torch::stable::Tensor& out, const torch::stable::Tensor& q,
                            const torch::stable::Tensor& k_cache, const torch::stable::Tensor& v_cache,
                            const torch::stable::Tensor& block_table, const torch::stable::Tensor& context_lens,
                            double scale) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(q.dim() == 3 && out.dim() == 3, "paged_decode_attention: expected (batch, heads, head_dim)");
  STD_TORCH_CHECK(k_cache.dim() == 4 && v_cache.dim() == 4,
                  "paged_decode_attention: expected (blocks, block_size, kv_heads, head_dim)");
  STD_TORCH_CHECK(block_table.dim() == 2, "paged_decode_attention: expected block_table (batch, max_blocks)");
  const int64_t batch = q.size(0), heads = q.size(1), dim = q.size(2);
  const int64_t blocks = k_cache.size(0), block_size = k_cache.size(1), kv_heads = k_cache.size(2);
  const int64_t max_blocks = block_table.size(1);
  STD_TORCH_CHECK(out.size(0) == batch && out.size(1) == heads && out.size(2) == dim,
                  "paged_decode_attention: shapes of out and q differ");
  STD_TORCH_CHECK(kv_heads >= 1 && heads % kv_heads == 0,
                  "paged_decode_attention: heads must be a multiple of kv_heads");
  STD_TORCH_CHECK(dim % 8 == 0 && dim <= 128, "paged_decode_attention: head_dim must be a multiple of 8, at most 128");
  STD_TORCH_CHECK(context_lens.dim() == 1 && context_lens.size(0) == batch && block_table.size(0) == batch,
                  "paged_decode_attention: expected context_lens (batch,)");
  STD_TORCH_CHECK(context_lens.scalar_type() == ScalarType::Int && block_table.scalar_type() == ScalarType::Int,
                  "paged_decode_attention: block_table and context_lens must be int32");
  STD_TORCH_CHECK(batch <= 65535 && heads <= 65535 && max_blocks * block_size < (1 << 30),
                  "paged_decode_attention: too large");
  for (const auto* t : {&k_cache, &v_cache}) {
    STD_TORCH_CHECK(t->size(0) == blocks && t->size(1) == block_size && t->size(2) == kv_heads && t->size(3) == dim,
                    "paged_decode_attention: shapes of the caches differ");
  }
  for (const auto* t : {&out, &q, &k_cache, &v_cache, &block_table, &context_lens}) {
    const bool index = t == &block_table || t == &context_lens;
    STD_TORCH_CHECK(index || t->scalar_type() == q.scalar_type(), "paged_decode_attention: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == q.get_device_index(),
                    "paged_decode_attention: expected contiguous tensors on one CUDA device");
    STD_TORCH_CHECK(index || aligned(t->const_data_ptr()), "paged_decode_attention: expected 16-byte alignment");
  }
  if (batch == 0 || heads == 0 || dim == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(q.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(q.get_device_index(), &raw_stream) == 0,
                  "paged_decode_attention: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const int64_t group = heads / kv_heads;
  const int splits = decode::choose_splits(batch, kv_heads, group, max_blocks * block_size, q.get_device_index());
  const int64_t parts = splits > 1 ? batch * heads * splits : 0;
  const torch::stable::Tensor workspace = torch::stable::new_empty(q, {parts * (dim + 2)}, ScalarType::Float);
  float* const partial = static_cast<float*>(workspace.mutable_data_ptr());
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    const Cache<T> cache{static_cast<const T*>(k_cache.const_data_ptr()),
                         static_cast<const T*>(v_cache.const_data_ptr()),
                         static_cast<const int32_t*>(block_table.const_data_ptr()),
                         static_cast<int>(max_blocks),
                         static_cast<int>(block_size),
                         static_cast<int>(kv_heads),
                         static_cast<int>(dim)};
    const decode::Call<T, Cache<T>> call{static_cast<T*>(out.mutable_data_ptr()),
                                         partial,
                                         partial + parts * dim,
                                         static_cast<const T*>(q.const_data_ptr()),
                                         static_cast<const int32_t*>(context_lens.const_data_ptr()),
                                         cache,
                                         static_cast<int>(kv_heads),
                                         static_cast<int>(group),
                                         static_cast<int>(dim),
                                         splits,
                                         static_cast<float>(scale) * decode::kLog2E};
    const cudaError_t error = decode::launch(call, batch, stream);
    STD_TORCH_CHECK(error == cudaSuccess, "paged_decode_attention: ", cudaGetErrorString(error));
  };
  switch (q.scalar_type()) {
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "paged_decode_attention: expected float16 or bfloat16");
  }
}
