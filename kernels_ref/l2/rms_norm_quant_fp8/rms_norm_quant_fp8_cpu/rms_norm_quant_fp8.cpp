// RMS norm and dynamic fp8 (e4m3) quantisation of rows on the CPU, float32.
//
// Two sweeps over each row while it sits in the L1 cache. The first takes the sum of squares and the largest
// |x * weight| together: the norm multiplies a whole row, so it need not be known yet. The second multiplies, rounds
// and narrows, W elements at a time, without a branch. The normalised row is never stored.
// The body is written once for W lanes and compiled for AVX-512, AVX2 and the baseline; cpuid picks one.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

#define INLINE inline __attribute__((always_inline))
#pragma GCC diagnostic ignored "-Wpsabi"  // wide vectors never cross a call: every helper is inlined

namespace {

// W float lanes; Unaligned is the same for an address that is only 4-byte aligned.
template <int W>
using Lanes __attribute__((vector_size(W * 4))) = float;
template <int W>
using Ints __attribute__((vector_size(W * 4))) = int32_t;
template <int W>
using Bytes __attribute__((vector_size(W))) = uint8_t;
template <int W>
struct Unaligned {
  typedef float type __attribute__((vector_size(W * 4), aligned(4), may_alias));
  typedef uint8_t bytes __attribute__((vector_size(W), aligned(1), may_alias));
};

template <int W>
INLINE Lanes<W> load(const float* p) {
  return *reinterpret_cast<const typename Unaligned<W>::type*>(p);
}
// The first `count` < W lanes only; the others are read as 0.
template <int W>
INLINE Lanes<W> load_some(const float* p, int64_t count) {
  Lanes<W> v{};
  std::memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
  return v;
}

template <int W>
INLINE Lanes<W> larger(const Lanes<W>& a, const Lanes<W>& v) {
  const Lanes<W> b = (Lanes<W>)((Ints<W>)v & 0x7fffffff);
  return a > b ? a : b;
}

// Of one row: the sum of x^2 and the largest |x * weight|.
struct RowFacts {
  float squares, max;
};
template <int W>
INLINE RowFacts look_at(const float* x, const float* weight, int64_t cols) {
  Lanes<W> sum0{}, sum1{}, max0{}, max1{};
  int64_t j = 0;
  for (; j + 2 * W <= cols; j += 2 * W) {
    const Lanes<W> v0 = load<W>(x + j), v1 = load<W>(x + j + W);
    sum0 += v0 * v0;
    sum1 += v1 * v1;
    max0 = larger<W>(max0, v0 * load<W>(weight + j));
    max1 = larger<W>(max1, v1 * load<W>(weight + j + W));
  }
  for (; j + W <= cols; j += W) {
    const Lanes<W> v = load<W>(x + j);
    sum0 += v * v;
    max0 = larger<W>(max0, v * load<W>(weight + j));
  }
  const Lanes<W> v = load_some<W>(x + j, cols - j);
  sum0 += sum1 + v * v;
  max0 = larger<W>(larger<W>(max0, max1), v * load_some<W>(weight + j, cols - j));
  float sums[W], maxima[W];
  std::memcpy(sums, &sum0, sizeof(sums));
  std::memcpy(maxima, &max0, sizeof(maxima));
  return {std::accumulate(sums, sums + W, 0.0f), *std::max_element(maxima, maxima + W)};
}

// The e4m3 numbers nearest to v * factor, which is at most 448 but for rounding errors, so nothing overflows. Half of
// the last bit that stays is added to the bits (less one where the number below is even), and what is too much is
// shifted out; exponents are rebiased. Below 2^-6 adding 2^14 rounds to multiples of 2^-9, left in the low bits.
template <int W>
INLINE Bytes<W> round_to_bytes(const Lanes<W>& v, float factor) {
  const Ints<W> bits = (Ints<W>)(v * factor), size = bits & 0x7fffffff;
  const Ints<W> normal = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120 << 3);
  const Ints<W> subnormal = (Ints<W>)((Lanes<W>)size + 16384.0f) - 0x46800000;  // the bits of 16384.0f
  const Ints<W> code = (Lanes<W>)size < 0.015625f ? subnormal : normal;
  return __builtin_convertvector(code | (bits >> 24 & 0x80), Bytes<W>);
}

template <int W>
INLINE void quantise_rows(uint8_t* q, float* scale, const float* x, const float* weight, int64_t rows, int64_t cols,
                          float eps) {
  for (int64_t row = 0; row < rows; ++row, x += cols, q += cols) {
    const RowFacts facts = look_at<W>(x, weight, cols);
    const float inv_rms = 1.0f / std::sqrt(facts.squares / static_cast<float>(cols) + eps);
    const float max = std::max(facts.max * inv_rms, 1e-12f);
    const float factor = inv_rms * (448.0f / max);
    scale[row] = max / 448.0f;
    int64_t j = 0;
    for (; j + W <= cols; j += W) {
      __builtin_prefetch(x + cols + j);  // the next row comes in while this one is being written
      const Lanes<W> v = load<W>(x + j) * load<W>(weight + j);
      *reinterpret_cast<typename Unaligned<W>::bytes*>(q + j) = round_to_bytes<W>(v, factor);
    }
    const int64_t rest = cols - j;
    const Bytes<W> last = round_to_bytes<W>(load_some<W>(x + j, rest) * load_some<W>(weight + j, rest), factor);
    std::memcpy(q + j, &last, static_cast<size_t>(rest));
  }
}

using Rows = void (*)(uint8_t*, float*, const float*, const float*, int64_t, int64_t, float);
#define DEFINE_ROWS(NAME, W)                                                                                        \
  void NAME(uint8_t* q, float* scale, const float* x, const float* weight, int64_t rows, int64_t cols, float eps) { \
    quantise_rows<W>(q, scale, x, weight, rows, cols, eps);                                                         \
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

void rms_norm_quant_fp8(const torch::stable::Tensor& q, const torch::stable::Tensor& scale,
                        const torch::stable::Tensor& x, const torch::stable::Tensor& weight, double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && q.dim() == 2 && scale.dim() == 1 && weight.dim() == 1,
                  "rms_norm_quant_fp8: expected (rows, cols), (rows,) and (cols,)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(q.size(0) == rows && q.size(1) == cols && scale.size(0) == rows && weight.size(0) == cols,
                  "rms_norm_quant_fp8: shapes differ");
  STD_TORCH_CHECK(q.scalar_type() == ScalarType::Float8_e4m3fn, "rms_norm_quant_fp8: q is float8_e4m3fn");
  for (const auto* t : {&scale, &x, &weight}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "rms_norm_quant_fp8: the CPU kernel takes float32");
  }
  for (const auto* t : {&q, &scale, &x, &weight}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "rms_norm_quant_fp8: expected contiguous CPU tensors");
  }
  if (cols == 0) return;
  static const Rows run = pick_rows();
  run(static_cast<uint8_t*>(q.mutable_data_ptr()), static_cast<float*>(scale.mutable_data_ptr()),
      static_cast<const float*>(x.const_data_ptr()), static_cast<const float*>(weight.const_data_ptr()), rows, cols,
      static_cast<float>(eps));
}
