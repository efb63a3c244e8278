// Softmax of scaled and masked attention scores on the CPU, float32.
//
// Three sweeps over each row while it sits in the L1 cache: masked scores, written to `out`, and their maximum;
// exponentials and their sum; and the division, as one multiplication by the reciprocal. A masked score is -infinity in
// between, and a row that is nothing else gets a factor of 0. The scale is positive, so it can wait until the maximum
// has been subtracted. Written once for W lanes, compiled for AVX-512, AVX2 and the baseline; cpuid picks.

#include <algorithm>
#include <cmath>
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

// 2^v for v <= 0, clamped at -125, and exactly 1 for 0. Adding 1.5 * 2^23 rounds v to an integer n, left in the low
// bits; a polynomial is 2^(v - n) on [-0.5, 0.5] (degree 5, 9.2e-8 relative), and n is added to its exponent bits.
template <int W>
INLINE Lanes<W> power_of_two(const Lanes<W>& x) {
  const Lanes<W> v = x < -125.0f ? Lanes<W>{} - 125.0f : x;
  const Lanes<W> shifted = v + 12582912.0f;
  const Lanes<W> f = v - (shifted - 12582912.0f);
  Lanes<W> p = f * 0.0013264727f + 0.009671513f;
  p = p * f + 0.055507336f;
  p = p * f + 0.24022242f;
  p = p * f + 0.69314700f;
  p = p * f + 1.0f;
  return (Lanes<W>)((Ints<W>)p + ((Ints<W>)shifted << 23));
}

// Halves are added to each other: short rows wait for this.
template <int W>
INLINE float sum_lanes(const Lanes<W>& v) {
  if constexpr (W == 4) {
    return (v[0] + v[1]) + (v[2] + v[3]);
  } else {
    Lanes<W / 2> halves[2];
    std::memcpy(halves, &v, sizeof(v));
    return sum_lanes<W / 2>(halves[0] + halves[1]);
  }
}

template <int W>
INLINE Lanes<W> larger(const Lanes<W>& a, const Lanes<W>& b) {
  return a > b ? a : b;
}
template <int W>
INLINE float max_lanes(const Lanes<W>& v) {
  if constexpr (W == 4) {
    return std::max(std::max(v[0], v[1]), std::max(v[2], v[3]));
  } else {
    Lanes<W / 2> halves[2];
    std::memcpy(halves, &v, sizeof(v));
    return max_lanes<W / 2>(larger<W / 2>(halves[0], halves[1]));
  }
}

constexpr float kLog2E = 1.44269504f;

// Scores where the mask is true, else -infinity. A loop, since __builtin_convertvector would widen bytes one by one.
template <int W>
INLINE Lanes<W> masked(const Lanes<W>& v, const uint8_t* mask) {
  int32_t wide[W]{};
  for (int lane = 0; lane < W; ++lane) wide[lane] = mask[lane];
  Ints<W> allowed;
  std::memcpy(&allowed, wide, sizeof(allowed));
  return allowed != 0 ? v : Lanes<W>{} - INFINITY;
}

