// Position of the largest element of every row on the CPU, float32.
//
// Every lane keeps the largest value that it has seen and where; two vectors go side by side, so that comparisons do
// not wait for each other. At the end the lanes are compared, the smaller position first among equals. A NaN is larger than
// anything and stays. Written once for W lanes, compiled for AVX-512, AVX2 and the baseline; cpuid picks.

#include <cmath>
#include <cstdint>

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

// Whether a comes before b: the larger value, a NaN above all, and the smaller position among equals.
INLINE bool before(float a, int64_t a_at, float b, int64_t b_at) {
  const bool a_nan = a != a, b_nan = b != b;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a != b) return a > b;  // no mutate: they differ
  return a_at < b_at;  // no mutate: two positions are never equal
}

// Lanes `at` and `best` take what is larger in v, which lies at `here`; a NaN in `best` stays.
template <int W>
INLINE void take(Lanes<W>& best, Ints<W>& at, const Lanes<W>& v, const Ints<W>& here) {
  const Ints<W> larger = ~(v <= best) & (best == best);
  best = larger ? v : best;
  at = larger ? here : at;
}

template <int W>
INLINE int64_t largest_at(const float* x, int64_t cols) {
  int64_t position = 0, j = 0;
  float largest = x[0];
  if (cols >= 2 * W) {  // no mutate: the loop over single elements is enough
    Ints<W> here0{};
    for (int lane = 0; lane < W; ++lane) here0[lane] = lane;  // no mutate: lane 0 is 0
    Ints<W> here1 = here0 + W, at0 = here0, at1 = here1;
    Lanes<W> best0 = load<W>(x), best1 = load<W>(x + W);
    for (j = 2 * W; j + 2 * W <= cols; j += 2 * W) {  // no mutate: the loop over single elements finishes the rest
      here0 += 2 * W;
      here1 += 2 * W;
      take<W>(best0, at0, load<W>(x + j), here0);
      take<W>(best1, at1, load<W>(x + j + W), here1);
    }
    for (int lane = 0; lane < W; ++lane) {
      if (before(best0[lane], at0[lane], largest, position)) largest = best0[lane], position = at0[lane];
      if (before(best1[lane], at1[lane], largest, position)) largest = best1[lane], position = at1[lane];
    }
  }
  for (; j < cols; ++j)
    if (before(x[j], j, largest, position)) largest = x[j], position = j;
  return position;
}

template <int W>
INLINE void argmax_rows(int64_t* index, const float* x, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row) index[row] = largest_at<W>(x + row * cols, cols);
}

using Rows = void (*)(int64_t*, const float*, int64_t, int64_t);
#define DEFINE_ROWS(NAME, W) \
  void NAME(int64_t* index, const float* x, int64_t rows, int64_t cols) { argmax_rows<W>(index, x, rows, cols); }

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

void argmax(const torch::stable::Tensor& index, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && index.dim() == 1 && index.size(0) == x.size(0), "argmax: shapes differ");
  STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float && index.scalar_type() == ScalarType::Long,
                  "argmax: the CPU kernel takes float32 and writes int64");
  for (const auto* t : {&index, &x})
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "argmax: expected contiguous CPU tensors");
  STD_TORCH_CHECK(x.size(1) >= 1 && x.size(1) <= INT32_MAX, "argmax: a row has too few or too many elements");
  static const Rows run = pick_rows();
  run(static_cast<int64_t*>(index.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()), x.size(0),
      x.size(1));
}
