// Dynamic fp8 (e4m3) quantisation of rows on the CPU, float32.
//
// Two sweeps over each row while it sits in the L1 cache: the largest absolute value with four independent
// accumulators, then multiply, round and narrow, W elements at a time, without a branch. Memory is touched once,
// where separate PyTorch ops write and reread whole temporaries.
// The body is written once for W lanes and compiled for AVX-512, AVX2 and the baseline; cpuid picks one.

#include <algorithm>
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
using Bytes __attribute__((vector_size(W))) = uint8_t;
template <int W>
struct Unaligned {
  typedef float type __attribute__((vector_size(W * 4), aligned(4), may_alias));
  typedef uint8_t bytes __attribute__((vector_size(W), aligned(1), may_alias));
};

template <int W>
INLINE Lanes<W> load(const float* p) {
  return *reinterpret_cast<const typename Unaligned<W>::type*>(p);
}
// The first `count` < W lanes only; the others are read as 0.
template <int W>
INLINE Lanes<W> load_some(const float* p, int64_t count) {
  Lanes<W> v{};
  std::memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
  return v;
}

template <int W>
INLINE Lanes<W> larger(const Lanes<W>& a, const Lanes<W>& v) {
  const Lanes<W> b = (Lanes<W>)((Ints<W>)v & 0x7fffffff);
  return a > b ? a : b;
}

template <int W>
INLINE float absmax(const float* x, int64_t cols) {
  Lanes<W> max0{}, max1{}, max2{}, max3{};
  int64_t j = 0;
  for (; j + 4 * W <= cols; j += 4 * W) {
    max0 = larger<W>(max0, load<W>(x + j));
    max1 = larger<W>(max1, load<W>(x + j + W));
    max2 = larger<W>(max2, load<W>(x + j + 2 * W));
    max3 = larger<W>(max3, load<W>(x + j + 3 * W));
  }
  for (; j + W <= cols; j += W) max0 = larger<W>(max0, load<W>(x + j));
  max0 = larger<W>(larger<W>(max0, max1), larger<W>(max2, max3));
  max0 = larger<W>(max0, load_some<W>(x + j, cols - j));
  float lanes[W];
  std::memcpy(lanes, &max0, sizeof(lanes));
  return *std::max_element(lanes, lanes + W);
}

// The e4m3 numbers nearest to v * factor, which is at most 448 but for rounding errors, so nothing overflows. Half of
// the last bit that stays is added to the bits (less one where the number below is even), and what is too much is
// shifted out; exponents are rebiased. Below 2^-6 adding 2^14 rounds to multiples of 2^-9, left in the low bits.
template <int W>
INLINE Bytes<W> round_to_bytes(const Lanes<W>& v, float factor) {
  const Ints<W> bits = (Ints<W>)(v * factor), size = bits & 0x7fffffff;
  const Ints<W> normal = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120 << 3);
  const Ints<W> subnormal = (Ints<W>)((Lanes<W>)size + 16384.0f) - 0x46800000;  // the bits of 16384.0f
  const Ints<W> code = (Lanes<W>)size < 0.015625f ? subnormal : normal;
  return __builtin_convertvector(code | (bits >> 24 & 0x80), Bytes<W>);
}

template <int W>
INLINE void quantise_rows(uint8_t* q, float* scale, const float* x, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row, x += cols, q += cols) {
    const float max = std::max(absmax<W>(x, cols), 1e-12f);
    const float factor = 448.0f / max;
    scale[row] = max / 448.0f;
    int64_t j = 0;
    for (; j + W <= cols; j += W) {
      __builtin_prefetch(x + cols + j);  // the next row comes in while this one is being written
      *reinterpret_cast<typename Unaligned<W>::bytes*>(q + j) = round_to_bytes<W>(load<W>(x + j), factor);
    }
    const Bytes<W> last = round_to_bytes<W>(load_some<W>(x + j, cols - j), factor);
    std::memcpy(q + j, &last, static_cast<size_t>(cols - j));
  }
}

using Rows = void (*)(uint8_t*, float*, const float*, int64_t, int64_t);
#define DEFINE_ROWS(NAME, W)                                                               \
  void NAME(uint8_t* q, float* scale, const float* x, int64_t rows, int64_t cols) { \
    quantise_rows<W>(q, scale, x, rows, cols);                                             \
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

void quantize_fp8(const torch::stable::Tensor& q, const torch::stable::Tensor& scale,
                   const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && q.dim() == 2 && scale.dim() == 1, "quantize_fp8: expected (rows, cols) and (rows,)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(q.size(0) == rows && q.size(1) == cols && scale.size(0) == rows, "quantize_fp8: shapes differ");
  STD_TORCH_CHECK(q.scalar_type() == ScalarType::Float8_e4m3fn, "quantize_fp8: q is float8_e4m3fn");
  STD_TORCH_CHECK(scale.scalar_type() == ScalarType::Float, "quantize_fp8: scale is float32");
  STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float, "quantize_fp8: the CPU kernel takes float32");
  for (const auto* t : {&q, &scale, &x}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "quantize_fp8: expected contiguous CPU tensors");
  }
  static const Rows run = pick_rows();
  run(static_cast<uint8_t*>(q.mutable_data_ptr()), static_cast<float*>(scale.mutable_data_ptr()),
      static_cast<const float*>(x.const_data_ptr()), rows, cols);
}
