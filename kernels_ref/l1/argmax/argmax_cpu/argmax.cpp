// Position of the largest element of every row on the CPU, float32.
//
// Every lane keeps the largest value that it has seen and where; two vectors go side by side, so that comparisons do
// not wait for each other, and at the end the lanes are compared. Comparisons stand in conditions of `?:` only, where
// AVX-512 has a masked move for them; as values they would be made lane by lane. A NaN is not larger than anything, so
// lanes only note that there was one, and such a row is looked through again. Written once for W lanes, compiled for
// AVX-512, AVX2 and the baseline; cpuid picks.

#include <cstdint>
#include <cstring>
#include <limits>

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

// What the lanes have seen: the largest value, where it lies, and whether there was a NaN (-1) or not (0).
template <int W>
struct Seen {
  Lanes<W> best = Lanes<W>{} - std::numeric_limits<float>::infinity();
  Ints<W> at = {}, nan = {};

  INLINE void take(const Lanes<W>& v, const Ints<W>& here) {
    nan = v == v ? nan : Ints<W>{} - 1;
    at = v > best ? here : at;  // no mutate: of equal ones any will do
    best = v > best ? v : best;  // no mutate: equal values
  }
};

template <int W>
INLINE bool any(const Ints<W>& flags) {
  uint64_t words[W / 2], all = 0;
  std::memcpy(words, &flags, sizeof(words));
  for (const uint64_t word : words) all |= word;
  return all != 0;
}

// Of a row with a NaN.
inline int64_t first_nan(const float* x) {
  int64_t j = 0;
  while (x[j] == x[j]) ++j;
  return j;
}

template <int W>
INLINE int64_t largest_at(const float* x, int64_t cols) {
  Seen<W> even, odd;
  Ints<W> here{};
  for (int lane = 0; lane < W; ++lane) here[lane] = lane;
  int64_t j = 0;
  for (; j + 2 * W <= cols; j += 2 * W, here += 2 * W) {  // no mutate: the loop over single elements does the rest
    even.take(load<W>(x + j), here);
    odd.take(load<W>(x + j + W), here + W);
  }
  if (any<W>(even.nan | odd.nan)) return first_nan(x);
  even.at = odd.best > even.best ? odd.at : even.at;  // no mutate: of equal ones any will do
  even.best = odd.best > even.best ? odd.best : even.best;  // no mutate: equal values
  float best[W], largest = -std::numeric_limits<float>::infinity();
  int32_t at[W];
  std::memcpy(best, &even.best, sizeof(best));
  std::memcpy(at, &even.at, sizeof(at));
  int64_t position = 0;
  for (int lane = 0; lane < W; ++lane) {
    if (best[lane] > largest) largest = best[lane], position = at[lane];  // no mutate: of equal ones any will do
  }
  for (; j < cols; ++j) {
    if (x[j] != x[j]) return j;
    if (x[j] > largest) largest = x[j], position = j;  // no mutate: of equal ones any will do
  }
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
