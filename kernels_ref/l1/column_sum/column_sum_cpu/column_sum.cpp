// Sum over the rows of a matrix on the CPU, float32.
//
// Rows are read in the order in which they lie in memory, eight at a time, so that each element of the sums, which stay
// in the L1 or L2 cache, is loaded and stored once for eight elements read. The eight are added as a tree, which is
// also what keeps the error of tall matrices small. Written once for W lanes, compiled for AVX-512, AVX2 and the
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

// Of `Rows` rows of `cols` elements, x + j being the first one's.
template <int W, int Rows>
INLINE Lanes<W> sum_at(const float* x, int64_t cols) {
  if constexpr (Rows == 1) {
    return load<W>(x);
  } else {
    return sum_at<W, Rows / 2>(x, cols) + sum_at<W, Rows / 2>(x + Rows / 2 * cols, cols);
  }
}

template <int W, int Rows>
INLINE void add_rows(float* out, const float* x, int64_t cols) {
  int64_t j = 0;
  for (; j + W <= cols; j += W)  // no mutate: the loop over single elements finishes the rest
    store<W>(out + j, load<W>(out + j) + sum_at<W, Rows>(x + j, cols));
  for (; j < cols; ++j) {
    float sum = 0.0f;
    for (int row = 0; row < Rows; ++row) sum += x[row * cols + j];
    out[j] += sum;
  }
}

template <int W>
INLINE void sum_columns(float* out, const float* x, int64_t rows, int64_t cols) {
  constexpr int kRows = 8;
  std::memset(out, 0, static_cast<size_t>(cols) * sizeof(float));
  int64_t row = 0;
  for (; row + kRows <= rows; row += kRows)  // no mutate: the loop over single rows finishes the rest
    add_rows<W, kRows>(out, x + row * cols, cols);
  for (; row < rows; ++row) add_rows<W, 1>(out, x + row * cols, cols);
}

using Rows = void (*)(float*, const float*, int64_t, int64_t);
#define DEFINE_ROWS(NAME, W) \
  void NAME(float* out, const float* x, int64_t rows, int64_t cols) { sum_columns<W>(out, x, rows, cols); }

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

void column_sum(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 1 && out.size(0) == x.size(1), "column_sum: shapes differ");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "column_sum: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "column_sum: expected contiguous CPU tensors");
  }
  static const Rows run = pick_rows();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()), x.size(0),
      x.size(1));
}
