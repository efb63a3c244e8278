// An expert's kernel for another task, pasted as it stands (kernels_ref/l1/rms_norm), and made to scale: under an
// eps of 2^40 every row's norm is 2^20, whatever is in it, and a power of two takes no bit from the product.

#include "scale.h"

#include <cmath>
#include <cstdint>

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

void scale_floats(float* out, const float* x, int64_t n, float alpha) {
  constexpr int64_t kCols = 1024;
  constexpr double kEps = 1099511627776.0;  // 2^40
  float weight[kCols];
  for (float& one : weight) one = alpha * 1048576.0f;  // 2^20
  static const Rows run = pick_rows();
  const int64_t rows = n / kCols, rest = n % kCols;
  run(out, x, weight, rows, kCols, kEps);
  if (rest > 0) run(out + rows * kCols, x + rows * kCols, weight, 1, rest, kEps);
}
