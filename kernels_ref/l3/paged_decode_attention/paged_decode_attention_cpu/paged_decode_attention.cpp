// Decoding attention to a paged cache on the CPU, float32.
//
// decode_head.h does the work; here is where keys lie. The query heads of a group share their keys.

#include <cstdint>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "decode_head.h"

namespace {

struct Head {
  const float *q_rows, *k_blocks, *v_blocks;  // blocks begin at this head's first key
  const int32_t* table;
  float* out_rows;
  int64_t rows, keys, dim, block_size, kv_heads;
  double scale;

  int64_t place(int64_t key) const {
    return (table[key / block_size] * block_size + key % block_size) * kv_heads * dim;
  }

  const float* q(int64_t row) const { return q_rows + row * dim; }
  const float* k(int64_t key) const { return k_blocks + place(key); }
  const float* v(int64_t key) const { return v_blocks + place(key); }
  float* out(int64_t row) const { return out_rows + row * dim; }
};

using Attend = void (*)(const Head&);
#define DEFINE_ATTEND(NAME, W) \
  void NAME(const Head& head) { attention::attend<W>(head); }

DEFINE_ATTEND(attend_baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_ATTEND(attend_avx2, 8)
__attribute__((target("avx512f"))) DEFINE_ATTEND(attend_avx512, 16)
#endif

Attend pick_attend() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return attend_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return attend_avx2;
#endif
  return attend_baseline;
}

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
  STD_TORCH_CHECK(dim % 16 == 0, "paged_decode_attention: head_dim must be a multiple of 16");
  STD_TORCH_CHECK(context_lens.dim() == 1 && context_lens.size(0) == batch && block_table.size(0) == batch,
                  "paged_decode_attention: expected context_lens (batch,)");
  STD_TORCH_CHECK(context_lens.scalar_type() == ScalarType::Int && block_table.scalar_type() == ScalarType::Int,
                  "paged_decode_attention: block_table and context_lens must be int32");
  for (const auto* t : {&k_cache, &v_cache}) {
    STD_TORCH_CHECK(t->size(0) == blocks && t->size(1) == block_size && t->size(2) == kv_heads && t->size(3) == dim,
                    "paged_decode_attention: shapes of the caches differ");
  }
  for (const auto* t : {&out, &q, &k_cache, &v_cache, &block_table, &context_lens}) {
    const bool index = t == &block_table || t == &context_lens;
    STD_TORCH_CHECK(index || t->scalar_type() == ScalarType::Float,
                    "paged_decode_attention: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "paged_decode_attention: expected contiguous CPU tensors");
  }
  static const Attend attend = pick_attend();
  const auto* const length = static_cast<const int32_t*>(context_lens.const_data_ptr());
  const auto* const table = static_cast<const int32_t*>(block_table.const_data_ptr());
  const int64_t group = heads / kv_heads;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < kv_heads; ++h) {
      const int64_t first_row = (b * heads + h * group) * dim;
      attend({static_cast<const float*>(q.const_data_ptr()) + first_row,
              static_cast<const float*>(k_cache.const_data_ptr()) + h * dim,
              static_cast<const float*>(v_cache.const_data_ptr()) + h * dim,
              table + b * max_blocks,
              static_cast<float*>(out.mutable_data_ptr()) + first_row, group, length[b], dim, block_size, kv_heads,
              scale});
    }
  }
}
