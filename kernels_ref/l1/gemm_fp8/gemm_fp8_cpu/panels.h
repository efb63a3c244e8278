// Products of rows with rows in float32: out[i, j] = sum_k a[i, k] * b[j, k].
//
// As much of k as the L1 cache holds is done at a time. Of that part all rows of `a` are packed, kPack at a time, so
// that what a tile needs for one k lies side by side. Then panels, 2 * W rows of `b`, are packed in the same way, and
// each of them passes by all packed rows: ROWS x 2 vectors of sums, which lie along j, stay in registers, every element
// of `a` is broadcast to two of them, and nothing has to be added across lanes.
// Tiles at the edges hold rows twice: they are computed like the others, but not all of them is stored.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#define INLINE inline __attribute__((always_inline))
#pragma GCC diagnostic ignored "-Wpsabi"  // wide vectors never cross a call: every helper is inlined

namespace panels {

constexpr int64_t kPack = 12;    // a multiple of every ROWS and of 4
constexpr int64_t kDepth = 256;  // a panel is 32 KiB with AVX-512

// W float lanes; Unaligned is the same for an address that is only 4-byte aligned.
template <int W>
using Lanes __attribute__((vector_size(W * 4))) = float;
template <int W>
using Order __attribute__((vector_size(W * 4))) = int32_t;
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

// Four floats from p on of each of W / 4 rows: of rows[0], rows[4] and so on.
template <int W>
INLINE Lanes<W> load_fours(const float* const* rows, int64_t p) {
  if constexpr (W == 4) {
    return load<4>(rows[0] + p);
  } else if constexpr (W == 8) {
    return __builtin_shufflevector(load_fours<4>(rows, p), load_fours<4>(rows + 4, p), 0, 1, 2, 3, 4, 5, 6, 7);
  } else {
    return __builtin_shufflevector(load_fours<8>(rows, p), load_fours<8>(rows + 8, p),  //
                                   0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
}

// In every four lanes: a and b of x, then c and d of y. The loop has to be unrolled, or the order is no constant.
template <int W>
INLINE Lanes<W> shuffle(const Lanes<W>& x, const Lanes<W>& y, int a, int b, int c, int d) {
  Order<W> order{};
#pragma GCC unroll 4
  for (int i = 0; i < W; i += 4) {  // no mutate: beyond the lanes is undefined
    order[i] = i + a, order[i + 1] = i + b, order[i + 2] = W + i + c, order[i + 3] = W + i + d;
  }
  return __builtin_shuffle(x, y, order);
}

// packed[p, r] = x[first + r, p] for W of the `count` rows of x, `stride` apart; rows beyond the last one repeat it.
template <int W>
INLINE void pack(float* packed, int64_t width, const float* x, int64_t stride, int64_t first, int64_t count,
                 int64_t depth) {
  const float* rows[W];
  for (int64_t r = 0; r < W; ++r) {
    rows[r] = x + std::min(first + r, count - 1) * stride;  // no mutate: what is beyond is not stored
  }
  int64_t p = 0;
  for (; p + 4 <= depth; p += 4) {  // no mutate: the loop below does what is left
    const Lanes<W> r0 = load_fours<W>(rows, p), r1 = load_fours<W>(rows + 1, p);
    const Lanes<W> r2 = load_fours<W>(rows + 2, p), r3 = load_fours<W>(rows + 3, p);
    const Lanes<W> low01 = shuffle<W>(r0, r1, 0, 1, 0, 1), low23 = shuffle<W>(r2, r3, 0, 1, 0, 1);
    const Lanes<W> high01 = shuffle<W>(r0, r1, 2, 3, 2, 3), high23 = shuffle<W>(r2, r3, 2, 3, 2, 3);
    store<W>(packed + p * width, shuffle<W>(low01, low23, 0, 2, 0, 2));
    store<W>(packed + (p + 1) * width, shuffle<W>(low01, low23, 1, 3, 1, 3));
    store<W>(packed + (p + 2) * width, shuffle<W>(high01, high23, 0, 2, 0, 2));
    store<W>(packed + (p + 3) * width, shuffle<W>(high01, high23, 1, 3, 1, 3));
  }
  for (; p < depth; ++p) {
    for (int r = 0; r < W; ++r) packed[p * width + r] = rows[r][p];
  }
}

// out[r] (+)= the products of packed row r with the 2 * W rows of a panel that is `depth` long; rows of `out` are
// `stride` apart.
template <int W, int ROWS>
INLINE void multiply(float* out, int64_t stride, const float* a, const float* panel, int64_t depth, bool add) {
  Lanes<W> sums[ROWS][2] = {};
  for (int64_t p = 0; p < depth; ++p, a += kPack, panel += 2 * W) {
    const Lanes<W> left = load<W>(panel), right = load<W>(panel + W);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; ++r) {  // no mutate: beyond the registers is undefined
      sums[r][0] += a[r] * left;
      sums[r][1] += a[r] * right;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < ROWS && add; ++r) {  // no mutate: beyond the registers is undefined
    sums[r][0] += load<W>(out + r * stride);
    sums[r][1] += load<W>(out + r * stride + W);
  }
#pragma GCC unroll 16
  for (int r = 0; r < ROWS; ++r) {  // no mutate: beyond the registers is undefined
    store<W>(out + r * stride, sums[r][0]);
    store<W>(out + r * stride + W, sums[r][1]);
  }
}

// The same where `out` has only `height` rows and `width` columns left: if that is less than a tile, in a copy.
template <int W, int ROWS>
INLINE void multiply_tile(float* out, int64_t stride, int64_t height, int64_t width, const float* a, const float* panel,
                          int64_t depth, bool add) {
  const bool whole = height >= ROWS && width >= 2 * W;
  const int64_t rows = whole ? 0 : std::min<int64_t>(height, ROWS), columns = std::min<int64_t>(width, 2 * W);
  float copy[ROWS * 2 * W];
  for (int64_t r = 0; r < rows && add; ++r) {  // no mutate: beyond the copy is undefined
    std::copy_n(out + r * stride, columns, copy + r * 2 * W);
  }
  multiply<W, ROWS>(whole ? out : copy, whole ? stride : 2 * W, a, panel, depth, add);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(copy + r * 2 * W, columns, out + r * stride);
}

// out (m, n), a (m, k), b (n, k), row major.
template <int W, int ROWS>
INLINE void product(float* out, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kWidth = 2 * W, kFew = ROWS / 3;
  alignas(64) float panel[kWidth * kDepth];
  const int64_t parts = (k + kDepth - 1) / kDepth;  // no mutate: one more is only slower
  const int64_t most = (k + parts - 1) / parts;     // no mutate: parts of other sizes do as well
  const std::unique_ptr<float[]> packed(new float[(m + kPack) * most]);
  for (int64_t p = 0; p < k; p += most) {  // no mutate: a last part of one is there for k = 1 only
    const int64_t depth = std::min(k - p, most);
    const auto row = [&](int64_t i) { return packed.get() + i / kPack * kPack * depth + i % kPack; };
    for (int64_t i = 0; i < m; i += 4) pack<4>(row(i), kPack, a + p, k, i, m, depth);
    for (int64_t j = 0; j < n; j += kWidth) {
      for (int64_t c = 0; c < kWidth; c += W) {  // no mutate: there are two
        pack<W>(panel + c, kWidth, b + p, k, j + c, n, depth);
      }
      int64_t i = 0;
      for (; i + ROWS <= m; i += ROWS) {  // no mutate: the loop below does what is left
        multiply_tile<W, ROWS>(out + i * n + j, n, m - i, n - j, row(i), panel, depth, p > 0);
      }
      for (; i < m; i += kFew) {
        multiply_tile<W, kFew>(out + i * n + j, n, m - i, n - j, row(i), panel, depth, p > 0);
      }
    }
  }
}

}  // namespace panels
