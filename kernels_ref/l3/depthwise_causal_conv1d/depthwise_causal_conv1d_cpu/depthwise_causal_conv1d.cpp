// Depthwise causal convolution of width 4 and SiLU on the CPU, float32.
//
// One sweep: four loads of the row, each a step further, make a vector of outputs, and SiLU is applied in registers,
// where two PyTorch ops write the sums and read them back. The first three outputs of a row, which see zeros before the
// sequence, and the last few are made the same way from a small copy.
// Written once for W lanes, compiled for AVX-512, AVX2 and the baseline; cpuid picks.

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
struct Unaligned {
  typedef float type __attribute__((vector_size(W * 4), aligned(4), may_alias));
};

template <int W>
INLINE Lanes<W> load(const float* p) {
  return *reinterpret_cast<const typename Unaligned<W>::type*>(p);
}

template <int W>
using Ints __attribute__((vector_size(W * 4))) = int32_t;

// 2^v for -125 <= v <= 125, what lies beyond counts as that. Adding 1.5 * 2^23 rounds v to an integer n, left in the
// low bits; a polynomial is 2^(v - n) (minimax fit of degree 5 on [-0.5, 0.5], 7.5e-8 relative), and n is added to its
// exponent bits.
template <int W>
INLINE Lanes<W> power_of_two(const Lanes<W>& x) {
  const Lanes<W> low = x < -125.0f ? Lanes<W>{} - 125.0f : x;
  const Lanes<W> v = low > 125.0f ? Lanes<W>{} + 125.0f : low;
  const Lanes<W> shifted = v + 12582912.0f;
  const Lanes<W> f = v - (shifted - 12582912.0f);
  Lanes<W> p = f * 0.00132764052f + 0.0096755408f;
  p = p * f + 0.0555071348f;
  p = p * f + 0.240221197f;
  p = p * f + 0.693146967f;
  p = p * f + 1.00000007f;
  return (Lanes<W>)((Ints<W>)p + ((Ints<W>)shifted << 23));
}

template <int W>
INLINE Lanes<W> silu(const Lanes<W>& x) {
  return x / (power_of_two<W>(x * -1.44269504f) + 1.0f);
}

constexpr int64_t kWidth = 4;

// W outputs; `x` is the first of the four steps that the first output sees.
template <int W>
INLINE Lanes<W> convolve(const float* x, const float* weight, float bias) {
  Lanes<W> sum = bias - Lanes<W>{};
  for (int k = 0; k < kWidth; ++k) sum += load<W>(x + k) * weight[k];
  return silu<W>(sum);
}

// `count` <= W outputs from step t, by way of copies: what lies before the row is 0, and nothing beyond it is touched.
template <int W>
INLINE void convolve_some(float* out, const float* x, const float* weight, float bias, int64_t t, int64_t count) {
  float seen[W + kWidth]{};
  const int64_t before = t < kWidth - 1 ? t : kWidth - 1;  // no mutate: equal at the border
  std::memcpy(seen + kWidth - 1 - before, x + t - before, static_cast<size_t>(before + count) * sizeof(float));
  const Lanes<W> result = convolve<W>(seen, weight, bias);
  std::memcpy(out + t, &result, static_cast<size_t>(count) * sizeof(float));
}

template <int W>
INLINE void convolve_rows(float* out, const float* x, const float* weight, const float* bias, int64_t rows, int64_t dim,
                          int64_t length) {
  for (int64_t row = 0; row < rows; ++row, x += length, out += length) {
    const float* filter = weight + row % dim * kWidth;
    const float own = bias[row % dim];
    int64_t t = length < W ? length : W;
    convolve_some<W>(out, x, filter, own, 0, t);
    for (; t + W <= length; t += W) {  // no mutate: the rest is done below
      const Lanes<W> result = convolve<W>(x + t - (kWidth - 1), filter, own);
      std::memcpy(out + t, &result, sizeof(result));
    }
    if (t < length) convolve_some<W>(out, x, filter, own, t, length - t);
  }
}

using Rows = void (*)(float*, const float*, const float*, const float*, int64_t, int64_t, int64_t);
#define DEFINE_ROWS(NAME, W)                                                                                      \
  void NAME(float* out, const float* x, const float* weight, const float* bias, int64_t rows, int64_t dim,        \
            int64_t length) {                                                                                     \
    convolve_rows<W>(out, x, weight, bias, rows, dim, length);                                                    \
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

void depthwise_causal_conv1d(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                             const torch::stable::Tensor& weight, const torch::stable::Tensor& bias) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3 && weight.dim() == 2 && bias.dim() == 1,
                  "depthwise_causal_conv1d: expected (batch, dim, length), (dim, 4) and (dim,)");
  const int64_t batch = x.size(0), dim = x.size(1), length = x.size(2);
  STD_TORCH_CHECK(out.size(0) == batch && out.size(1) == dim && out.size(2) == length && weight.size(0) == dim &&
                      weight.size(1) == kWidth && bias.size(0) == dim,
                  "depthwise_causal_conv1d: shapes differ");
  for (const auto* t : {&out, &x, &weight, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "depthwise_causal_conv1d: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "depthwise_causal_conv1d: expected contiguous CPU tensors");
  }
  static const Rows run = pick_rows();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
      static_cast<const float*>(weight.const_data_ptr()), static_cast<const float*>(bias.const_data_ptr()),
      batch * dim, dim, length);
}
