// Rotary embedding of keys and write of keys and values into a paged cache on the CPU, float32.
//
// One sweep over the new tokens: a vector from each half of a key's head is read once and both rotated halves are
// written to the cache at once, with no temporaries; the values of the token are copied after its keys. Slots index
// (block, place) pairs in order, so a slot is a row of the cache. Partial vectors, for heads that are not a multiple of
// the vector width, go through the same code.
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

// New tokens: key, value (tokens, heads, 2 * half), cos, sin (tokens, half), slots (tokens,).
struct Tokens {
  const float *key, *value, *cos, *sin;
  const int64_t* slots;
  int64_t tokens, heads, half;
};

template <int W>
INLINE void rotate_head(float* out, const float* x, const float* cos, const float* sin, int64_t half) {
  int64_t i = 0;
  for (; i + W <= half; i += W) {
    const Lanes<W> a = load<W>(x + i), b = load<W>(x + half + i), c = load<W>(cos + i), s = load<W>(sin + i);
    store<W>(out + i, a * c - b * s);
    store<W>(out + half + i, b * c + a * s);
  }
  const int64_t rest = half - i;
  const Lanes<W> a = load_some<W>(x + i, rest), b = load_some<W>(x + half + i, rest);
  const Lanes<W> c = load_some<W>(cos + i, rest), s = load_some<W>(sin + i, rest);
  store_some<W>(out + i, a * c - b * s, rest);
  store_some<W>(out + half + i, b * c + a * s, rest);
}

template <int W>
INLINE void write_tokens(float* key_cache, float* value_cache, const Tokens& t) {
  const int64_t head_dim = 2 * t.half, row = t.heads * head_dim;
  for (int64_t token = 0; token < t.tokens; ++token) {
    const float *cos = t.cos + token * t.half, *sin = t.sin + token * t.half;
    for (int64_t head = 0; head < t.heads; ++head) {
      const int64_t j = head * head_dim;
      rotate_head<W>(key_cache + t.slots[token] * row + j, t.key + token * row + j, cos, sin, t.half);
    }
    std::memcpy(value_cache + t.slots[token] * row, t.value + token * row, static_cast<size_t>(row) * sizeof(float));
  }
}

using Run = void (*)(float*, float*, const Tokens&);
#define DEFINE_RUN(NAME, W) \
  void NAME(float* key_cache, float* value_cache, const Tokens& t) { write_tokens<W>(key_cache, value_cache, t); }

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

}  // namespace

void rope_kv_write(const torch::stable::Tensor& key_cache, const torch::stable::Tensor& value_cache,
                   const torch::stable::Tensor& key, const torch::stable::Tensor& value,
                   const torch::stable::Tensor& cos, const torch::stable::Tensor& sin,
                   const torch::stable::Tensor& slots) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(key.dim() == 3 && slots.dim() == 1, "rope_kv_write: expected keys (tokens, kv_heads, head_dim)");
  const int64_t tokens = key.size(0), heads = key.size(1), half = key.size(2) / 2;
  STD_TORCH_CHECK(key.size(2) == 2 * half, "rope_kv_write: head_dim must be even");
  STD_TORCH_CHECK(value.dim() == 3 && value.size(0) == tokens && value.size(1) == heads && value.size(2) == 2 * half,
                  "rope_kv_write: shapes of key and value differ");
  STD_TORCH_CHECK(slots.size(0) == tokens && slots.scalar_type() == ScalarType::Long,
                  "rope_kv_write: expected slots (tokens,) int64");
  for (const auto* t : {&key_cache, &value_cache}) {
    STD_TORCH_CHECK(t->dim() == 4 && t->size(2) == heads && t->size(3) == 2 * half,
                    "rope_kv_write: expected caches (blocks, block_size, kv_heads, head_dim)");
  }
  for (const auto* t : {&cos, &sin}) {
    STD_TORCH_CHECK(t->dim() == 2 && t->size(0) == tokens && t->size(1) == half,
                    "rope_kv_write: wrong shape of cos or sin");
  }
  for (const auto* t : {&key_cache, &value_cache, &key, &value, &cos, &sin}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "rope_kv_write: the CPU kernel takes float32");
  }
  for (const auto* t : {&key_cache, &value_cache, &key, &value, &cos, &sin, &slots}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "rope_kv_write: expected contiguous CPU tensors");
  }
  const auto floats = [](const torch::stable::Tensor& t) { return static_cast<const float*>(t.const_data_ptr()); };
  const Tokens t{floats(key), floats(value), floats(cos), floats(sin),
                 static_cast<const int64_t*>(slots.const_data_ptr()), tokens, heads, half};
  static const Run run = pick_run();
  run(static_cast<float*>(key_cache.mutable_data_ptr()), static_cast<float*>(value_cache.mutable_data_ptr()), t);
}
