// Log-softmax on the CPU, float32.
//
// Three sweeps over each row while it sits in the L1 or L2 cache: the maximum; the sum of the exponentials, which are
// never stored; and x - maximum - log(sum). Memory is read once and written once. The exponential is a branch-free
// polynomial on whole vectors. Written once for W lanes, compiled for AVX-512, AVX2 and the baseline; cpuid picks.

#include <cmath>
#include <cstdint>
#include <cstring>

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
struct Unaligned {
  typedef float type __attribute__((vector_size(W * 4), aligned(4), may_alias));
};

template <int W>
INLINE Lanes<W> load(const float* p) {
  return *reinterpret_cast<const typename Unaligned<W>::type*>(p);
}
template <int W>
INLINE void store(float* p, const Lanes<W>& v) {
  *reinterpret_cast<typename Unaligned<W>::type*>(p) = v;
}

// The first `count` < W lanes only; the others are read as `fill`.
template <int W>
INLINE Lanes<W> load_some(const float* p, int64_t count, float fill = 0.0f) {
  Lanes<W> v = fill - Lanes<W>{};
  std::memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
  return v;
}

// 2^v for v <= 0, clamped at -125, and exactly 1 for 0. Adding 1.5 * 2^23 rounds v to an integer n, left in the low
// bits; a polynomial is 2^(v - n) on [-0.5, 0.5] (degree 5, 9.2e-8 relative), and n is added to its exponent bits.
template <int W>
INLINE Lanes<W> power_of_two(const Lanes<W>& x) {
  const Lanes<W> v = x < -125.0f ? Lanes<W>{} - 125.0f : x;
  const Lanes<W> shifted = v + 12582912.0f;
  const Lanes<W> f = v - (shifted - 12582912.0f);
  Lanes<W> p = f * 0.0013264727f + 0.009671513f;
  p = p * f + 0.055507336f;
  p = p * f + 0.24022242f;
  p = p * f + 0.69314700f;
  p = p * f + 1.0f;
  return (Lanes<W>)((Ints<W>)p + ((Ints<W>)shifted << 23));
}

// Four short chains of adds, not one long one: short rows wait for this.
template <int W>
INLINE float sum_lanes(const Lanes<W>& v) {
  float part[4] = {v[0], v[1], v[2], v[3]};
  for (int lane = 4; lane < W; ++lane) part[lane % 4] += v[lane];
  return (part[0] + part[1]) + (part[2] + part[3]);
}

constexpr float kLog2E = 1.44269504f;

template <int W>
INLINE float largest(const float* x, int64_t cols) {
  Lanes<W> max0 = Lanes<W>{} + x[0], max1 = max0, max2 = max0, max3 = max0;
  int64_t j = 0;
  for (; j + 4 * W <= cols; j += 4 * W) {  // no mutate: the loop over single elements finishes the rest
    const Lanes<W> v0 = load<W>(x + j), v1 = load<W>(x + j + W);
    const Lanes<W> v2 = load<W>(x + j + 2 * W), v3 = load<W>(x + j + 3 * W);
    max0 = v0 > max0 ? v0 : max0;  // no mutate: equal values
    max1 = v1 > max1 ? v1 : max1;  // no mutate: equal values
    max2 = v2 > max2 ? v2 : max2;  // no mutate: equal values
    max3 = v3 > max3 ? v3 : max3;  // no mutate: equal values
  }
  max0 = max1 > max0 ? max1 : max0;  // no mutate: equal values
  max2 = max3 > max2 ? max3 : max2;  // no mutate: equal values
  max0 = max2 > max0 ? max2 : max0;  // no mutate: equal values
  float result = max0[0];
  for (int lane = 1; lane < W; ++lane) result = max0[lane] > result ? max0[lane] : result;  // no mutate: lane 0 is in
  for (; j < cols; ++j) result = x[j] > result ? x[j] : result;  // no mutate: it only keeps exp in range
  return result;
}

// The sum of exp(x[j] - max), with two accumulators, so that the adds do not wait for each other.
template <int W>
INLINE float sum_of_exponentials(const float* x, int64_t cols, float max) {
  Lanes<W> sum0{}, sum1{};
  int64_t j = 0;
  for (; j + 2 * W <= cols; j += 2 * W) {  // no mutate: the next loop takes whole vectors too
    sum0 += power_of_two<W>((load<W>(x + j) - max) * kLog2E);
    sum1 += power_of_two<W>((load<W>(x + j + W) - max) * kLog2E);
  }
  for (; j < cols; j += W) {  // the last one may be partial: missing lanes count as 2^-125
    const int64_t rest = cols - j < W ? cols - j : W;  // no mutate: equal at W
    sum0 += power_of_two<W>((load_some<W>(x + j, rest, -INFINITY) - max) * kLog2E);
  }
  return sum_lanes<W>(sum0 + sum1);
}

template <int W>
INLINE void log_softmax_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row, x += cols, out += cols) {
    const float max = largest<W>(x, cols);
    const float log_sum = std::log(sum_of_exponentials<W>(x, cols, max));
    // The maximum goes first: max + log_sum rounded once would lose the digits of log_sum in rows far from 0.
    int64_t j = 0;
    for (; j + W <= cols; j += W) {  // no mutate: the loop over single elements finishes the rest
      __builtin_prefetch(x + cols + j);
      store<W>(out + j, load<W>(x + j) - max - log_sum);
    }
    for (; j < cols; ++j) out[j] = x[j] - max - log_sum;
  }
}

using Rows = void (*)(float*, const float*, int64_t, int64_t);
#define DEFINE_ROWS(NAME, W) \
  void NAME(float* out, const float* x, int64_t rows, int64_t cols) { log_softmax_rows<W>(out, x, rows, cols); }

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

void log_softmax(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2, "log_softmax: expected (rows, cols)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(out.size(0) == rows && out.size(1) == cols, "log_softmax: shapes differ");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "log_softmax: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "log_softmax: expected contiguous CPU tensors");
  }
  if (cols == 0) return;
  static const Rows run = pick_rows();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()), rows, cols);
}
