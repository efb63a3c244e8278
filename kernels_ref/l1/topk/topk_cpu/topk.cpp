// The k largest elements of every row on the CPU, float32.
//
// The winners so far stay sorted in the output itself. Nearly all of a long row is below the smallest of them, so four
// vectors are compared with it by their maximum; where that is larger, the lanes above it are inserted one by one. Of
// equal elements the first stays in front. Written once for W lanes, compiled for AVX-512, AVX2 and the baseline; cpuid
// picks.

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
INLINE Lanes<W> larger(const Lanes<W>& a, const Lanes<W>& b) {
  return a > b ? a : b;
}

// The bits of all lanes, or-ed together.
template <int W>
INLINE uint32_t or_lanes(const Ints<W>& v) {
  if constexpr (W == 4) {
    return static_cast<uint32_t>((v[0] | v[1]) | (v[2] | v[3]));
  } else {
    Ints<W / 2> halves[2];
    std::memcpy(halves, &v, sizeof(v));
    return or_lanes<W / 2>(halves[0] | halves[1]);
  }
}

// Bit i is set where lane i is above `least`.
template <int W>
INLINE uint32_t lanes_above(const Lanes<W>& v, float least) {
  Ints<W> bits{};
#pragma GCC unroll 16
  for (int lane = 0; lane < W; ++lane) bits[lane] = 1 << lane;
  return or_lanes<W>(v > least ? bits : Ints<W>{});
}

// The best of a row so far, `count` of at most `k`, in descending order.
struct Winners {
  float* values;
  int64_t* indices;
  int64_t k, count;

  bool enters(float v) const { return count < k || v > values[k - 1]; }
  void insert(float v, int64_t index) {
    int64_t place = count < k ? count++ : k - 1;
    for (; place > 0 && values[place - 1] < v; --place) {  // no mutate: equal ones may stand in either order
      values[place] = values[place - 1];
      indices[place] = indices[place - 1];
    }
    values[place] = v;
    indices[place] = index;
  }
};

template <int W>
INLINE void topk_row(Winners best, const float* x, int64_t cols) {
  int64_t j = 0;
  while (j < best.k) {
    best.insert(x[j], j);
    ++j;
  }
  const int64_t whole = j + (cols - j) / (4 * W) * (4 * W);
  for (; j < whole; j += 4 * W) {  // no mutate: one less ends at the same vectors
    const Lanes<W> v[4] = {load<W>(x + j), load<W>(x + j + W), load<W>(x + j + 2 * W), load<W>(x + j + 3 * W)};
    const float least = best.values[best.k - 1];
    if (!lanes_above<W>(larger<W>(larger<W>(v[0], v[1]), larger<W>(v[2], v[3])), least)) continue;
    for (int part = 0; part < 4; ++part) {
      uint32_t above = lanes_above<W>(v[part], least);
      while (above != 0) {
        const int lane = __builtin_ctz(above);
        const int64_t place = j + part * W + lane;
        if (best.enters(x[place])) best.insert(x[place], place);
        above ^= 1u << lane;
      }
    }
  }
  for (; j < cols; ++j)
    if (best.enters(x[j])) best.insert(x[j], j);
}

template <int W>
INLINE void topk_rows(float* values, int64_t* indices, const float* x, int64_t rows, int64_t cols, int64_t k) {
  for (int64_t row = 0; row < rows; ++row)
    topk_row<W>(Winners{values + row * k, indices + row * k, k, 0}, x + row * cols, cols);
}

using Rows = void (*)(float*, int64_t*, const float*, int64_t, int64_t, int64_t);
#define DEFINE_ROWS(NAME, W)                                                                          \
  void NAME(float* values, int64_t* indices, const float* x, int64_t rows, int64_t cols, int64_t k) { \
    topk_rows<W>(values, indices, x, rows, cols, k);                                                  \
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

void topk(const torch::stable::Tensor& values, const torch::stable::Tensor& indices, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && values.dim() == 2 && indices.dim() == 2, "topk: expected (rows, cols) and (rows, k)");
  const int64_t rows = x.size(0), cols = x.size(1), k = values.size(1);
  STD_TORCH_CHECK(values.size(0) == rows && indices.size(0) == rows && indices.size(1) == k, "topk: shapes differ");
  STD_TORCH_CHECK(k >= 1 && k <= 64 && k <= cols, "topk: expected 1 <= k <= 64 and k <= cols");
  STD_TORCH_CHECK(values.scalar_type() == x.scalar_type() && indices.scalar_type() == ScalarType::Long,
                  "topk: expected values like x, and int64 indices");
  STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float, "topk: the CPU kernel takes float32");
  for (const auto* t : {&values, &indices, &x})
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "topk: expected contiguous CPU tensors");
  static const Rows run = pick_rows();
  run(static_cast<float*>(values.mutable_data_ptr()), static_cast<int64_t*>(indices.mutable_data_ptr()),
      static_cast<const float*>(x.const_data_ptr()), rows, cols, k);
}
