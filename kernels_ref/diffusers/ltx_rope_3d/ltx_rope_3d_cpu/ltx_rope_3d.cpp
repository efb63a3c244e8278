// Rotary embedding over interleaved pairs on the CPU, float32.
//
// One sweep: a vector of x, of the cosines and of the sines is read once and the rotated vector is written once, with
// no temporaries (PyTorch makes the rotated copy, two products and a sum). The lanes of a pair are swapped by one
// shuffle, and the minus of every first lane goes into the sines. A token and its row of the tables are equally long,
// so a whole batch element is one flat run. The body is written once for W lanes and compiled for AVX-512, AVX2 and
// the baseline; cpuid picks one.

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

// The pairs in `v` (lanes 2 i and 2 i + 1) turned by the angles whose cosines and sines are given.
template <int W>
INLINE Lanes<W> turn(const Lanes<W>& v, const Lanes<W>& cos, const Lanes<W>& sin) {
  Ints<W> partner, sign;
  for (int lane = 0; lane < W; ++lane) {  // no mutate: past the end is undefined
    partner[lane] = lane ^ 1;
    sign[lane] = lane % 2 == 0 ? INT32_MIN : 0;
  }
  const Lanes<W> signed_sin = (Lanes<W>)((Ints<W>)sin ^ sign);
  return v * cos + __builtin_shuffle(v, partner) * signed_sin;
}

// `count` elements, even, of one batch element: tokens and tables in step.
template <int W>
INLINE void rotate(float* out, const float* x, const float* cos, const float* sin, int64_t count) {
  int64_t i = 0;
  for (; i + W <= count; i += W) {  // no mutate: count is even, so count + 1 is no multiple of W
    store<W>(out + i, turn<W>(load<W>(x + i), load<W>(cos + i), load<W>(sin + i)));
  }
  if (i < count) {
    const int64_t rest = count - i;
    const Lanes<W> c = load_some<W>(cos + i, rest), s = load_some<W>(sin + i, rest);
    store_some<W>(out + i, turn<W>(load_some<W>(x + i, rest), c, s), rest);
  }
}

using Run = void (*)(float*, const float*, const float*, const float*, int64_t);
#define DEFINE_RUN(NAME, W)                                                                         \
  void NAME(float* out, const float* x, const float* cos, const float* sin, int64_t count) { \
    rotate<W>(out, x, cos, sin, count);                                                             \
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

void ltx_rope_3d(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& cos,
                 const torch::stable::Tensor& sin) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3 && cos.dim() == 2 && sin.dim() == 2,
                  "ltx_rope_3d: expected (batch, tokens, hidden) and (tokens, hidden)");
  const int64_t batch = x.size(0), tokens = x.size(1), hidden = x.size(2);
  STD_TORCH_CHECK(hidden % 2 == 0, "ltx_rope_3d: hidden must be even");
  STD_TORCH_CHECK(out.size(0) == batch && out.size(1) == tokens && out.size(2) == hidden,
                  "ltx_rope_3d: shapes of x and out differ");
  for (const auto* t : {&cos, &sin}) {
    STD_TORCH_CHECK(t->size(0) == tokens && t->size(1) == hidden, "ltx_rope_3d: wrong shape of cos or sin");
  }
  for (const auto* t : {&out, &x, &cos, &sin}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "ltx_rope_3d: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "ltx_rope_3d: expected contiguous CPU tensors");
  }
  static const Run run = pick_run();
  const int64_t count = tokens * hidden;
  for (int64_t b = 0; b < batch; ++b) {
    run(static_cast<float*>(out.mutable_data_ptr()) + b * count,
        static_cast<const float*>(x.const_data_ptr()) + b * count, static_cast<const float*>(cos.const_data_ptr()),
        static_cast<const float*>(sin.const_data_ptr()), count);
  }
}
