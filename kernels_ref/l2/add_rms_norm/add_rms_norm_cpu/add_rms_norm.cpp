// Residual add and RMS norm on the CPU, float32.
//
// Two sweeps over each row: the first adds, writes the residual back and sums the squares; the second scales the row,
// which is then in the L1 cache. Memory is touched once for each operand; PyTorch writes the sum and reads it back.
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

// residual += x over one row; returns the sum of squares. Two accumulators, so that adds do not wait for each other.
template <int W>
INLINE float add_row(float* residual, const float* x, int64_t cols) {
  Lanes<W> sum0{}, sum1{};
  int64_t j = 0;
  for (; j + 2 * W <= cols; j += 2 * W) {  // no mutate: the lines below take what is left
    const Lanes<W> v0 = load<W>(x + j) + load<W>(residual + j);
    const Lanes<W> v1 = load<W>(x + j + W) + load<W>(residual + j + W);
    store<W>(residual + j, v0);
    store<W>(residual + j + W, v1);
    sum0 += v0 * v0;
    sum1 += v1 * v1;
  }
  float total = sum_lanes<W>(sum0 + sum1);
  for (; j < cols; ++j) {
    residual[j] += x[j];
    total += residual[j] * residual[j];
  }
  return total;
}

template <int W>
INLINE void norm_rows(float* out, const float* x, float* residual, const float* weight, int64_t rows, int64_t cols,
                      float eps) {
  const float inv_cols = 1.0f / static_cast<float>(cols);
  for (int64_t row = 0; row < rows; ++row, x += cols, residual += cols, out += cols) {
    const float scale = 1.0f / std::sqrt(add_row<W>(residual, x, cols) * inv_cols + eps);
    int64_t j = 0;
    for (; j + W <= cols; j += W) {  // no mutate: the line below takes what is left
      store<W>(out + j, load<W>(residual + j) * scale * load<W>(weight + j));
    }
    for (; j < cols; ++j) out[j] = residual[j] * scale * weight[j];
  }
}

using Rows = void (*)(float*, const float*, float*, const float*, int64_t, int64_t, float);
#define DEFINE_ROWS(NAME, W)                                                                              \
  void NAME(float* out, const float* x, float* residual, const float* weight, int64_t rows, int64_t cols, \
            float eps) {                                                                                  \
    norm_rows<W>(out, x, residual, weight, rows, cols, eps);                                              \
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

void add_rms_norm(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                  const torch::stable::Tensor& residual, const torch::stable::Tensor& weight, double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && out.dim() == 2 && residual.dim() == 2 && weight.dim() == 1,
                  "add_rms_norm: expected (rows, cols) and (cols,)");
  const int64_t rows = x.size(0), cols = x.size(1);
  STD_TORCH_CHECK(out.size(0) == rows && out.size(1) == cols && residual.size(0) == rows && residual.size(1) == cols &&
                      weight.size(0) == cols,
                  "add_rms_norm: shapes differ");
  for (const auto* t : {&out, &x, &residual, &weight}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "add_rms_norm: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "add_rms_norm: expected contiguous CPU tensors");
  }
  static const Rows run = pick_rows();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
      static_cast<float*>(residual.mutable_data_ptr()), static_cast<const float*>(weight.const_data_ptr()), rows, cols,
      static_cast<float>(eps));
}
