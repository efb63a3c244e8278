// Group norm on the CPU, float32.
//
// A group is one contiguous piece of memory. Three sweeps over it while it sits in the L1 or L2 cache: the mean; the
// squares of the centred values (no cancellation, whatever the offset); then scale and shift, channel by channel.
// Written once for W lanes, compiled for AVX-512, AVX2 and the baseline; cpuid picks.

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

// The first `count` < W lanes only; the others are read as 0.
template <int W>
INLINE Lanes<W> load_some(const float* p, int64_t count) {
  Lanes<W> v{};
  std::memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
  return v;
}
template <int W>
INLINE void store_some(float* p, const Lanes<W>& v, int64_t count) {
  std::memcpy(p, &v, static_cast<size_t>(count) * sizeof(float));
}

// Four short chains of adds, not one long one: short rows wait for this.
template <int W>
INLINE float sum_lanes(const Lanes<W>& v) {
  float part[4] = {v[0], v[1], v[2], v[3]};
  for (int lane = 4; lane < W; ++lane) part[lane & 3] += v[lane];  // no mutate: any chain may take a lane
  return (part[0] + part[1]) + (part[2] + part[3]);
}

// Sum over `count` elements of (x - centre)^Power, Power 1 or 2.
template <int W, int Power>
INLINE float row_sum(const float* x, int64_t count, float centre) {
  Lanes<W> sum0{}, sum1{}, sum2{}, sum3{};
  int64_t j = 0;
  for (; j + 4 * W <= count; j += 4 * W) {  // no mutate: the loop below takes what is left
    const Lanes<W> v0 = load<W>(x + j) - centre, v1 = load<W>(x + j + W) - centre;
    const Lanes<W> v2 = load<W>(x + j + 2 * W) - centre, v3 = load<W>(x + j + 3 * W) - centre;
    sum0 += Power == 1 ? v0 : v0 * v0;
    sum1 += Power == 1 ? v1 : v1 * v1;
    sum2 += Power == 1 ? v2 : v2 * v2;
    sum3 += Power == 1 ? v3 : v3 * v3;
  }
  float total = sum_lanes<W>((sum0 + sum1) + (sum2 + sum3));
  for (; j < count; ++j) total += Power == 1 ? x[j] - centre : (x[j] - centre) * (x[j] - centre);
  return total;
}

// One channel: out = (x - mean) * scale + shift.
template <int W>
INLINE void finish_channel(float* out, const float* x, int64_t count, float mean, float scale, float shift) {
  int64_t j = 0;
  for (; j + W <= count; j += W) {  // no mutate: the lines below take what is left
    store<W>(out + j, (load<W>(x + j) - mean) * scale + shift);
  }
  if (j < count) {
    const int64_t rest = count - j;
    store_some<W>(out + j, (load_some<W>(x + j, rest) - mean) * scale + shift, rest);
  }
}

// `width` channels to a group; weight and bias start again with every sample.
template <int W>
INLINE void norm_groups(float* out, const float* x, const float* weight, const float* bias, int64_t n, int64_t groups,
                        int64_t width, int64_t positions, float eps) {
  const int64_t count = width * positions;
  const float inv_count = 1.0f / static_cast<float>(count);
  for (int64_t index = 0; index < n * groups; ++index, x += count, out += count) {
    // The first element as a provisional centre keeps the float32 sum accurate for groups far from zero.
    const float mean = x[0] + row_sum<W, 1>(x, count, x[0]) * inv_count;
    const float variance = row_sum<W, 2>(x, count, mean) * inv_count;
    const float scale = 1.0f / std::sqrt(variance + eps);
    const int64_t first = index % groups * width;
    for (int64_t c = 0; c < width; ++c) {
      finish_channel<W>(out + c * positions, x + c * positions, positions, mean, scale * weight[first + c],
                        bias[first + c]);
    }
  }
}

using Rows = void (*)(float*, const float*, const float*, const float*, int64_t, int64_t, int64_t, int64_t, float);
#define DEFINE_ROWS(NAME, W)                                                                               \
  void NAME(float* out, const float* x, const float* weight, const float* bias, int64_t n, int64_t groups, \
            int64_t width, int64_t positions, float eps) {                                                 \
    norm_groups<W>(out, x, weight, bias, n, groups, width, positions, eps);                                \
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

void group_norm(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& weight,
                const torch::stable::Tensor& bias, double eps, int64_t groups) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3 && weight.dim() == 1 && bias.dim() == 1,
                  "group_norm: expected (n, channels, positions) and (channels,)");
  const int64_t n = x.size(0), channels = x.size(1), positions = x.size(2);
  STD_TORCH_CHECK(out.size(0) == n && out.size(1) == channels && out.size(2) == positions &&
                      weight.size(0) == channels && bias.size(0) == channels,
                  "group_norm: shapes differ");
  STD_TORCH_CHECK(groups > 0 && channels % groups == 0, "group_norm: groups must divide channels");
  for (const auto* t : {&out, &x, &weight, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "group_norm: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "group_norm: expected contiguous CPU tensors");
  }
  if (channels == 0 || positions == 0) return;
  static const Rows run = pick_rows();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
      static_cast<const float*>(weight.const_data_ptr()), static_cast<const float*>(bias.const_data_ptr()), n, groups,
      channels / groups, positions, static_cast<float>(eps));
}
