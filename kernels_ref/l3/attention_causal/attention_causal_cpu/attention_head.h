// Attention of one head on the CPU, float32: scores of a few queries in the cache, softmax, weighted sum of values.
//
// Both products are one small matrix product: kRows rows times a panel of whole vectors, with all sums in registers.
// Keys are transposed into panels once for a head, values copied into panels, so that every load is a whole vector
// and a head_dim that is none is padded with zeros. A row of scores stays in the cache, so there is no need for an
// online softmax.
// Written for W lanes; whoever includes this compiles it for AVX-512, AVX2 and the baseline.
//
// What is computed is said by a Head: q(row), k(key), v(key), out(row): addresses of `dim` floats; begin(row),
// end(row): the keys that a row sees, at least one, neither falling from row to row; queries, keys, dim, scale.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#define INLINE inline __attribute__((always_inline))
#pragma GCC diagnostic ignored "-Wpsabi"  // wide vectors never cross a call: every helper is inlined

namespace attention {

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

// Rows, and vectors of a row, whose sums fit the registers: 32 of them with AVX-512, else 16.
template <int W>
constexpr int kRows = W == 16 ? 12 : 6;
constexpr int kVectors = 2;
template <int W>
constexpr int kPanel = kVectors * W;

INLINE int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }  // no mutate: more room

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

// c[r] = sum over k < count of a[r][k] * b[k], for kRows rows; a row of b or c is one panel.
template <int W>
INLINE void multiply(float* c, int64_t c_stride, const float* a, int64_t a_stride, const float* b, int64_t count) {
  constexpr int N = kVectors;
  Lanes<W> sum[kRows<W>][N] = {};
  for (int64_t k = 0; k < count; ++k, b += kPanel<W>) {
    Lanes<W> row[N];
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) row[n] = load<W>(b + n * W);
#pragma GCC unroll 12
    for (int r = 0; r < kRows<W>; ++r) {
      const float factor = a[r * a_stride + k];
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) sum[r][n] += factor * row[n];
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows<W>; ++r) {
#pragma GCC unroll 2
    for (int n = 0; n < N; ++n) store<W>(c + r * c_stride + n * W, sum[r][n]);
  }
}

// Replaces `count` scores (whole vectors; minus infinity is no key) by 2^(score - max); returns their sum.
template <int W>
INLINE float exponentiate(float* scores, int64_t count) {
  Lanes<W> max = load<W>(scores);
  for (int64_t j = W; j < count; j += W) {  // no mutate: count is whole vectors
    const Lanes<W> v = load<W>(scores + j);
    max = v > max ? v : max;
  }
  float highest = max[0];
  for (int lane = 1; lane < W; ++lane) highest = std::max(highest, max[lane]);  // no mutate: it only keeps exp in range
  Lanes<W> sum{};
  for (int64_t j = 0; j < count; j += W) {  // no mutate: count is whole vectors
    const Lanes<W> p = power_of_two<W>(load<W>(scores + j) - highest);
    store<W>(scores + j, p);
    sum += p;
  }
  float total = 0.0f;
  for (int lane = 0; lane < W; ++lane) total += sum[lane];
  return total;
}

// Memory that is kept from call to call, and never its contents. Vectors do not straddle cache lines.
inline float* scratch(int64_t floats) {
  thread_local std::vector<float> memory;
  if (static_cast<int64_t>(memory.size()) < floats + 16) memory.resize(static_cast<size_t>(floats + 16));
  return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
}

template <int W, typename Head>
INLINE void attend(const Head& head) {
  constexpr int kWide = kPanel<W>;
  const int64_t dim = head.dim, wide_keys = round_up(head.keys, kWide), wide_dim = round_up(dim, kWide);
  float* const k_panels = scratch(wide_keys * (dim + wide_dim + kRows<W>) + kRows<W> * (dim + wide_dim));
  float* const v_panels = k_panels + wide_keys * dim;     // (wide_dim / kWide, wide_keys, kWide)
  float* const scores = v_panels + wide_keys * wide_dim;  // (kRows, wide_keys)
  float* const q_rows = scores + kRows<W> * wide_keys;    // (kRows, dim), times scale * log2(e)
  float* const sums = q_rows + kRows<W> * dim;            // (kRows, wide_dim)
  const float scale = static_cast<float>(head.scale * 1.4426950408889634);

  std::fill(k_panels, scores, 0.0f);
  for (int64_t key = 0; key < head.keys; ++key) {
    const float *k = head.k(key), *v = head.v(key);
    float* const column = k_panels + key / kWide * kWide * dim + key % kWide;
    for (int64_t d = 0; d < dim; ++d) column[d * kWide] = k[d];
    for (int64_t d = 0; d < dim; d += kWide) {  // no mutate: heads are multiples of 8
      std::copy(v + d, v + std::min(d + kWide, dim), v_panels + d * wide_keys + key * kWide);
    }
  }

  for (int64_t first = 0; first < head.queries; first += kRows<W>) {
    const int64_t rows = std::min<int64_t>(kRows<W>, head.queries - first);
    const int64_t begin = head.begin(first) / kWide * kWide, end = head.end(first + rows - 1);
    const int64_t width = round_up(end - begin, kWide);
    std::fill(q_rows, q_rows + kRows<W> * dim, 0.0f);
    for (int64_t r = 0; r < rows; ++r) {  // no mutate: one row more is in scratch
      const float* const q = head.q(first + r);
      for (int64_t d = 0; d < dim; ++d) q_rows[r * dim + d] = q[d] * scale;  // no mutate: the next row, or slack, takes one more
    }
    for (int64_t j = 0; j < width; j += kWide) {  // no mutate: width is whole steps
      multiply<W>(scores + j, wide_keys, q_rows, dim, k_panels + (begin + j) * dim, dim);
    }
    float totals[kRows<W>];
    for (int64_t r = 0; r < rows; ++r) {  // no mutate: one row more is in scratch
      float* const row = scores + r * wide_keys;
      std::fill(row, row + (head.begin(first + r) - begin), -INFINITY);
      std::fill(row + (head.end(first + r) - begin), row + width, -INFINITY);
      totals[r] = exponentiate<W>(row, width);
    }
    for (int64_t d = 0; d < dim; d += kWide) {  // no mutate: heads are multiples of 8
      multiply<W>(sums + d, wide_dim, scores, wide_keys, v_panels + d * wide_keys + begin * kWide, end - begin);
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* const out = head.out(first + r);
      for (int64_t d = 0; d < dim; ++d) out[d] = sums[r * wide_dim + d] / totals[r];
    }
  }
}

}  // namespace attention
