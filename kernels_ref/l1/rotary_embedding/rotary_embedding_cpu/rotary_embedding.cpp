// Rotary position embedding on the CPU, float32.
//
// One sweep: a vector from each half of a head is read once, both rotated halves are written once, with no temporaries
// (PyTorch makes four products, two sums and a concatenation). The token's cosines and sines stay in the L1 cache for
// all its heads. Partial vectors, for heads that are not a multiple of the vector width, go through the same code.
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

template <int W>
INLINE void rotate_rows(float* out, const float* x, const float* cos, const float* sin, int64_t tokens, int64_t heads,
                        int64_t half) {
  for (int64_t token = 0; token < tokens; ++token, cos += half, sin += half) {
    for (int64_t head = 0; head < heads; ++head, x += 2 * half, out += 2 * half) {
      int64_t i = 0;
      for (; i + W <= half; i += W) {
        const Lanes<W> a = load<W>(x + i), b = load<W>(x + half + i), c = load<W>(cos + i), s = load<W>(sin + i);
        store<W>(out + i, a * c - b * s);
        store<W>(out + half + i, b * c + a * s);
      }
      if (i < half) {
        const int64_t rest = half - i;
        const Lanes<W> a = load_some<W>(x + i, rest), b = load_some<W>(x + half + i, rest);
        const Lanes<W> c = load_some<W>(cos + i, rest), s = load_some<W>(sin + i, rest);
        store_some<W>(out + i, a * c - b * s, rest);
        store_some<W>(out + half + i, b * c + a * s, rest);
      }
    }
  }
}

using Rows = void (*)(float*, const float*, const float*, const float*, int64_t, int64_t, int64_t);
#define DEFINE_ROWS(NAME, W)                                                                               \
  void NAME(float* out, const float* x, const float* cos, const float* sin, int64_t tokens, int64_t heads, \
            int64_t half) {                                                                                \
    rotate_rows<W>(out, x, cos, sin, tokens, heads, half);                                                 \
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

void rotary_embedding(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                      const torch::stable::Tensor& cos, const torch::stable::Tensor& sin) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3 && cos.dim() == 2 && sin.dim() == 2,
                  "rotary_embedding: expected (tokens, heads, head_dim) and (tokens, head_dim / 2)");
  const int64_t tokens = x.size(0), heads = x.size(1), half = x.size(2) / 2;
  STD_TORCH_CHECK(x.size(2) == 2 * half, "rotary_embedding: head_dim must be even");
  STD_TORCH_CHECK(out.size(0) == tokens && out.size(1) == heads && out.size(2) == 2 * half,
                  "rotary_embedding: shapes of x and out differ");
  for (const auto* t : {&cos, &sin}) {
    STD_TORCH_CHECK(t->size(0) == tokens && t->size(1) == half, "rotary_embedding: wrong shape of cos or sin");
  }
  for (const auto* t : {&out, &x, &cos, &sin}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "rotary_embedding: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "rotary_embedding: expected contiguous CPU tensors");
  }
  static const Rows run = pick_rows();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
      static_cast<const float*>(cos.const_data_ptr()), static_cast<const float*>(sin.const_data_ptr()), tokens, heads,
      half);
}
