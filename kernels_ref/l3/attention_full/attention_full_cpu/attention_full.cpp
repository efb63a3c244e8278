// Attention without a mask on the CPU, float32.
//
// attention_head.h does the work; here is where rows lie.

#include <cstdint>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "attention_head.h"

namespace {

struct Head {
  const float *q_rows, *k_rows, *v_rows;
  float* out_rows;
  int64_t queries, keys, dim;
  double scale;

  const float* q(int64_t row) const { return q_rows + row * dim; }
  const float* k(int64_t key) const { return k_rows + key * dim; }
  const float* v(int64_t key) const { return v_rows + key * dim; }
  float* out(int64_t row) const { return out_rows + row * dim; }
  int64_t begin(int64_t) const { return 0; }
  int64_t end(int64_t) const { return keys; }
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

void attention_full(const torch::stable::Tensor& out, const torch::stable::Tensor& q, const torch::stable::Tensor& k,
                      const torch::stable::Tensor& v, double scale) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(q.dim() == 4 && k.dim() == 4, "attention_full: expected (batch, heads, length, head_dim)");
  const int64_t heads = q.size(0) * q.size(1), queries = q.size(2), keys = k.size(2), dim = q.size(3);
  for (const auto* t : {&out, &q, &k, &v}) {
    STD_TORCH_CHECK(t->dim() == 4 && t->size(0) == q.size(0) && t->size(1) == q.size(1) && t->size(3) == dim &&
                        t->size(2) == (t == &out || t == &q ? queries : keys),
                    "attention_full: shapes differ");
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "attention_full: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "attention_full: expected contiguous CPU tensors");
  }
  STD_TORCH_CHECK(keys >= 1, "attention_full: there must be a key");
  if (dim == 0) return;
  static const Attend attend = pick_attend();
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t first_row = head * queries * dim, first_key = head * keys * dim;
    attend({static_cast<const float*>(q.const_data_ptr()) + first_row,
            static_cast<const float*>(k.const_data_ptr()) + first_key,
            static_cast<const float*>(v.const_data_ptr()) + first_key,
            static_cast<float*>(out.mutable_data_ptr()) + first_row, queries, keys, dim, scale});
  }
}
