// RMS norm of queries and keys on the CPU, float32.
//
// Two sweeps over each row while it sits in the L1 cache: a sum of squares with four independent vector
// accumulators (so the adds do not wait for each other), then scale times weight. Memory is touched once,
// where a composite of separate PyTorch ops writes and rereads whole temporaries.
// The body is written once for W lanes and compiled for AVX-512, AVX2 and the baseline; cpuid picks one.

#include <cmath>
#include <cstdint>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

#define INLINE inline __attribute__((always_inline))

namespace {

// W float lanes; the second type is the same for an address that is only 4-byte aligned.
template <int W>
using Lanes __attribute__((vector_size(W * 4))) = float;
template <int W>
struct Unaligned {
  typedef float type __attribute__((vector_size(W * 4), aligned(4), may_alias));
};

template <int W>
INLINE void normalise_rows(float* out, const float* x, const float* weight, int64_t rows, int64_t cols, double eps) {
  using Vec = typename Unaligned<W>::type;
  const float inv_cols = 1.0f / static_cast<float>(cols);
  for (int64_t row = 0; row < rows; ++row, x += cols, out += cols) {
    Lanes<W> sum0{}, sum1{}, sum2{}, sum3{};
    int64_t j = 0;
    for (; j + 4 * W <= cols; j += 4 * W) {
      const Vec* v = reinterpret_cast<const Vec*>(x + j);
      sum0 += v[0] * v[0];
      sum1 += v[1] * v[1];
      sum2 += v[2] * v[2];
      sum3 += v[3] * v[3];
    }
    sum0 = (sum0 + sum1) + (sum2 + sum3);
    float part[4] = {};  // four short chains of adds, not one long one: short rows wait for this
    for (int lane = 0; lane < W; ++lane) part[lane % 4] += sum0[lane];  // no mutate: past the end is undefined
    float total = (part[0] + part[1]) + (part[2] + part[3]);
    for (; j < cols; ++j) total += x[j] * x[j];

    const float scale = 1.0f / std::sqrt(total * inv_cols + static_cast<float>(eps));
    for (j = 0; j + W <= cols; j += W) {
      __builtin_prefetch(x + cols + j);  // the next row comes in while this one is being written
      const Vec v = *reinterpret_cast<const Vec*>(x + j);
      const Vec w = *reinterpret_cast<const Vec*>(weight + j);
      *reinterpret_cast<Vec*>(out + j) = v * scale * w;
    }
    for (; j < cols; ++j) out[j] = x[j] * scale * weight[j];
  }
}

using Rows = void (*)(float*, const float*, const float*, int64_t, int64_t, double);
#define DEFINE_ROWS(NAME, W)                                                                           \
  void NAME(float* out, const float* x, const float* weight, int64_t rows, int64_t cols, double eps) { \
    normalise_rows<W>(out, x, weight, rows, cols, eps);                                                \
  }

DEFINE_ROWS(rows_baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_ROWS(rows_avx2, 8)
__attribute__((target("avx512f"))) DEFINE_ROWS(rows_avx512, 16)
#endif

Rows pick_rows() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return rows_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return rows_avx2;
#endif
  return rows_baseline;
}

}  // namespace

void ltx_rms_norm(const torch::stable::Tensor& q_out, const torch::stable::Tensor& k_out,
                  const torch::stable::Tensor& q, const torch::stable::Tensor& k,
                  const torch::stable::Tensor& q_weight, const torch::stable::Tensor& k_weight, double eps) {
  using torch::headeronly::ScalarType;
  static const Rows run = pick_rows();
  const auto normalise = [eps](const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                               const torch::stable::Tensor& weight) {
    STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3 && weight.dim() == 1,
                    "ltx_rms_norm: expected (batch, tokens, hidden) and (hidden,)");
    const int64_t cols = x.size(2), rows = x.size(0) * x.size(1);
    STD_TORCH_CHECK(out.size(0) == x.size(0) && out.size(1) == x.size(1) && out.size(2) == cols,
                    "ltx_rms_norm: shapes of input and output differ");
    STD_TORCH_CHECK(weight.size(0) == cols, "ltx_rms_norm: wrong shape of a weight");
    for (const auto* t : {&out, &x, &weight}) {
      STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "ltx_rms_norm: the CPU kernel takes float32");
      STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "ltx_rms_norm: expected contiguous CPU tensors");
    }
    run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
        static_cast<const float*>(weight.const_data_ptr()), rows, cols, eps);
  };
  normalise(q_out, q, q_weight);
  normalise(k_out, k, k_weight);
}