template <int W>
INLINE void softmax_row(float* out, const float* x, const uint8_t* mask, int64_t keys, float scale) {
  Lanes<W> largest = Lanes<W>{} - INFINITY;
  int64_t j = 0;
  for (; j + W <= keys; j += W) {  // no mutate: what follows takes a whole vector too
    const Lanes<W> v = masked<W>(load<W>(x + j), mask + j);
    store<W>(out + j, v);
    largest = larger<W>(v, largest);
  }
  const int64_t rest = keys - j;
  if (rest > 0) {  // no mutate: none of 0 elements
    uint8_t allowed[W]{};
    std::memcpy(allowed, mask + j, static_cast<size_t>(rest));
    const Lanes<W> v = masked<W>(load_some<W>(x + j, rest), allowed);
    store_some<W>(out + j, v, rest);
    largest = larger<W>(v, largest);
  }
  const float max = max_lanes<W>(largest);

  const float factor = scale * kLog2E;
  Lanes<W> sum{};
  for (j = 0; j < keys; j += W) {
    const int64_t count = keys - j < W ? keys - j : W;  // no mutate: equal at W
    const Lanes<W> v = count == W ? load<W>(out + j) : load_some<W>(out + j, count, -INFINITY);
    const Lanes<W> e = v > -INFINITY ? power_of_two<W>((v - max) * factor) : Lanes<W>{};
    sum += e;
    if (count == W) {
      store<W>(out + j, e);
    } else {
      store_some<W>(out + j, e, count);
    }
  }
  const float total = sum_lanes<W>(sum), inverse = total > 0.0f ? 1.0f / total : 0.0f;
  for (j = 0; j + W <= keys; j += W) store<W>(out + j, load<W>(out + j) * inverse);  // no mutate: the next loop ends it
  for (; j < keys; ++j) out[j] *= inverse;
}

struct Shape {
  int64_t batch, heads, queries, keys, scores_stride, mask_stride;
};

template <int W>
INLINE void softmax_batches(float* out, const float* scores, const uint8_t* mask, const Shape& s, float scale) {
  for (int64_t b = 0; b < s.batch; ++b) {
    const float* x = scores + b * s.scores_stride;
    for (int64_t h = 0; h < s.heads; ++h) {
      const uint8_t* allowed = mask + b * s.mask_stride;
      for (int64_t q = 0; q < s.queries; ++q, out += s.keys, x += s.keys, allowed += s.keys)
        softmax_row<W>(out, x, allowed, s.keys, scale);
    }
  }
}

using Rows = void (*)(float*, const float*, const uint8_t*, const Shape&, float);
#define DEFINE_ROWS(NAME, W)                                                                     \
  void NAME(float* out, const float* scores, const uint8_t* mask, const Shape& s, float scale) { \
    softmax_batches<W>(out, scores, mask, s, scale);                                             \
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

// Whether everything but the first axis is contiguous; the stride of an axis of size 1 says nothing.
bool dense_batches(const torch::stable::Tensor& t) {
  int64_t expected = 1;
  for (int64_t axis = t.dim() - 1; axis > 0; --axis) {
    if (t.size(axis) != 1 && t.stride(axis) != expected) return false;
    expected *= t.size(axis);
  }
  return true;
}

}  // namespace

void masked_softmax(const torch::stable::Tensor& out, const torch::stable::Tensor& scores,
                    const torch::stable::Tensor& mask, double scale) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(scores.dim() == 4 && out.dim() == 4 && mask.dim() == 3, "masked_softmax: expected 4, 4 and 3 axes");
  const int64_t batch = scores.size(0), heads = scores.size(1), queries = scores.size(2), keys = scores.size(3);
  STD_TORCH_CHECK(out.size(0) == batch && out.size(1) == heads && out.size(2) == queries && out.size(3) == keys &&
                      mask.size(0) == batch && mask.size(1) == queries && mask.size(2) == keys,
                  "masked_softmax: shapes differ");
  STD_TORCH_CHECK(mask.scalar_type() == ScalarType::Bool && out.scalar_type() == scores.scalar_type(),
                  "masked_softmax: expected a bool mask, and one dtype for out and scores");
  STD_TORCH_CHECK(out.is_contiguous() && dense_batches(scores) && dense_batches(mask),
                  "masked_softmax: expected contiguous batches");
  STD_TORCH_CHECK(scores.scalar_type() == ScalarType::Float, "masked_softmax: the CPU kernel takes float32");
  for (const auto* t : {&out, &scores, &mask}) STD_TORCH_CHECK(t->is_cpu(), "masked_softmax: expected CPU tensors");
  static const Rows run = pick_rows();
  const Shape shape{batch, heads, queries, keys, scores.stride(0), mask.stride(0)};
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(scores.const_data_ptr()),
      static_cast<const uint8_t*>(mask.const_data_ptr()), shape, static_cast<float>(scale));
}
