// 3 x 3 convolution, bias, SiLU and residual add on the CPU, float32, stride 1, padding 1.
//
// Every image is copied once into a buffer with its border of zeros; rows follow each other without a gap, so all
// outputs of a channel are one long row: output q needs the buffer at q, q + 1, q + 2 and the same one and two rows
// further. (Two outputs in every row lie in the border. They are computed and not stored.) So vectors are whole even
// where images are narrow. R output channels by V vectors are kept in registers over all input channels: a vector of
// the image serves R channels, and a weight V vectors.
// Bias, SiLU and residual are applied to the sums while they are in the L1 cache, on their way to `out`.
// Written once for W lanes, compiled for AVX-512, AVX2 and the baseline; cpuid picks.

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

// 2^v for -125 <= v <= 125, what lies beyond counts as that. Adding 1.5 * 2^23 rounds v to an integer n, left in the
// low bits; a polynomial is 2^(v - n) (minimax fit of degree 5 on [-0.5, 0.5], 7.5e-8 relative), and n is added to its
// exponent bits.
template <int W>
INLINE Lanes<W> power_of_two(const Lanes<W>& x) {
  const Lanes<W> low = x < -125.0f ? Lanes<W>{} - 125.0f : x;
  const Lanes<W> v = low > 125.0f ? Lanes<W>{} + 125.0f : low;
  const Lanes<W> shifted = v + 12582912.0f;
  const Lanes<W> f = v - (shifted - 12582912.0f);
  Lanes<W> p = f * 0.00132764052f + 0.0096755408f;
  p = p * f + 0.0555071348f;
  p = p * f + 0.240221197f;
  p = p * f + 0.693146967f;
  p = p * f + 1.00000007f;
  return (Lanes<W>)((Ints<W>)p + ((Ints<W>)shifted << 23));
}

template <int W>
INLINE Lanes<W> silu(const Lanes<W>& x) {
  return x / (power_of_two<W>(x * -1.44269504f) + 1.0f);
}

struct Shape {
  int64_t batch, in_channels, out_channels, height, width;
  int64_t pitch() const { return width + 2; }
  int64_t plane() const { return (height + 2) * pitch(); }  // of one channel in the buffer
};

// sum[r][v] for R output channels and V vectors of outputs that begin at `x` in the buffer's first channel.
template <int W, int R, int V>
INLINE void block(Lanes<W> (&sum)[R][V], const float* x, const float* weight, const Shape& s) {
  for (int64_t c = 0; c < s.in_channels; ++c, x += s.plane(), weight += 9) {
#pragma GCC unroll 9
    for (int tap = 0; tap < 9; ++tap) {
      const float* from = x + tap / 3 * s.pitch() + tap % 3;
      Lanes<W> values[V];
      for (int v = 0; v < V; ++v) values[v] = load<W>(from + v * W);
      for (int r = 0; r < R; ++r) {
        for (int v = 0; v < V; ++v) sum[r][v] += values[v] * weight[r * s.in_channels * 9 + tap];
      }
    }
  }
}

// Adds the residual to those of `count` outputs from position `q` that do not lie in the border, and stores them.
INLINE void store_inside(float* out, const float* residual, const float* values, int64_t q, int64_t count,
                         const Shape& s) {
  while (count > 0 && q < s.height * s.pitch()) {
    const int64_t row = q / s.pitch(), column = q % s.pitch(), left = s.pitch() - column;
    const int64_t part = left < count ? left : count, inside = s.width - column < part ? s.width - column : part;
    const int64_t to = row * s.width + column;
    for (int64_t i = 0; i < inside; ++i) out[to + i] = residual[to + i] + values[i];
    values += part;
    q += part;
    count -= part;
  }
}

