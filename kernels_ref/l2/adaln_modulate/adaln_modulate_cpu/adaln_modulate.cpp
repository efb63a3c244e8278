// Layer norm with a scale and a shift per sample on the CPU, float32.
//
// Three sweeps over each row while it sits in the L1 cache: the mean; the squares of the centred values (no
// cancellation, whatever the offset of the row); then scale and shift. Memory is read once and written once, where
// PyTorch writes and reads two more tensors of the size of x.
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

// Sum over the row of (x - centre)^Power, Power 1 or 2.
template <int W, int Power>
INLINE float row_sum(const float* x, int64_t cols, float centre) {
  Lanes<W> sum0{}, sum1{}, sum2{}, sum3{};
  int64_t j = 0;
  for (; j + 4 * W <= cols; j += 4 * W) {  // no mutate: the loop below takes what is left
    const Lanes<W> v0 = load<W>(x + j) - centre, v1 = load<W>(x + j + W) - centre;
    const Lanes<W> v2 = load<W>(x + j + 2 * W) - centre, v3 = load<W>(x + j + 3 * W) - centre;
    sum0 += Power == 1 ? v0 : v0 * v0;
    sum1 += Power == 1 ? v1 : v1 * v1;
    sum2 += Power == 1 ? v2 : v2 * v2;
    sum3 += Power == 1 ? v3 : v3 * v3;
  }
  float total = sum_lanes<W>((sum0 + sum1) + (sum2 + sum3));
  for (; j < cols; ++j) total += Power == 1 ? x[j] - centre : (x[j] - centre) * (x[j] - centre);
  return total;
}

// The rows of one sample, which share shift and scale.
template <int W>
INLINE void norm_rows(float* out, const float* x, const float* shift, const float* scale, int64_t rows, int64_t cols,
                      float eps) {
  const float inv_cols = 1.0f / static_cast<float>(cols);
  for (int64_t row = 0; row < rows; ++row, x += cols, out += cols) {
    // The first element as a provisional centre keeps the float32 sum accurate for rows far from zero.
    const float mean = x[0] + row_sum<W, 1>(x, cols, x[0]) * inv_cols;
    const float inv_deviation = 1.0f / std::sqrt(row_sum<W, 2>(x, cols, mean) * inv_cols + eps);
    int64_t j = 0;
    for (; j + W <= cols; j += W) {  // no mutate: the lines below take what is left
      __builtin_prefetch(x + cols + j);  // no mutate: a hint, the next row comes in while this one is written
      const Lanes<W> y = (load<W>(x + j) - mean) * inv_deviation;
      store<W>(out + j, y * (load<W>(scale + j) + 1.0f) + load<W>(shift + j));
    }
    if (j < cols) {
      const int64_t rest = cols - j;
      const Lanes<W> y = (load_some<W>(x + j, rest) - mean) * inv_deviation;
      store_some<W>(out + j, y * (load_some<W>(scale + j, rest) + 1.0f) + load_some<W>(shift + j, rest), rest);
    }
  }
}

using Rows = void (*)(float*, const float*, const float*, const float*, int64_t, int64_t, float);
#define DEFINE_ROWS(NAME, W)                                                                                \
  void NAME(float* out, const float* x, const float* shift, const float* scale, int64_t rows, int64_t cols, \
            float eps) {                                                                                    \
    norm_rows<W>(out, x, shift, scale, rows, cols, eps);                                                    \
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

void adaln_modulate(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                    const torch::stable::Tensor& shift, const torch::stable::Tensor& scale, double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3 && shift.dim() == 2 && scale.dim() == 2,
                  "adaln_modulate: expected (batch, tokens, cols) and (batch, cols)");
  const int64_t batch = x.size(0), tokens = x.size(1), cols = x.size(2);
  STD_TORCH_CHECK(out.size(0) == batch && out.size(1) == tokens && out.size(2) == cols && shift.size(0) == batch &&
                      shift.size(1) == cols && scale.size(0) == batch && scale.size(1) == cols,
                  "adaln_modulate: shapes differ");
  for (const auto* t : {&out, &x, &shift, &scale}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "adaln_modulate: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "adaln_modulate: expected contiguous CPU tensors");
  }
  if (cols == 0) return;
  static const Rows run = pick_rows();
  float* out_data = static_cast<float*>(out.mutable_data_ptr());
  const float* x_data = static_cast<const float*>(x.const_data_ptr());
  const float* shift_data = static_cast<const float*>(shift.const_data_ptr());
  const float* scale_data = static_cast<const float*>(scale.const_data_ptr());
  for (int64_t sample = 0; sample < batch; ++sample) {
    run(out_data + sample * tokens * cols, x_data + sample * tokens * cols, shift_data + sample * cols,
        scale_data + sample * cols, tokens, cols, static_cast<float>(eps));
  }
}
