// Cross-entropy and log-sum-exp of every token on the CPU, float32.
//
// Two sweeps over each row of logits while it sits in the L2 cache: the maximum, and the sum of the exponentials, of
// which none is stored. The exponential is a branch-free polynomial on whole vectors. Written once for W lanes,
// compiled for AVX-512, AVX2 and the baseline; cpuid picks.

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
INLINE void loss_rows(float* loss, float* lse, const float* logits, const int64_t* target, int64_t tokens,
                      int64_t vocab, int64_t ignore_index) {
  for (int64_t row = 0; row < tokens; ++row, logits += vocab) {
    const float max = largest<W>(logits, vocab);
    const float log_sum = std::log(sum_of_exponentials<W>(logits, vocab, max));
    lse[row] = max + log_sum;
    // Not lse - logit: rows far from 0 would lose the digits of log_sum.
    loss[row] = target[row] == ignore_index ? 0.0f : log_sum + (max - logits[target[row]]);
  }
}

using Rows = void (*)(float*, float*, const float*, const int64_t*, int64_t, int64_t, int64_t);
#define DEFINE_ROWS(NAME, W)                                                                                    \
  void NAME(float* loss, float* lse, const float* logits, const int64_t* target, int64_t tokens, int64_t vocab, \
            int64_t ignore_index) {                                                                             \
    loss_rows<W>(loss, lse, logits, target, tokens, vocab, ignore_index);                              \
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

void cross_entropy(const torch::stable::Tensor& loss, const torch::stable::Tensor& lse,
                   const torch::stable::Tensor& logits, const torch::stable::Tensor& target, int64_t ignore_index) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(logits.dim() == 2 && loss.dim() == 1 && lse.dim() == 1 && target.dim() == 1,
                  "cross_entropy: expected logits (tokens, vocab), all others (tokens,)");
  const int64_t tokens = logits.size(0), vocab = logits.size(1);
  STD_TORCH_CHECK(loss.size(0) == tokens && lse.size(0) == tokens && target.size(0) == tokens,
                  "cross_entropy: shapes differ");
  STD_TORCH_CHECK(loss.scalar_type() == ScalarType::Float && lse.scalar_type() == ScalarType::Float &&
                      target.scalar_type() == ScalarType::Long,
                  "cross_entropy: expected float32 loss and lse, int64 target");
  STD_TORCH_CHECK(logits.scalar_type() == ScalarType::Float, "cross_entropy: the CPU kernel takes float32");
  for (const auto* t : {&loss, &lse, &logits, &target})
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "cross_entropy: expected contiguous CPU tensors");
  if (vocab == 0) return;
  static const Rows run = pick_rows();
  run(static_cast<float*>(loss.mutable_data_ptr()), static_cast<float*>(lse.mutable_data_ptr()),
      static_cast<const float*>(logits.const_data_ptr()), static_cast<const int64_t*>(target.const_data_ptr()), tokens,
      vocab, ignore_index);
}
