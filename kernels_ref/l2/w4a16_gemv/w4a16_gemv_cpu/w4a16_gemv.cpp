// A few vectors times packed 4-bit weights on the CPU, float32.
//
// No dequantised matrix is ever written: four bytes are one integer of eight digits, so digit d of W of them is the
// weights of W columns that are 8 apart. The columns of x are sorted by their remainder by 8 first, once for a call, so
// that every digit meets whole vectors. A group of 128 weights is summed without its scale, multiplied in at its end.
// Two rows share the loads of x. Written once for W lanes, compiled for AVX-512, AVX2 and the baseline; cpuid picks.

#include <cstdint>
#include <cstring>
#include <memory>

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
using Ints __attribute__((vector_size(W * 4))) = int32_t;

constexpr int64_t kGroup = 128, kDigits = 8;

// Halves are added to each other.
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

// Digit d of every lane, less the zero point of 8. A shuffle uses as many bits of an index as 16 lanes have: one digit.
template <int W>
INLINE Lanes<W> weights(const Ints<W>& words, int d) {
  if constexpr (W == 16) {
    const Lanes<16> values = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    return __builtin_shuffle(values, words >> 4 * d);
  } else {
    return __builtin_convertvector((words >> 4 * d & 15) - 8, Lanes<W>);
  }
}

// out[b * stride + r] for R rows and B vectors. `x` has, for every vector, the columns 0, 8, 16 .., then 1, 9, 17 ..
template <int W, int R, int B>
INLINE void multiply(float* out, int64_t stride, const float* x, const uint8_t* packed, const float* scales,
                     int64_t groups) {
  const int64_t words = groups * kGroup / kDigits;
  Lanes<W> total[R][B]{};
  for (int64_t g = 0; g < groups; ++g) {
    Lanes<W> sum[R][B]{};
    for (int64_t j = g * kGroup / kDigits; j < (g + 1) * kGroup / kDigits; j += W) {
      for (int r = 0; r < R; ++r) {
        Ints<W> word;
        std::memcpy(&word, packed + 4 * (r * words + j), sizeof(word));
#pragma GCC unroll 8
        for (int d = 0; d < kDigits; ++d) {
          const Lanes<W> weight = weights<W>(word, d);
          for (int b = 0; b < B; ++b) sum[r][b] += weight * load<W>(x + (b * kDigits + d) * words + j);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int b = 0; b < B; ++b) total[r][b] += sum[r][b] * scales[r * groups + g];
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int b = 0; b < B; ++b) out[b * stride + r] = sum_lanes<W>(total[r][b]);
  }
}

template <int W, int B>
INLINE void all_rows(float* out, const float* x, const uint8_t* packed, const float* scales, int64_t n,
                     int64_t groups) {
  const int64_t half = groups * kGroup / 2;
  int64_t i = 0;
  for (; i + 2 <= n; i += 2)  // no mutate: a row left over is done below
    multiply<W, 2, B>(out + i, n, x, packed + i * half, scales + i * groups, groups);
  for (; i < n; ++i) multiply<W, 1, B>(out + i, n, x, packed + i * half, scales + i * groups, groups);
}

template <int W>
INLINE void gemv_rows(float* out, const float* x, const uint8_t* packed, const float* scales, int64_t batch, int64_t n,
                      int64_t groups) {
  switch (batch) {
    case 1: return all_rows<W, 1>(out, x, packed, scales, n, groups);
    case 2: return all_rows<W, 2>(out, x, packed, scales, n, groups);
    case 3: return all_rows<W, 3>(out, x, packed, scales, n, groups);
    case 4: return all_rows<W, 4>(out, x, packed, scales, n, groups);
  }
}

using Gemv = void (*)(float*, const float*, const uint8_t*, const float*, int64_t, int64_t, int64_t);
#define DEFINE_GEMV(NAME, W)                                                                                   \
  void NAME(float* out, const float* x, const uint8_t* packed, const float* scales, int64_t batch, int64_t n, \
            int64_t groups) {                                                                                  \
    gemv_rows<W>(out, x, packed, scales, batch, n, groups);                                                    \
  }

DEFINE_GEMV(gemv_baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_GEMV(gemv_avx2, 8)
__attribute__((target("avx512f"))) DEFINE_GEMV(gemv_avx512, 16)
#endif

Gemv pick_gemv() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return gemv_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return gemv_avx2;
#endif
  return gemv_baseline;
}

}  // namespace

void w4a16_gemv(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& packed,
                const torch::stable::Tensor& scales) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && packed.dim() == 2 && scales.dim() == 2 && out.dim() == 2,
                  "w4a16_gemv: expected (batch, n), (batch, k), (n, k / 2) and (n, k / 128)");
  const int64_t batch = x.size(0), n = scales.size(0), groups = scales.size(1), k = groups * kGroup;
  STD_TORCH_CHECK(x.size(1) == k && packed.size(0) == n && packed.size(1) == k / 2 && out.size(0) == batch &&
                      out.size(1) == n,
                  "w4a16_gemv: shapes differ");
  STD_TORCH_CHECK(batch >= 1 && batch <= 4, "w4a16_gemv: expected a batch of 1 to 4");
  STD_TORCH_CHECK(packed.scalar_type() == ScalarType::Byte, "w4a16_gemv: expected packed weights in uint8");
  for (const auto* t : {&out, &x, &scales}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "w4a16_gemv: the CPU kernel takes float32");
  }
  for (const auto* t : {&out, &x, &packed, &scales}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "w4a16_gemv: expected contiguous CPU tensors");
  }
  const std::unique_ptr<float[]> memory(new float[batch * k + 16]);
  // Vectors do not straddle cache lines.
  float* const sorted = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) / 64 * 64);
  const float* values = static_cast<const float*>(x.const_data_ptr());
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t j = 0; j < k; ++j) sorted[b * k + j % kDigits * (k / kDigits) + j / kDigits] = values[b * k + j];
  }
  static const Gemv run = pick_gemv();
  run(static_cast<float*>(out.mutable_data_ptr()), sorted, static_cast<const uint8_t*>(packed.const_data_ptr()),
      static_cast<const float*>(scales.const_data_ptr()), batch, n, groups);
}
