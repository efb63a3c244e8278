// Running sums along the last axis on the CPU, float32.
//
// A vector's own running sums take log2(W) shifted adds and depend on nothing before it, so the processor works on
// several vectors at a time; all that one row's vectors wait for is a single scalar addition each. Written once for W
// lanes, compiled for AVX-512, AVX2 and the baseline; cpuid picks.

#include <cstdint>
#include <cstring>
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

template <int W>
INLINE Lanes<W> load(const float* p) {
  return *reinterpret_cast<const typename Unaligned<W>::type*>(p);
}
template <int W>
INLINE void store(float* p, const Lanes<W>& v) {
  *reinterpret_cast<typename Unaligned<W>::type*>(p) = v;
}

// The first `count` < W lanes only; the others are read as `fill`.
template <int W>
INLINE Lanes<W> load_some(const float* p, int64_t count, float fill = 0.0f) {
  Lanes<W> v = fill - Lanes<W>{};
  std::memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
  return v;
}
template <int W>
INLINE void store_some(float* p, const Lanes<W>& v, int64_t count) {
  std::memcpy(p, &v, static_cast<size_t>(count) * sizeof(float));
}

// v[l] + v[l - DISTANCE] in every lane l, v[l] in the first ones. The order is a constant: filled in by a loop it would
// be built lane by lane each time.
template <int W, int DISTANCE, int... LANE>
INLINE Lanes<W> add_shifted(Lanes<W> v, std::integer_sequence<int, LANE...>) {
  constexpr Ints<W> from{(LANE < DISTANCE ? W : LANE - DISTANCE)...};  // lane W is a zero of the second operand
  return v + __builtin_shuffle(v, Lanes<W>{}, from);
}

// v[0], v[0] + v[1], ...
template <int W, int DISTANCE = 1>
INLINE Lanes<W> running_sums(Lanes<W> v) {
  if constexpr (DISTANCE < W) {
    v = running_sums<W, 2 * DISTANCE>(add_shifted<W, DISTANCE>(v, std::make_integer_sequence<int, W>()));
  }
  return v;
}

template <int W>
INLINE void cumsum_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row, x += cols, out += cols) {
    float before = 0.0f;
    int64_t j = 0;
    for (; j + W <= cols; j += W) {  // no mutate: what follows takes a whole vector too
      const Lanes<W> sums = running_sums<W>(load<W>(x + j));
      store<W>(out + j, sums + before);
      before += sums[W - 1];
    }
    const int64_t rest = cols - j;
    if (rest > 0) store_some<W>(out + j, running_sums<W>(load_some<W>(x + j, rest)) + before, rest);  // no mutate: or 0
  }
}

using Rows = void (*)(float*, const float*, int64_t, int64_t);
#define DEFINE_ROWS(NAME, W) \
  void NAME(float* out, const float* x, int64_t rows, int64_t cols) { cumsum_rows<W>(out, x, rows, cols); }

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

void cumsum(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2, "cumsum: expected (rows, cols)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(out.size(0) == rows && out.size(1) == cols, "cumsum: shapes differ");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "cumsum: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "cumsum: expected contiguous CPU tensors");
  }
  static const Rows run = pick_rows();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()), rows, cols);
}
