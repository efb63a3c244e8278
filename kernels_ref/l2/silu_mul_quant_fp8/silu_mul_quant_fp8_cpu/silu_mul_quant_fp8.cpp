// SiLU gate and row-wise FP8 quantisation on the CPU, float32 in.
//
// Two sweeps over a token: the gated values go to a row of scratch that stays in the cache, and their largest magnitude
// with them; then each vector is scaled and rounded to float8 in integer lanes. Memory is read once and written once,
// where PyTorch writes and reads back silu(gate), the product, its magnitudes and the scaled values.
// The body is written once for W lanes and compiled for AVX-512, AVX2 and the baseline; cpuid picks one.

#include <cstdint>
#include <cstring>
#include <memory>

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

template <int W>
INLINE Lanes<W> magnitude(const Lanes<W>& v) {
  return (Lanes<W>)((Ints<W>)v & 0x7fffffff);
}

// v / (1 + e^-v). With h = e^-|v| it is v / (1 + h), for negative v times h: nothing overflows.
template <int W>
INLINE Lanes<W> silu(const Lanes<W>& v) {
  const Lanes<W> h = power_of_two<W>(magnitude<W>(v) * -1.44269504f);
  return v * (v > 0.0f ? Lanes<W>{} + 1.0f : h) / (h + 1.0f);
}

// The bits of the nearest float8_e4m3fn, ties to even, in the low byte of each lane. |v| is at most 448 (and an ulp).
template <int W>
INLINE Ints<W> to_float8(const Lanes<W>& v) {
  const Lanes<W> a = magnitude<W>(v);
  const Ints<W> bits = (Ints<W>)a;
  // Normal: 3 of the 23 bits of the mantissa stay; half a step less one, plus the last bit kept, rounds to even.
  const Ints<W> normal = ((bits + 0x7ffff + ((bits >> 20) & 1)) >> 20) - (120 << 3);
  // Below 2^-6: 2^14 has steps of 2^-9 in float32, so the sum is rounded just there.
  const Ints<W> subnormal = (Ints<W>)(a + 16384.0f) - 0x46800000;
  return (a < 0.015625f ? subnormal : normal) | (((Ints<W>)v >> 24) & 0x80);
}

template <int W>
INLINE void quantise_rows(float* scale, uint8_t* q, const float* x, int64_t tokens, int64_t dim, float* row) {
  for (int64_t token = 0; token < tokens; ++token, x += 2 * dim, q += dim) {
    Lanes<W> largest{};
    // The row of scratch ends with room for a whole vector.
    for (int64_t j = 0; j < dim; j += W) {  // no mutate: a vector with nothing in it changes nothing
      const bool whole = j + W <= dim;  // no mutate: a partial load of a whole vector is the same
      const Lanes<W> gate = whole ? load<W>(x + j) : load_some<W>(x + j, dim - j);
      const Lanes<W> up = whole ? load<W>(x + dim + j) : load_some<W>(x + dim + j, dim - j);
      const Lanes<W> y = silu<W>(gate) * up;
      const Lanes<W> a = magnitude<W>(y);
      store<W>(row + j, y);
      largest = a > largest ? a : largest;
    }
    float most = largest[0];
    for (int lane = 1; lane < W; ++lane) most = largest[lane] > most ? largest[lane] : most;  // no mutate: lane 0 is in
    scale[token] = most / 448.0f;
    const float factor = most > 0.0f ? 448.0f / most : 0.0f;
    for (int64_t j = 0; j < dim; j += W) {  // no mutate: a vector with nothing in it writes nothing
      const Bytes<W> bytes = __builtin_convertvector(to_float8<W>(load<W>(row + j) * factor), Bytes<W>);
      std::memcpy(q + j, &bytes, static_cast<size_t>(dim - j < W ? dim - j : W));
    }
  }
}

using Rows = void (*)(float*, uint8_t*, const float*, int64_t, int64_t, float*);
#define DEFINE_ROWS(NAME, W)                                                                              \
  void NAME(float* scale, uint8_t* q, const float* x, int64_t tokens, int64_t dim, float* row) { \
    quantise_rows<W>(scale, q, x, tokens, dim, row);                                                      \
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

void silu_mul_quant_fp8(const torch::stable::Tensor& scale, const torch::stable::Tensor& q,
                        const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(scale.dim() == 2 && q.dim() == 2 && x.dim() == 2,
                  "silu_mul_quant_fp8: expected (tokens, 1), (tokens, dim) and (tokens, 2 * dim)");
  const int64_t tokens = q.size(0), dim = q.size(1);
  STD_TORCH_CHECK(scale.size(0) == tokens && scale.size(1) == 1 && x.size(0) == tokens && x.size(1) == 2 * dim,
                  "silu_mul_quant_fp8: shapes differ");
  STD_TORCH_CHECK(scale.scalar_type() == ScalarType::Float && q.scalar_type() == ScalarType::Float8_e4m3fn,
                  "silu_mul_quant_fp8: scale is float32 and q float8_e4m3fn");
  STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float, "silu_mul_quant_fp8: the CPU kernel takes float32");
  for (const auto* t : {&scale, &q, &x}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "silu_mul_quant_fp8: expected contiguous CPU tensors");
  }
  const auto row = std::make_unique<float[]>(static_cast<size_t>(dim + 16));  // and the widest vector
  static const Rows run = pick_rows();
  run(static_cast<float*>(scale.mutable_data_ptr()), static_cast<uint8_t*>(q.mutable_data_ptr()),
      static_cast<const float*>(x.const_data_ptr()), tokens, dim, row.get());
}
