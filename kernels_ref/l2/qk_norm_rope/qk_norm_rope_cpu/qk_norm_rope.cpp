// Per-head RMS norm and rotary embedding on the CPU, float32, in place.
//
// A head is at most a few hundred floats, so after the sweep for its sum of squares the rest comes from the L1 cache:
// a vector from each half is scaled, weighted, rotated and written back, with no temporaries (PyTorch makes the
// normalised tensor, four products, two sums and two concatenations). Value heads are not touched.
// Partial vectors, for heads that are not a multiple of the vector width, go through the same code.
// The body is written once for W lanes and compiled for AVX-512, AVX2 and the baseline; cpuid picks one.

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

// Four short chains of adds, not one long one: short rows wait for this.
template <int W>
INLINE float sum_lanes(const Lanes<W>& v) {
  float part[4] = {v[0], v[1], v[2], v[3]};
  for (int lane = 4; lane < W; ++lane) part[lane % 4] += v[lane];  // no mutate: past the end is undefined
  return (part[0] + part[1]) + (part[2] + part[3]);
}

template <int W>
INLINE float sum_of_squares(const float* x, int64_t count) {
  Lanes<W> sum0{}, sum1{};
  int64_t j = 0;
  for (; j + 2 * W <= count; j += 2 * W) {  // no mutate: count is even, so count + 1 is no multiple of W
    const Lanes<W> v0 = load<W>(x + j), v1 = load<W>(x + j + W);
    sum0 += v0 * v0;
    sum1 += v1 * v1;
  }
  // At most two vectors, the last one partial.
  for (; j < count; j += W) {  // no mutate: a vector with nothing in it adds nothing
    const Lanes<W> v = load_some<W>(x + j, count - j < W ? count - j : W);
    sum0 += v * v;
  }
  return sum_lanes<W>(sum0 + sum1);
}

// One head: x and weight are 2 * half long, cos and sin half.
template <int W>
INLINE void one_head(float* x, const float* weight, const float* cos, const float* sin, int64_t half, float eps) {
  const float mean_square = sum_of_squares<W>(x, 2 * half) / static_cast<float>(2 * half);
  const float scale = 1.0f / std::sqrt(mean_square + eps);
  int64_t i = 0;
  for (; i + W <= half; i += W) {
    const Lanes<W> a = load<W>(x + i) * scale * load<W>(weight + i);
    const Lanes<W> b = load<W>(x + half + i) * scale * load<W>(weight + half + i);
    const Lanes<W> c = load<W>(cos + i), s = load<W>(sin + i);
    store<W>(x + i, a * c - b * s);
    store<W>(x + half + i, b * c + a * s);
  }
  if (i < half) {
    const int64_t rest = half - i;
    const Lanes<W> a = load_some<W>(x + i, rest) * scale * load_some<W>(weight + i, rest);
    const Lanes<W> b = load_some<W>(x + half + i, rest) * scale * load_some<W>(weight + half + i, rest);
    const Lanes<W> c = load_some<W>(cos + i, rest), s = load_some<W>(sin + i, rest);
    store_some<W>(x + i, a * c - b * s, rest);
    store_some<W>(x + half + i, b * c + a * s, rest);
  }
}

struct Pointers {
  float* qkv;
  const float* q_weight;
  const float* k_weight;
  const float* cos;
  const float* sin;
};

template <int W>
INLINE void all_heads(Pointers p, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t half, float eps) {
  for (int64_t token = 0; token < tokens; ++token, p.cos += half, p.sin += half) {
    for (int64_t head = 0; head < heads + kv_heads; ++head, p.qkv += 2 * half) {
      one_head<W>(p.qkv, head < heads ? p.q_weight : p.k_weight, p.cos, p.sin, half, eps);
    }
    p.qkv += kv_heads * 2 * half;  // the value heads
  }
}

using Run = void (*)(const Pointers&, int64_t, int64_t, int64_t, int64_t, float);
#define DEFINE_RUN(NAME, W)                                                                                        \
  void NAME(const Pointers& p, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t half, float eps) { \
    all_heads<W>(p, tokens, heads, kv_heads, half, eps);                                                           \
  }

DEFINE_RUN(run_baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_RUN(run_avx2, 8)
__attribute__((target("avx512f"))) DEFINE_RUN(run_avx512, 16)
#endif

Run pick_run() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return run_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return run_avx2;
#endif
  return run_baseline;
}

const float* readable(const torch::stable::Tensor& t) { return static_cast<const float*>(t.const_data_ptr()); }

}  // namespace

void qk_norm_rope(const torch::stable::Tensor& qkv, const torch::stable::Tensor& q_weight,
                  const torch::stable::Tensor& k_weight, const torch::stable::Tensor& cos,
                  const torch::stable::Tensor& sin, double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(qkv.dim() == 4 && qkv.size(1) > 2, "qk_norm_rope: expected (tokens, groups + 2, kv_heads, head_dim)");
  const int64_t tokens = qkv.size(0), kv_heads = qkv.size(2), heads = (qkv.size(1) - 2) * kv_heads;
  const int64_t half = qkv.size(3) / 2;
  STD_TORCH_CHECK(qkv.size(3) == 2 * half, "qk_norm_rope: head_dim must be even");
  for (const auto* t : {&q_weight, &k_weight}) {
    STD_TORCH_CHECK(t->dim() == 1 && t->size(0) == 2 * half, "qk_norm_rope: expected weights of (head_dim,)");
  }
  for (const auto* t : {&cos, &sin}) {
    STD_TORCH_CHECK(t->dim() == 2 && t->size(0) == tokens && t->size(1) == half,
                    "qk_norm_rope: expected cos and sin of (tokens, head_dim / 2)");
  }
  for (const auto* t : {&qkv, &q_weight, &k_weight, &cos, &sin}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "qk_norm_rope: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "qk_norm_rope: expected contiguous CPU tensors");
  }
  static const Run run = pick_run();
  run({static_cast<float*>(qkv.mutable_data_ptr()), readable(q_weight), readable(k_weight), readable(cos),
       readable(sin)},
      tokens, heads, kv_heads, half, static_cast<float>(eps));
}
