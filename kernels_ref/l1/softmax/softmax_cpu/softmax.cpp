// Softmax on the CPU, float32.
//
// Three sweeps over each row while it sits in the L1 or L2 cache: the maximum; exponentials and their sum, written to
// `out`; and the division, as one multiplication by the reciprocal. Memory is read once and written once.
// The exponential is a branch-free polynomial on whole vectors, and max and sum use independent accumulators, so the
// adds do not wait for each other. Written once for W lanes, compiled for AVX-512, AVX2 and the baseline; cpuid picks.

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
template <int W>
INLINE void store_some(float* p, const Lanes<W>& v, int64_t count) {
  std::memcpy(p, &v, static_cast<size_t>(count) * sizeof(float));
}

// 2^v for v <= 0, clamped at -125. Adding 1.5 * 2^23 rounds v to an integer n, left in the low bits; a polynomial is
// 2^(v - n) (minimax fit of degree 5 on [-0.5, 0.5], 7.5e-8 relative), and n is added to its exponent bits.
template <int W>
INLINE Lanes<W> power_of_two(const Lanes<W>& x) {
  const Lanes<W> v = x < -125.0f ? Lanes<W>{} - 125.0f : x;
  const Lanes<W> shifted = v + 12582912.0f;
  const Lanes<W> f = v - (shifted - 12582912.0f);
  Lanes<W> p = f * 0.00132764052f + 0.0096755408f;
  p = p * f + 0.0555071348f;
  p = p * f + 0.240221197f;
  p = p * f + 0.693146967f;
  p = p * f + 1.00000007f;
  return (Lanes<W>)((Ints<W>)p + ((Ints<W>)shifted << 23));
}

// Four short chains of adds, not one long one: short rows wait for this.
template <int W>
INLINE float sum_lanes(const Lanes<W>& v) {
  float part[4] = {v[0], v[1], v[2], v[3]};
  for (int lane = 4; lane < W; ++lane) part[lane % 4] += v[lane];  // no mutate: past a vector's end is undefined, and dropped
  return (part[0] + part[1]) + (part[2] + part[3]);
}

constexpr float kLog2E = 1.44269504f;

// Asks for the 64-byte lines of `Count` floats: the next row comes in while this one is being computed.
template <int Count>
INLINE void prefetch(const float* p) {
  for (int i = 0; i < Count; i += 16) __builtin_prefetch(p + i);  // no mutate: only a hint
}

template <int W>
INLINE float largest(const float* x, int64_t cols) {
  Lanes<W> max0 = Lanes<W>{} + x[0], max1 = max0, max2 = max0, max3 = max0;
  int64_t j = 0;
  for (; j + 4 * W <= cols; j += 4 * W) {
    const Lanes<W> v0 = load<W>(x + j), v1 = load<W>(x + j + W);
    const Lanes<W> v2 = load<W>(x + j + 2 * W), v3 = load<W>(x + j + 3 * W);
    max0 = v0 > max0 ? v0 : max0;
    max1 = v1 > max1 ? v1 : max1;
    max2 = v2 > max2 ? v2 : max2;
    max3 = v3 > max3 ? v3 : max3;
  }
  max0 = max1 > max0 ? max1 : max0;
  max2 = max3 > max2 ? max3 : max2;
  max0 = max2 > max0 ? max2 : max0;
  float result = max0[0];
  for (int lane = 1; lane < W; ++lane) result = max0[lane] > result ? max0[lane] : result;  // no mutate: past a vector's end is undefined, and dropped
  for (; j < cols; ++j) result = x[j] > result ? x[j] : result;  // no mutate: it only keeps exp in range
  return result;
}

template <int W>
INLINE void softmax_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row, x += cols, out += cols) {
    const float max = largest<W>(x, cols);
    Lanes<W> sum0{}, sum1{};
    int64_t j = 0;
    for (; j + 2 * W <= cols; j += 2 * W) {
      prefetch<2 * W>(x + cols + j);
      const Lanes<W> e0 = power_of_two<W>((load<W>(x + j) - max) * kLog2E);
      const Lanes<W> e1 = power_of_two<W>((load<W>(x + j + W) - max) * kLog2E);
      store<W>(out + j, e0);
      store<W>(out + j + W, e1);
      sum0 += e0;
      sum1 += e1;
    }
    for (; j < cols; j += W) {  // at most two vectors, the last one partial: missing lanes count as 2^-125
      const int64_t rest = cols - j < W ? cols - j : W;
      const Lanes<W> e = power_of_two<W>((load_some<W>(x + j, rest, -INFINITY) - max) * kLog2E);
      store_some<W>(out + j, e, rest);
      sum0 += e;
    }
    sum0 += sum1;
    const float scale = 1.0f / sum_lanes<W>(sum0);
    for (j = 0; j + W <= cols; j += W) store<W>(out + j, load<W>(out + j) * scale);
    for (; j < cols; ++j) out[j] *= scale;
  }
}

using Rows = void (*)(float*, const float*, int64_t, int64_t);
#define DEFINE_ROWS(NAME, W) \
  void NAME(float* out, const float* x, int64_t rows, int64_t cols) { softmax_rows<W>(out, x, rows, cols); }

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

void softmax(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2, "softmax: expected (rows, cols)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(out.size(0) == rows && out.size(1) == cols, "softmax: shapes differ");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "softmax: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "softmax: expected contiguous CPU tensors");
  }
  if (cols == 0) return;
  static const Rows run = pick_rows();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()), rows, cols);
}
