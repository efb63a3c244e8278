// Decoding attention to a contiguous cache on the CPU, float32.
//
// decode_head.h does the work; here is where keys lie. The query heads of a group share their keys.

#include <cstdint>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "decode_head.h"

namespace {

struct Head {
  const float *q_rows, *k_rows, *v_rows;
  float* out_rows;
  int64_t rows, keys, dim;
  double scale;

  const float* q(int64_t row) const { return q_rows + row * dim; }
  const float* k(int64_t key) const { return k_rows + key * dim; }
  const float* v(int64_t key) const { return v_rows + key * dim; }
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
  STD_TORCH_CHECK(dim % 16 == 0, "gqa_decode_attention: head_dim must be a multiple of 16");
  STD_TORCH_CHECK(lengths.scalar_type() == ScalarType::Int && lengths.dim() == 1 && lengths.size(0) == batch,
                  "gqa_decode_attention: expected lengths (batch,) int32");
  for (const auto* t : {&k_cache, &v_cache}) {
    STD_TORCH_CHECK(t->size(0) == batch && t->size(1) == kv_heads && t->size(2) == max_length && t->size(3) == dim,
                    "gqa_decode_attention: shapes of the caches differ");
  }
  for (const auto* t : {&out, &q, &k_cache, &v_cache, &lengths}) {
    STD_TORCH_CHECK(t == &lengths || t->scalar_type() == ScalarType::Float,
                    "gqa_decode_attention: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "gqa_decode_attention: expected contiguous CPU tensors");
  }
  static const Attend attend = pick_attend();
  const auto* const length = static_cast<const int32_t*>(lengths.const_data_ptr());
  const int64_t group = heads / kv_heads;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < kv_heads; ++h) {
      const int64_t first_row = (b * heads + h * group) * dim, first_key = (b * kv_heads + h) * max_length * dim;
      attend({static_cast<const float*>(q.const_data_ptr()) + first_row,
              static_cast<const float*>(k_cache.const_data_ptr()) + first_key,
              static_cast<const float*>(v_cache.const_data_ptr()) + first_key,
              static_cast<float*>(out.mutable_data_ptr()) + first_row, group, length[b], dim, scale});
    }
  }
}
