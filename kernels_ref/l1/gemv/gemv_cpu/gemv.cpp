// Matrix times a few vectors on the CPU, float32.
//
// The matrix is read once, whatever the batch: four rows at a time are multiplied with up to four vectors, so every
// vector loaded from a row is used for the whole batch, and the vectors of x (L1 cache) for four rows. Rows are read
// from memory side by side, and are asked for early.
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

// The first `count` < W lanes only; the others are read as 0.
template <int W>
INLINE Lanes<W> load_some(const float* p, int64_t count) {
  Lanes<W> v{};
  std::memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
  return v;
}

template <int W>
INLINE float sum_lanes(const Lanes<W>& v) {
  float total = 0.0f;
  for (int lane = 0; lane < W; ++lane) total += v[lane];
  return total;
}

// out[b * stride + r] = x[b, :] . w[r, :] for R rows of w and B rows of x, all of length k.
template <int W, int R, int B>
INLINE void multiply(float* out, int64_t stride, const float* x, const float* w, int64_t k) {
  Lanes<W> sum[R][B]{};
  int64_t j = 0;
  for (; j + W <= k; j += W) {  // no mutate: a vector left over is finished below
    for (int r = 0; r < R; ++r) __builtin_prefetch(w + r * k + j + 16 * W);
    Lanes<W> values[B];
    for (int b = 0; b < B; ++b) values[b] = load<W>(x + b * k + j);
    for (int r = 0; r < R; ++r) {
      const Lanes<W> row = load<W>(w + r * k + j);
      for (int b = 0; b < B; ++b) sum[r][b] += row * values[b];
    }
  }
  if (j < k) {
    for (int r = 0; r < R; ++r) {
      const Lanes<W> row = load_some<W>(w + r * k + j, k - j);
      for (int b = 0; b < B; ++b) sum[r][b] += row * load_some<W>(x + b * k + j, k - j);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) out[b * stride + r] = sum_lanes<W>(sum[r][b]);
  }
}

template <int W, int B>
INLINE void all_rows(float* out, const float* x, const float* w, int64_t n, int64_t k) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) multiply<W, 4, B>(out + i, n, x, w + i * k, k);  // no mutate: the rest is done below
  for (; i < n; ++i) multiply<W, 1, B>(out + i, n, x, w + i * k, k);
}

template <int W>
INLINE void gemv_rows(float* out, const float* x, const float* w, int64_t batch, int64_t n, int64_t k) {
  switch (batch) {
    case 1: return all_rows<W, 1>(out, x, w, n, k);
    case 2: return all_rows<W, 2>(out, x, w, n, k);
    case 3: return all_rows<W, 3>(out, x, w, n, k);
    case 4: return all_rows<W, 4>(out, x, w, n, k);
  }
}

using Gemv = void (*)(float*, const float*, const float*, int64_t, int64_t, int64_t);
#define DEFINE_GEMV(NAME, W)                                                                         \
  void NAME(float* out, const float* x, const float* w, int64_t batch, int64_t n, int64_t k) {       \
    gemv_rows<W>(out, x, w, batch, n, k);                                                            \
  }

DEFINE_GEMV(gemv_baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_GEMV(gemv_avx2, 8)
__attribute__((target("avx512f"))) DEFINE_GEMV(gemv_avx512, 16)
#endif

Gemv pick_gemv() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return gemv_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return gemv_avx2;
#endif
  return gemv_baseline;
}

}  // namespace

void gemv(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& w) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && w.dim() == 2 && out.dim() == 2, "gemv: expected (batch, n), (batch, k) and (n, k)");
  const int64_t batch = x.size(0), n = w.size(0), k = w.size(1);
  STD_TORCH_CHECK(x.size(1) == k && out.size(0) == batch && out.size(1) == n, "gemv: shapes differ");
  STD_TORCH_CHECK(batch >= 1 && batch <= 4, "gemv: expected a batch of 1 to 4");
  for (const auto* t : {&out, &x, &w}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "gemv: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "gemv: expected contiguous CPU tensors");
  }
  static const Gemv run = pick_gemv();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
      static_cast<const float*>(w.const_data_ptr()), batch, n, k);
}
