// Products of rows with rows in float32: out[i, j] = sum_k a[i, k] * b[j, k].
//
// A panel, 2 * W rows of `b` and as much of k as the L1 cache holds, is transposed once, so that vectors lie along j;
// then it passes by all rows of `a`, ROWS at a time: ROWS x 2 vectors of sums stay in registers, every element of `a`
// is broadcast to two of them, and nothing has to be added across lanes.
// Panels and tiles at the edges hold rows twice, or old ones: computed like the others, only not stored.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#define INLINE inline __attribute__((always_inline))
#pragma GCC diagnostic ignored "-Wpsabi"  // wide vectors never cross a call: every helper is inlined

namespace panels {

// W float lanes; Unaligned is the same for an address that is only 4-byte aligned.
template <int W>
using Lanes __attribute__((vector_size(W * 4))) = float;
template <int W>
struct Unaligned {
  typedef float type __attribute__((vector_size(W * 4), aligned(4), may_alias));
};
typedef int32_t Order __attribute__((vector_size(16)));

template <int W>
INLINE Lanes<W> load(const float* p) {
  return *reinterpret_cast<const typename Unaligned<W>::type*>(p);
}
template <int W>
INLINE void store(float* p, const Lanes<W>& v) {
  *reinterpret_cast<typename Unaligned<W>::type*>(p) = v;
}

// panel[p, c] = b[c, p] for four rows of b from c on; `width` floats from p to p + 1.
INLINE void transpose_four(float* panel, int64_t width, const float* const (&b)[4], int64_t depth) {
  int64_t p = 0;
  for (; p + 4 <= depth; p += 4) {  // no mutate: the loop below does what is left
    const Lanes<4> r0 = load<4>(b[0] + p), r1 = load<4>(b[1] + p), r2 = load<4>(b[2] + p), r3 = load<4>(b[3] + p);
    const Order low{0, 4, 1, 5}, high{2, 6, 3, 7}, first{0, 1, 4, 5}, second{2, 3, 6, 7};
    const Lanes<4> low01 = __builtin_shuffle(r0, r1, low), low23 = __builtin_shuffle(r2, r3, low);
    const Lanes<4> high01 = __builtin_shuffle(r0, r1, high), high23 = __builtin_shuffle(r2, r3, high);
    store<4>(panel + p * width, __builtin_shuffle(low01, low23, first));
    store<4>(panel + (p + 1) * width, __builtin_shuffle(low01, low23, second));
    store<4>(panel + (p + 2) * width, __builtin_shuffle(high01, high23, first));
    store<4>(panel + (p + 3) * width, __builtin_shuffle(high01, high23, second));
  }
  for (; p < depth; ++p) {
    for (int c = 0; c < 4; ++c) panel[p * width + c] = b[c][p];
  }
}

// tile[r] += the products of row a[r] with the 2 * W rows of a panel that is `depth` long.
template <int W, int ROWS>
INLINE void multiply(Lanes<W> (&tile)[ROWS][2], const float* const (&a)[ROWS], const float* panel, int64_t depth) {
  Lanes<W> sums[ROWS][2];
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r) {  // no mutate: beyond the registers is undefined
    sums[r][0] = tile[r][0];
    sums[r][1] = tile[r][1];
  }
  for (int64_t p = 0; p < depth; ++p, panel += 2 * W) {
    const Lanes<W> left = load<W>(panel), right = load<W>(panel + W);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) {  // no mutate: beyond the registers is undefined
      sums[r][0] += a[r][p] * left;
      sums[r][1] += a[r][p] * right;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r) {  // no mutate: beyond the registers is undefined
    tile[r][0] = sums[r][0];
    tile[r][1] = sums[r][1];
  }
}

// out (m, n), a (m, k), b (n, k), row major.
template <int W, int ROWS>
INLINE void product(float* out, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kWidth = 2 * W, kDepth = 256;  // a panel is 32 KiB with AVX-512  // no mutate: speed only
  alignas(64) float panel[kWidth * kDepth] = {};
  for (int64_t j = 0; j < n; j += kWidth) {  // no mutate: a panel without columns stores nothing
    const int64_t columns = std::min(n - j, kWidth);
    for (int64_t p = 0; p < k; p += kDepth) {  // no mutate: a panel of depth 0 adds nothing
      const int64_t depth = std::min(k - p, kDepth);
      for (int64_t c = 0; c < columns; c += 4) {
        const float* rows[4];  // those beyond the last one repeat it
        for (int64_t r = 0; r < 4; ++r) rows[r] = b + std::min(j + c + r, n - 1) * k + p;  // no mutate: not stored
        transpose_four(panel + c, kWidth, rows, depth);
      }
      for (int64_t i = 0; i < m; i += ROWS) {  // no mutate: a tile without rows stores nothing
        const int64_t count = std::min<int64_t>(m - i, ROWS);
        const auto bytes = static_cast<size_t>(columns) * sizeof(float);
        float* corner = out + i * n + j;
        const float* rows[ROWS];
        for (int64_t r = 0; r < ROWS; ++r) rows[r] = a + std::min(i + r, m - 1) * k + p;  // no mutate: not stored
        Lanes<W> tile[ROWS][2] = {};
        for (int64_t r = 0; r < count && p > 0; ++r) std::memcpy(tile[r], corner + r * n, bytes);
        multiply<W, ROWS>(tile, rows, panel, depth);
        for (int64_t r = 0; r < count; ++r) std::memcpy(corner + r * n, tile[r], bytes);
      }
    }
  }
}

}  // namespace panels
