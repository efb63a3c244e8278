// Transposition of the last two axes on the CPU, float32.
//
// W x W tiles are transposed in registers: W vectors are loaded from W rows, log2(W) rounds exchange halves, quarters,
// ... between pairs of them, and W vectors go to W rows of the output. With 16 lanes a tile reads and writes whole
// cache lines. Tiles are visited in bands of 64 rows, so that the rows being read stay in the caches and their pages
// in the TLB. What is left at the right and at the bottom is moved one element at a time.
// The body is written once for W lanes and compiled for AVX-512, AVX2 and the baseline; cpuid picks one.

#include <algorithm>
#include <cstdint>
#include <utility>

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

// With rows a and b as 2 x 2 blocks of width D, repeated: the upper right block of the pair changes places with the
// lower left one.
template <int W, int D, int... Lane>
INLINE void exchange(Lanes<W>& a, Lanes<W>& b, std::integer_sequence<int, Lane...>) {
  const Ints<W> upper = {(Lane & D ? W + Lane - D : Lane)...};
  const Ints<W> lower = {(Lane & D ? W + Lane : Lane + D)...};
  const Lanes<W> before = a;
  a = __builtin_shuffle(before, b, upper);
  b = __builtin_shuffle(before, b, lower);
}

template <int W, int D>
INLINE void exchange_all(Lanes<W>* v) {
  for (int i = 0; i < W; ++i) {  // no mutate: the last one is the lower of every pair
    if ((i & D) == 0) exchange<W, D>(v[i], v[i + D], std::make_integer_sequence<int, W>{});
  }
  if constexpr (D > 1) exchange_all<W, D / 2>(v);
}

template <int W>
INLINE void transpose_tile(float* out, int64_t out_stride, const float* x, int64_t x_stride) {
  using Vec = typename Unaligned<W>::type;
  Lanes<W> v[W];
  for (int i = 0; i < W; ++i) v[i] = *reinterpret_cast<const Vec*>(x + i * x_stride);
  exchange_all<W, W / 2>(v);
  for (int i = 0; i < W; ++i) *reinterpret_cast<Vec*>(out + i * out_stride) = v[i];
}

template <int W>
INLINE void transpose_all(float* out, const float* x, int64_t batch, int64_t rows, int64_t cols) {
  const int64_t whole_rows = rows / W * W, whole_cols = cols / W * W;
  for (int64_t b = 0; b < batch; ++b, x += rows * cols, out += rows * cols) {
    for (int64_t band = 0; band < whole_rows; band += 64) {  // no mutate: any multiple of 16 gives the same result
      const int64_t end = std::min<int64_t>(band + 64, whole_rows);  // no mutate: as above
      for (int64_t j = 0; j < whole_cols; j += W) {  // no mutate: one less ends at the same tile
        for (int64_t i = band; i < end; i += W) {    // no mutate: as above
          transpose_tile<W>(out + j * rows + i, rows, x + i * cols + j, cols);
        }
      }
    }
    for (int64_t j = whole_cols; j < cols; ++j) {
      for (int64_t i = 0; i < whole_rows; ++i) out[j * rows + i] = x[i * cols + j];
    }
    for (int64_t i = whole_rows; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) out[j * rows + i] = x[i * cols + j];
    }
  }
}

using Run = void (*)(float*, const float*, int64_t, int64_t, int64_t);
#define DEFINE_RUN(NAME, W)                                                             \
  void NAME(float* out, const float* x, int64_t batch, int64_t rows, int64_t cols) { \
    transpose_all<W>(out, x, batch, rows, cols);                                        \
  }

DEFINE_RUN(run_baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_RUN(run_avx2, 8)
__attribute__((target("avx512f"))) DEFINE_RUN(run_avx512, 16)
#endif

Run pick_run() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return run_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return run_avx2;
#endif
  return run_baseline;
}

}  // namespace

void transpose(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3, "transpose: expected (batch, rows, cols)");
  const int64_t batch = x.size(0), rows = x.size(1), cols = x.size(2);
  STD_TORCH_CHECK(out.size(0) == batch && out.size(1) == cols && out.size(2) == rows, "transpose: shapes differ");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "transpose: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "transpose: expected contiguous CPU tensors");
  }
  static const Run run = pick_run();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()), batch, rows, cols);
}
