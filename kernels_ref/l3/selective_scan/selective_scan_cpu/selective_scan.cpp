// Selective state-space scan on the CPU, float32.
//
// Nothing of size dim * state * length is ever written: a state is one number in a register. W channels make a vector,
// so a step needs no sum across lanes: their states are `state` vectors in the L1 cache, B and C are one number for all
// of them. u and delta of W channels are turned around, a tile of steps at a time, so that a step is one vector.
// Written once for W lanes, compiled for AVX-512, AVX2 and the baseline; cpuid picks.

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
using Ints __attribute__((vector_size(W * 4))) = int32_t;

// 2^v for v <= 0, clamped at -125. Adding 1.5 * 2^23 rounds v to an integer n, left in the low bits; a polynomial is
// 2^(v - n) (minimax fit of degree 5 on [-0.5, 0.5], 7.5e-8 relative), and n is added to its exponent bits.
template <int W>
INLINE Lanes<W> power_of_two(const Lanes<W>& x) {
  const Lanes<W> v = x < -125.0f ? Lanes<W>{} - 125.0f : x;
  const Lanes<W> shifted = v + 12582912.0f;
  const Lanes<W> f = v - (shifted - 12582912.0f);
  Lanes<W> p = f * 0.00132764052f + 0.0096755408f;
  p = p * f + 0.0555071348f;
  p = p * f + 0.240221197f;
  p = p * f + 0.693146967f;
  p = p * f + 1.00000007f;
  return (Lanes<W>)((Ints<W>)p + ((Ints<W>)shifted << 23));
}

constexpr int64_t kStates = 16;  // most states
constexpr int64_t kSteps = 64;   // of a tile
constexpr float kLog2E = 1.44269504f;

struct Shape {
  int64_t batch, dim, state, length;
};
struct Operands {
  float* out;
  const float *u, *delta, *A, *B, *C, *D;
};

// tile[t][lane] from or to rows of `length`, for `lanes` <= W rows and `steps` columns.
template <int W>
INLINE void turn_in(float* tile, const float* rows, int64_t lanes, int64_t steps, int64_t length) {
  for (int64_t lane = 0; lane < lanes; ++lane) {
    for (int64_t t = 0; t < steps; ++t) tile[t * W + lane] = rows[lane * length + t];
  }
}
template <int W>
INLINE void turn_out(float* rows, const float* tile, int64_t lanes, int64_t steps, int64_t length) {
  for (int64_t lane = 0; lane < lanes; ++lane) {
    for (int64_t t = 0; t < steps; ++t) rows[lane * length + t] = tile[t * W + lane];
  }
}

// Channels d to d + lanes - 1 of sequence b, all steps.
template <int W>
INLINE void scan_channels(const Operands& o, const Shape& s, int64_t b, int64_t d, int64_t lanes) {
  float u[kSteps * W]{}, delta[kSteps * W]{}, out[kSteps * W], a[kStates * W]{}, skip[W]{};
  for (int64_t lane = 0; lane < lanes; ++lane) {
    skip[lane] = o.D[d + lane];
    for (int64_t n = 0; n < s.state; ++n) a[n * W + lane] = o.A[(d + lane) * s.state + n] * kLog2E;
  }
  Lanes<W> h[kStates]{};
  const int64_t row = (b * s.dim + d) * s.length;
  for (int64_t first = 0; first < s.length; first += kSteps) {
    const int64_t steps = s.length - first < kSteps ? s.length - first : kSteps;
    turn_in<W>(u, o.u + row + first, lanes, steps, s.length);
    turn_in<W>(delta, o.delta + row + first, lanes, steps, s.length);
    for (int64_t t = 0; t < steps; ++t) {
      const Lanes<W> dt = load<W>(delta + t * W), x = load<W>(u + t * W), input = dt * x;
      Lanes<W> y = load<W>(skip) * x;
      for (int64_t n = 0; n < s.state; ++n) {
        const int64_t at = (b * s.state + n) * s.length + first + t;
        h[n] = power_of_two<W>(dt * load<W>(a + n * W)) * h[n] + input * o.B[at];
        y += h[n] * o.C[at];
      }
      std::memcpy(out + t * W, &y, sizeof(y));
    }
    turn_out<W>(o.out + row + first, out, lanes, steps, s.length);
  }
}

template <int W>
INLINE void scan_all(const Operands& o, const Shape& s) {
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t d = 0; d < s.dim; d += W) scan_channels<W>(o, s, b, d, s.dim - d < W ? s.dim - d : W);
  }
}

using Scan = void (*)(const Operands&, const Shape&);
#define DEFINE_SCAN(NAME, W) \
  void NAME(const Operands& o, const Shape& s) { scan_all<W>(o, s); }

DEFINE_SCAN(scan_baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_SCAN(scan_avx2, 8)
__attribute__((target("avx512f"))) DEFINE_SCAN(scan_avx512, 16)
#endif

Scan pick_scan() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return scan_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return scan_avx2;
#endif
  return scan_baseline;
}

}  // namespace

void selective_scan(const torch::stable::Tensor& out, const torch::stable::Tensor& u,
                    const torch::stable::Tensor& delta, const torch::stable::Tensor& A,
                    const torch::stable::Tensor& B, const torch::stable::Tensor& C, const torch::stable::Tensor& D) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(u.dim() == 3 && delta.dim() == 3 && out.dim() == 3 && A.dim() == 2 && B.dim() == 3 && C.dim() == 3 &&
                      D.dim() == 1,
                  "selective_scan: expected (batch, dim, length), (dim, state), (batch, state, length) and (dim,)");
  const Shape s{u.size(0), u.size(1), A.size(1), u.size(2)};
  for (const auto* t : {&out, &delta}) {
    STD_TORCH_CHECK(t->size(0) == s.batch && t->size(1) == s.dim && t->size(2) == s.length,
                    "selective_scan: shapes differ");
  }
  for (const auto* t : {&B, &C}) {
    STD_TORCH_CHECK(t->size(0) == s.batch && t->size(1) == s.state && t->size(2) == s.length,
                    "selective_scan: shapes differ");
  }
  STD_TORCH_CHECK(A.size(0) == s.dim && D.size(0) == s.dim, "selective_scan: shapes differ");
  STD_TORCH_CHECK(s.state >= 1 && s.state <= kStates, "selective_scan: expected 1 to 16 states");
  for (const auto* t : {&out, &u, &delta, &A, &B, &C, &D}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "selective_scan: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "selective_scan: expected contiguous CPU tensors");
  }
  const auto read = [](const torch::stable::Tensor& t) { return static_cast<const float*>(t.const_data_ptr()); };
  static const Scan run = pick_scan();
  run({static_cast<float*>(out.mutable_data_ptr()), read(u), read(delta), read(A), read(B), read(C), read(D)}, s);
}
