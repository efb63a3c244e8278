// Attention of the queries that share one head's keys, on the CPU, float32.
//
// Four query rows go through the keys together, so a key or value is loaded once for all of them and four sums are
// under way at a time. Their scores stay in the cache, so there is no need for an online softmax.
// Written for W lanes; whoever includes this compiles it for AVX-512, AVX2 and the baseline.
//
// What is computed is said by a Head: q(row), k(key), v(key), out(row): addresses of `dim` floats; rows, keys (at
// least one), dim (a multiple of 16), scale.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
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

// Rows and vectors of sums that fit the registers: 32 of them with AVX-512, else 16.
constexpr int kRows = 4;
template <int W>
constexpr int kVectors = W == 16 ? 4 : 2;

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

// Four lanes with the sum of all: halves are added to each other.
template <int W>
INLINE Lanes<4> fold(const Lanes<W>& v) {
  if constexpr (W == 4) {
    return v;
  } else {
    Lanes<W / 2> halves[2];
    std::memcpy(halves, &v, sizeof(v));
    return fold<W / 2>(halves[0] + halves[1]);
  }
}

// The sums of the lanes of four vectors.
template <int W>
INLINE Lanes<4> sum_lanes(const Lanes<W> (&v)[4]) {
  const Lanes<4> a = fold<W>(v[0]), b = fold<W>(v[1]), c = fold<W>(v[2]), d = fold<W>(v[3]);
  const Ints<4> low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, left = {0, 1, 4, 5}, right = {2, 3, 6, 7};
  const Lanes<4> ab = __builtin_shuffle(a, b, low) + __builtin_shuffle(a, b, high);
  const Lanes<4> cd = __builtin_shuffle(c, d, low) + __builtin_shuffle(c, d, high);
  return __builtin_shuffle(ab, cd, left) + __builtin_shuffle(ab, cd, right);
}

// scores[r][key] = q[r] * k(key), for kRows rows.
template <int W, typename Head>
INLINE void score(float* scores, int64_t stride, const float* q, const Head& head) {
  for (int64_t key = 0; key < head.keys; ++key) {
    const float* const k = head.k(key);
    Lanes<W> sum[kRows] = {};
    for (int64_t d = 0; d < head.dim; d += W) {  // no mutate: heads are multiples of 16
      const Lanes<W> v = load<W>(k + d);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r] += v * load<W>(q + r * head.dim + d);
    }
    const Lanes<4> totals = sum_lanes<W>(sum);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) scores[r * stride + key] = totals[r];
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

// sums[r][d ...] = sum over keys of p[r][key] * v(key)[d ...], for kRows rows and N vectors.
template <int W, int N, typename Head>
INLINE void weigh(float* sums, const float* p, int64_t stride, int64_t d, const Head& head) {
  Lanes<W> sum[kRows][N] = {};
  for (int64_t key = 0; key < head.keys; ++key) {
    const float* const v = head.v(key) + d;
    Lanes<W> row[N];
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) row[n] = load<W>(v + n * W);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) sum[r][n] += p[r * stride + key] * row[n];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) store<W>(sums + r * head.dim + d + n * W, sum[r][n]);
  }
}

// Memory that is kept from call to call, and never its contents. Vectors do not straddle cache lines.
inline float* scratch(int64_t floats) {
  thread_local std::vector<float> memory;
  if (static_cast<int64_t>(memory.size()) < floats + 16) memory.resize(static_cast<size_t>(floats + 16));
  return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
}

template <int W, typename Head>
INLINE void attend(const Head& head) {
  constexpr int kWide = kVectors<W> * W;
  const int64_t dim = head.dim, stride = round_up(head.keys, 16);
  float* const q_rows = scratch(kRows * (2 * dim + stride));  // (kRows, dim), times scale * log2(e)
  float* const sums = q_rows + kRows * dim;                   // (kRows, dim)
  float* const scores = sums + kRows * dim;                   // (kRows, stride)
  const float scale = static_cast<float>(head.scale * 1.4426950408889634);
  for (int64_t first = 0; first < head.rows; first += kRows) {
    const int64_t rows = std::min<int64_t>(kRows, head.rows - first);
    std::fill(q_rows, sums, 0.0f);
    for (int64_t r = 0; r < rows; ++r) {  // no mutate: one row more is in scratch
      for (int64_t d = 0; d < dim; ++d) q_rows[r * dim + d] = head.q(first + r)[d] * scale;  // no mutate: the next row, or slack
    }
    score<W>(scores, stride, q_rows, head);
    float totals[kRows];
    for (int64_t r = 0; r < kRows; ++r) {
      float* const row = scores + r * stride;
      std::fill(row + head.keys, row + stride, -INFINITY);
      totals[r] = exponentiate<W>(row, stride);
    }
    int64_t d = 0;
    for (; d + kWide <= dim; d += kWide) weigh<W, kVectors<W>>(sums, scores, stride, d, head);  // no mutate: heads are multiples of 16
    for (; d < dim; d += W) weigh<W, 1>(sums, scores, stride, d, head);  // no mutate: heads are multiples of 16
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t d = 0; d < dim; ++d) head.out(first + r)[d] = sums[r * dim + d] / totals[r];
    }
  }
}

}  // namespace attention
