// Joint attention of text and image tokens on the CPU, float32.
//
// attention_head.h does the work; here is where rows lie. Nothing is concatenated.

#include <cstdint>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "attention_head.h"

namespace {

// The tokens of one head of one sequence: text first.
template <typename T>
struct Tokens {
  T *text, *image;

  T* at(int64_t row, int64_t text_length, int64_t stride) const {
    return row < text_length ? text + row * stride : image + (row - text_length) * stride;
  }
};

struct Head {
  Tokens<const float> q_rows, k_rows, v_rows;
  Tokens<float> out_rows;
  int64_t queries, keys, dim, text, stride;
  double scale;

  const float* q(int64_t row) const { return q_rows.at(row, text, stride); }
  const float* k(int64_t key) const { return k_rows.at(key, text, stride); }
  const float* v(int64_t key) const { return v_rows.at(key, text, stride); }
  float* out(int64_t row) const { return out_rows.at(row, text, stride); }
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

void flux_joint_attention(const torch::stable::Tensor& out_text, const torch::stable::Tensor& out_image,
                          const torch::stable::Tensor& q_text, const torch::stable::Tensor& k_text,
                          const torch::stable::Tensor& v_text, const torch::stable::Tensor& q_image,
                          const torch::stable::Tensor& k_image, const torch::stable::Tensor& v_image, double scale) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(q_text.dim() == 4 && q_image.dim() == 4,
                  "flux_joint_attention: expected (batch, tokens, heads, head_dim)");
  const int64_t batch = q_text.size(0), heads = q_text.size(2), dim = q_text.size(3);
  const int64_t text = q_text.size(1), image = q_image.size(1);
  const torch::stable::Tensor* const of_text[] = {&out_text, &q_text, &k_text, &v_text};
  const torch::stable::Tensor* const of_image[] = {&out_image, &q_image, &k_image, &v_image};
  for (int i = 0; i < 8; ++i) {  // no mutate: argument checks
    const torch::stable::Tensor* const t = i < 4 ? of_text[i] : of_image[i - 4];
    STD_TORCH_CHECK(t->dim() == 4 && t->size(0) == batch && t->size(1) == (i < 4 ? text : image) &&
                        t->size(2) == heads && t->size(3) == dim,
                    "flux_joint_attention: shapes differ");
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "flux_joint_attention: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "flux_joint_attention: expected contiguous CPU tensors");
  }
  if (dim == 0 || text + image == 0) return;
  static const Attend attend = pick_attend();
  const int64_t stride = heads * dim;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t first_text = b * text * stride + h * dim, first_image = b * image * stride + h * dim;
      const auto read = [&](const torch::stable::Tensor& a, const torch::stable::Tensor& b) {
        return Tokens<const float>{static_cast<const float*>(a.const_data_ptr()) + first_text,
                                   static_cast<const float*>(b.const_data_ptr()) + first_image};
      };
      const Tokens<float> out{static_cast<float*>(out_text.mutable_data_ptr()) + first_text,
                              static_cast<float*>(out_image.mutable_data_ptr()) + first_image};
      attend({read(q_text, q_image), read(k_text, k_image), read(v_text, v_image), out, text + image, text + image,
              dim, text, stride, scale});
    }
  }
}
