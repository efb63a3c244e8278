// RMS norm on the CPU, float32.
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
    for (int lane = 0; lane < W; ++lane) part[lane % 4] += sum0[lane];  // no mutate: past a vector's end is undefined, and dropped
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

void rms_norm(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& weight,
              double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2 && weight.dim() == 1, "rms_norm: expected (rows, cols) and (cols,)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(out.size(0) == rows && out.size(1) == cols && weight.size(0) == cols, "rms_norm: shapes differ");
  for (const auto* t : {&out, &x, &weight}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "rms_norm: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "rms_norm: expected contiguous CPU tensors");
  }
  static const Rows run = pick_rows();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
      static_cast<const float*>(weight.const_data_ptr()), rows, cols, eps);
}
