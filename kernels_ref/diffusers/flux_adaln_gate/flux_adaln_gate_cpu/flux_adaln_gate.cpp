// Gated residual and modulated layer norm on the CPU, float32.
//
// Three sweeps over each token while it sits in the L1 cache: the gate, written to `out`, with the sum for the mean;
// the squares of the centred values (no cancellation, whatever the offset of the token); then normalise, scale and
// shift in one go. Memory is read once and written once, where PyTorch writes and reads back four temporaries.
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
  for (int lane = 4; lane < W; ++lane) part[lane % 4] += v[lane];  // no mutate: past the end is undefined
  return (part[0] + part[1]) + (part[2] + part[3]);
}

struct Pointers {
  float* out;
  float* norm;
  const float* residual;
  const float* x;
  const float* gate;
  const float* scale;
  const float* shift;
};

// The W elements at j, or fewer at the end of a row: `rest` is how many there are, `whole` whether that is all W.
template <int W>
INLINE Lanes<W> take(const float* p, int64_t rest, bool whole) {
  return whole ? load<W>(p) : load_some<W>(p, rest);
}

template <int W>
INLINE void one_token(const Pointers& p, int64_t hidden, float eps) {
  const float inv = 1.0f / static_cast<float>(hidden);
  Lanes<W> sum0{}, sum1{};
  int64_t j = 0;
  for (; j + 2 * W <= hidden; j += 2 * W) {
    const Lanes<W> v0 = load<W>(p.residual + j) + load<W>(p.gate + j) * load<W>(p.x + j);
    const Lanes<W> v1 = load<W>(p.residual + j + W) + load<W>(p.gate + j + W) * load<W>(p.x + j + W);
    store<W>(p.out + j, v0);
    store<W>(p.out + j + W, v1);
    sum0 += v0;
    sum1 += v1;
  }
  float total = sum_lanes<W>(sum0 + sum1);
  for (; j < hidden; ++j) {
    p.out[j] = p.residual[j] + p.gate[j] * p.x[j];
    total += p.out[j];
  }
  const float mean = total * inv;

  Lanes<W> squares0{}, squares1{};
  for (j = 0; j + 2 * W <= hidden; j += 2 * W) {
    const Lanes<W> d0 = load<W>(p.out + j) - mean, d1 = load<W>(p.out + j + W) - mean;
    squares0 += d0 * d0;
    squares1 += d1 * d1;
  }
  float squares = sum_lanes<W>(squares0 + squares1);
  for (; j < hidden; ++j) squares += (p.out[j] - mean) * (p.out[j] - mean);
  const float inv_std = 1.0f / std::sqrt(squares * inv + eps);

  for (j = 0; j < hidden; j += W) {  // no mutate: a vector with nothing in it writes nothing
    const int64_t rest = hidden - j;
    const bool whole = rest >= W;
    const Lanes<W> v = (take<W>(p.out + j, rest, whole) - mean) * inv_std;
    const Lanes<W> result = v * (take<W>(p.scale + j, rest, whole) + 1.0f) + take<W>(p.shift + j, rest, whole);
    if (whole) {
      store<W>(p.norm + j, result);
    } else {
      store_some<W>(p.norm + j, result, rest);
    }
  }
}

template <int W>
INLINE void all_tokens(Pointers p, int64_t batch, int64_t tokens, int64_t hidden, float eps) {
  for (int64_t b = 0; b < batch; ++b, p.gate += hidden, p.scale += hidden, p.shift += hidden) {
    for (int64_t t = 0; t < tokens; ++t, p.out += hidden, p.norm += hidden, p.residual += hidden, p.x += hidden) {
      one_token<W>(p, hidden, eps);
    }
  }
}

using Run = void (*)(const Pointers&, int64_t, int64_t, int64_t, float);
#define DEFINE_RUN(NAME, W)                                                                       \
  void NAME(const Pointers& p, int64_t batch, int64_t tokens, int64_t hidden, float eps) { \
    all_tokens<W>(p, batch, tokens, hidden, eps);                                                 \
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

float* writable(const torch::stable::Tensor& t) { return static_cast<float*>(t.mutable_data_ptr()); }
const float* readable(const torch::stable::Tensor& t) { return static_cast<const float*>(t.const_data_ptr()); }

}  // namespace

void flux_adaln_gate(const torch::stable::Tensor& out, const torch::stable::Tensor& norm,
                     const torch::stable::Tensor& residual, const torch::stable::Tensor& x,
                     const torch::stable::Tensor& gate, const torch::stable::Tensor& scale,
                     const torch::stable::Tensor& shift, double eps) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3, "flux_adaln_gate: expected (batch, tokens, hidden)");
  const int64_t batch = x.size(0), tokens = x.size(1), hidden = x.size(2);
  for (const auto* t : {&out, &norm, &residual}) {
    STD_TORCH_CHECK(t->dim() == 3 && t->size(0) == batch && t->size(1) == tokens && t->size(2) == hidden,
                    "flux_adaln_gate: expected (batch, tokens, hidden) like x");
  }
  for (const auto* t : {&gate, &scale, &shift}) {
    STD_TORCH_CHECK(t->dim() == 2 && t->size(0) == batch && t->size(1) == hidden,
                    "flux_adaln_gate: expected (batch, hidden)");
  }
  for (const auto* t : {&out, &norm, &residual, &x, &gate, &scale, &shift}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "flux_adaln_gate: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "flux_adaln_gate: expected contiguous CPU tensors");
  }
  if (hidden == 0) return;
  static const Run run = pick_run();
  run({writable(out), writable(norm), readable(residual), readable(x), readable(gate), readable(scale),
       readable(shift)},
      batch, tokens, hidden, static_cast<float>(eps));
}
