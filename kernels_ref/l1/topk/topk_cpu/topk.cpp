// The k largest elements of every row on the CPU, float32.
//
// The winners so far stay sorted in the output itself. Nearly all of a long row is below the smallest of them, so
// vectors are only compared with it, four at a time; where one has something larger, its elements are inserted one by
// one. Of equal elements the first stays in front. Written once for W lanes, compiled for AVX-512, AVX2 and the
// baseline; cpuid picks.

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
INLINE void store(float* p, const Lanes<W>& v) {
  *reinterpret_cast<typename Unaligned<W>::type*>(p) = v;
}

template <int W>
INLINE bool any(const Ints<W>& mask) {
  uint64_t words[W / 2], all = 0;
  std::memcpy(words, &mask, sizeof(words));
  for (int i = 0; i < W / 2; ++i) all |= words[i];
  return all != 0;
}

// The best of a row so far, `count` of at most `k`, in descending order.
struct Winners {
  float* values;
  int64_t* indices;
  int64_t k, count;

  bool enters(float v) const { return count < k || v > values[k - 1]; }
  void insert(float v, int64_t index) {
    int64_t place = count < k ? count++ : k - 1;
    for (; place > 0 && values[place - 1] < v; --place) {
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
  while (j < cols) {
    if (j + 4 * W <= cols) {  // no mutate: looking at single elements is as good
      const float least = best.values[best.k - 1];
      const Ints<W> above = (load<W>(x + j) > least) | (load<W>(x + j + W) > least) |
                            (load<W>(x + j + 2 * W) > least) | (load<W>(x + j + 3 * W) > least);
      if (!any<W>(above)) {
        j += 4 * W;
        continue;
      }
    }
    const int64_t end = j + 4 * W <= cols ? j + 4 * W : cols;  // no mutate: how many go together does not matter
    for (; j < end; ++j)
      if (best.enters(x[j])) best.insert(x[j], j);
  }
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