// R channels of an image, from channel `o`.
template <int W, int R, int V>
INLINE void channels(float* out, const float* buffer, const float* weight, int64_t o, const Shape& s,
                     const float* bias, const float* residual) {
  for (int64_t q = 0; q < s.height * s.pitch(); q += V * W) {
    Lanes<W> sum[R][V]{};
    block<W, R, V>(sum, buffer + q, weight + o * s.in_channels * 9, s);
    for (int r = 0; r < R; ++r) {
      for (auto& v : sum[r]) v = silu<W>(v + bias[o + r]);
      const int64_t channel = (o + r) * s.height * s.width;
      store_inside(out + channel, residual + channel, reinterpret_cast<const float*>(sum[r]), q, V * W, s);
    }
  }
}

template <int W, int R, int V>
INLINE void images(float* out, const float* x, const float* weight, const float* bias, const float* residual,
                   const Shape& s) {
  // A block may be read V * W floats beyond the last channel.
  const std::unique_ptr<float[]> buffer(new float[s.in_channels * s.plane() + V * W + 2]());  // no mutate: slack
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t row = 0; row < s.in_channels * s.height; ++row, x += s.width)
      std::memcpy(&buffer[row / s.height * s.plane() + (row % s.height + 1) * s.pitch() + 1], x,
                  static_cast<size_t>(s.width) * sizeof(float));
    float* image = out + b * s.out_channels * s.height * s.width;
    const float* rest = residual + b * s.out_channels * s.height * s.width;
    int64_t o = 0;
    for (; o + R <= s.out_channels; o += R)  // no mutate: channels left over are done below
      channels<W, R, V>(image, buffer.get(), weight, o, s, bias, rest);
    for (; o < s.out_channels; ++o) channels<W, 1, V>(image, buffer.get(), weight, o, s, bias, rest);
  }
}

using Convolve = void (*)(float*, const float*, const float*, const float*, const float*, const Shape&);
#define DEFINE_CONVOLVE(NAME, W, R, V)                                                                             \
  void NAME(float* out, const float* x, const float* weight, const float* bias, const float* residual,           \
            const Shape& s) {                                                                                     \
    images<W, R, V>(out, x, weight, bias, residual, s);                                                           \
  }

DEFINE_CONVOLVE(convolve_baseline, 4, 4, 2)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_CONVOLVE(convolve_avx2, 8, 4, 2)
__attribute__((target("avx512f"))) DEFINE_CONVOLVE(convolve_avx512, 16, 8, 3)
#endif

Convolve pick_convolve() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return convolve_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return convolve_avx2;
#endif
  return convolve_baseline;
}

}  // namespace

void conv_block(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& weight,
                const torch::stable::Tensor& bias, const torch::stable::Tensor& residual) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 4 && weight.dim() == 4 && out.dim() == 4 && residual.dim() == 4 && bias.dim() == 1,
                  "conv_block: expected NCHW images, (out_channels, in_channels, 3, 3) and (out_channels,)");
  const Shape s{x.size(0), x.size(1), weight.size(0), x.size(2), x.size(3)};
  STD_TORCH_CHECK(weight.size(1) == s.in_channels && weight.size(2) == 3 && weight.size(3) == 3,
                  "conv_block: expected a weight of (out_channels, in_channels, 3, 3)");
  STD_TORCH_CHECK(bias.size(0) == s.out_channels, "conv_block: shapes differ");
  for (const auto* t : {&out, &residual}) {
    STD_TORCH_CHECK(t->size(0) == s.batch && t->size(1) == s.out_channels && t->size(2) == s.height &&
                        t->size(3) == s.width,
                    "conv_block: shapes differ");
  }
  for (const auto* t : {&out, &x, &weight, &bias, &residual}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "conv_block: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "conv_block: expected contiguous CPU tensors");
  }
  static const Convolve run = pick_convolve();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
      static_cast<const float*>(weight.const_data_ptr()), static_cast<const float*>(bias.const_data_ptr()),
      static_cast<const float*>(residual.const_data_ptr()), s);
}
