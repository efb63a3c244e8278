// The feed-forward block of a Llama layer on the CPU, float32.
//
// Three products (panels.h) and one pass between them, which gates in place: silu(g) * u is g * u / (1 + e^(-g)), one
// exponential and one division for a vector.
// Compiled for AVX-512 (12 x 2 vectors of sums in 24 of 32 registers), AVX2 (6 x 2 in 12 of 16) and the baseline; cpuid
// picks one.

#include <cstdint>
#include <cstring>
#include <vector>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "panels.h"

namespace {

using panels::Lanes;
template <int W>
using Ints __attribute__((vector_size(W * 4))) = int32_t;

// 2^v, clamped to 2^-125 and 2^125. Adding 1.5 * 2^23 rounds v to an integer n, left in the low bits; a polynomial is
// 2^(v - n) (minimax fit of degree 5 on [-0.5, 0.5], 7.5e-8 relative), and n is added to its exponent bits.
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

// gate = silu(gate) * up; what is left of `count` elements after whole vectors takes a copy.
template <int W>
INLINE void apply_gate(float* gate, const float* up, int64_t count) {
  const auto gated = [](const Lanes<W>& g, const Lanes<W>& u) __attribute__((always_inline)) {
    return g / (1.0f + power_of_two<W>(g * -1.44269504f)) * u;  // 1 / ln 2
  };
  int64_t i = 0;
  for (; i + W <= count; i += W) {  // no mutate: the copy does what is left
    panels::store<W>(gate + i, gated(panels::load<W>(gate + i), panels::load<W>(up + i)));
  }
  Lanes<W> g{}, u{};
  const auto bytes = static_cast<size_t>(count - i) * sizeof(float);
  std::memcpy(&g, gate + i, bytes);
  std::memcpy(&u, up + i, bytes);
  g = gated(g, u);
  std::memcpy(gate + i, &g, bytes);
}

struct Sizes {
  int64_t tokens, hidden, inner;
};

template <int W, int ROWS>
INLINE void feed_forward(float* out, const float* x, const float* w_gate, const float* w_up, const float* w_down,
                         const Sizes& s) {
  std::vector<float> gate(static_cast<size_t>(s.tokens * s.inner)), up(gate.size());
  panels::product<W, ROWS>(gate.data(), x, w_gate, s.tokens, s.inner, s.hidden);
  panels::product<W, ROWS>(up.data(), x, w_up, s.tokens, s.inner, s.hidden);
  apply_gate<W>(gate.data(), up.data(), s.tokens * s.inner);
  panels::product<W, ROWS>(out, gate.data(), w_down, s.tokens, s.hidden, s.inner);
}

using Block = void (*)(float*, const float*, const float*, const float*, const float*, const Sizes&);
#define DEFINE_BLOCK(NAME, W, ROWS)                                                                              \
  void NAME(float* out, const float* x, const float* w_gate, const float* w_up, const float* w_down,             \
            const Sizes& sizes) {                                                                                \
    feed_forward<W, ROWS>(out, x, w_gate, w_up, w_down, sizes);                                                  \
  }

DEFINE_BLOCK(block_baseline, 4, 6)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_BLOCK(block_avx2, 8, 6)
__attribute__((target("avx512f"))) DEFINE_BLOCK(block_avx512, 16, 12)
#endif

Block pick_block() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return block_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return block_avx2;
#endif
  return block_baseline;
}

}  // namespace

void mlp_swiglu(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& w_gate,
                const torch::stable::Tensor& w_up, const torch::stable::Tensor& w_down) {
  using torch::headeronly::ScalarType;
  for (const auto* t : {&out, &x, &w_gate, &w_up, &w_down}) {
    STD_TORCH_CHECK(t->dim() == 2, "mlp_swiglu: expected matrices");
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "mlp_swiglu: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "mlp_swiglu: expected contiguous CPU tensors");
  }
  const int64_t tokens = x.size(0), hidden = x.size(1), inner = w_gate.size(0);
  STD_TORCH_CHECK(out.size(0) == tokens && out.size(1) == hidden && w_gate.size(1) == hidden &&
                      w_up.size(0) == inner && w_up.size(1) == hidden && w_down.size(0) == hidden &&
                      w_down.size(1) == inner,
                  "mlp_swiglu: shapes differ");
  if (tokens == 0 || hidden == 0 || inner == 0) return;
  static const Block run = pick_block();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
      static_cast<const float*>(w_gate.const_data_ptr()), static_cast<const float*>(w_up.const_data_ptr()),
      static_cast<const float*>(w_down.const_data_ptr()), {tokens, hidden, inner});
}
