// Bias and tanh-GELU gate on the CPU, float32.
//
// One sweep: both halves of a row are read once and the product is written once, where PyTorch writes the biased tensor
// and gelu(gate) and reads them back. The hyperbolic tangent is never formed: (1 + tanh u) / 2 is 1 / (1 + e^(-2u)),
// one exponential and one division without branches, which keeps its relative accuracy where 1 + tanh would cancel.
// The body is written once for W lanes and compiled for AVX-512, AVX2 and the baseline; cpuid picks one.

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

// The first `count` < W lanes only; the others are read as 0.
template <int W>
INLINE Lanes<W> load_some(const float* p, int64_t count) {
  Lanes<W> v{};
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

// Tanh-GELU. With u = sqrt(2 / pi) (x + 0.044715 x^3) and h = e^(-2 |u|) it is x / (1 + h), for negative x times h.
template <int W>
INLINE Lanes<W> gelu(const Lanes<W>& x) {
  const Lanes<W> a = (Lanes<W>)((Ints<W>)x & 0x7fffffff);
  // 2.302208198 = 2 sqrt(2 / pi) / ln 2
  const Lanes<W> h = power_of_two<W>(a * -2.302208198f * (a * a * 0.044715f + 1.0f));
  return x * (x > 0.0f ? Lanes<W>{} + 1.0f : h) / (h + 1.0f);
}

template <int W>
INLINE Lanes<W> gated(const Lanes<W>& value, const Lanes<W>& bias, const Lanes<W>& gate, const Lanes<W>& gate_bias) {
  return (value + bias) * gelu<W>(gate + gate_bias);
}

template <int W>
INLINE void gate_rows(float* out, const float* x, const float* bias, int64_t tokens, int64_t inner) {
  for (int64_t token = 0; token < tokens; ++token, x += 2 * inner, out += inner) {
    const float* gate = x + inner;
    const float* gate_bias = bias + inner;
    int64_t j = 0;
    for (; j + W <= inner; j += W) {
      store<W>(out + j,
               gated<W>(load<W>(x + j), load<W>(bias + j), load<W>(gate + j), load<W>(gate_bias + j)));
    }
    if (j < inner) {
      const int64_t rest = inner - j;
      const Lanes<W> value = load_some<W>(x + j, rest), added = load_some<W>(bias + j, rest);
      store_some<W>(
          out + j, gated<W>(value, added, load_some<W>(gate + j, rest), load_some<W>(gate_bias + j, rest)), rest);
    }
  }
}

using Rows = void (*)(float*, const float*, const float*, int64_t, int64_t);
#define DEFINE_ROWS(NAME, W)                                                                 \
  void NAME(float* out, const float* x, const float* bias, int64_t tokens, int64_t inner) { \
    gate_rows<W>(out, x, bias, tokens, inner);                                               \
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

void ltx_geglu(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& bias) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2 && bias.dim() == 1,
                  "ltx_geglu: expected (tokens, inner), (tokens, 2 * inner) and (2 * inner,)");
  const int64_t tokens = out.size(0), inner = out.size(1);
  STD_TORCH_CHECK(x.size(0) == tokens && x.size(1) == 2 * inner && bias.size(0) == 2 * inner,
                  "ltx_geglu: shapes differ");
  for (const auto* t : {&out, &x, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "ltx_geglu: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "ltx_geglu: expected contiguous CPU tensors");
  }
  static const Rows run = pick_rows();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
      static_cast<const float*>(bias.const_data_ptr()), tokens, inner);
}
