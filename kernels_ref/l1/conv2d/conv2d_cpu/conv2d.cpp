// 3 x 3 convolution on the CPU, float32, stride 1, padding 1.
//
// Every image is copied once into a buffer with its border of zeros; rows follow each other without a gap, so all
// outputs of a channel are one long row: output q needs the buffer at q, q + 1, q + 2 and the same one and two rows
// further. (Two outputs in every row lie in the border. They are computed and not stored.) So vectors are whole even
// where images are narrow. R output channels by V vectors are kept in registers over all input channels: a vector of
// the image serves R channels, and a weight V vectors.
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

// Stores those of `count` outputs from position `q` that do not lie in the border.
INLINE void store_inside(float* out, const float* values, int64_t q, int64_t count, const Shape& s) {
  while (count > 0 && q < s.height * s.pitch()) {
    const int64_t row = q / s.pitch(), column = q % s.pitch(), left = s.pitch() - column;
    const int64_t part = left < count ? left : count, inside = s.width - column < part ? s.width - column : part;
    if (inside > 0) std::memcpy(out + row * s.width + column, values, static_cast<size_t>(inside) * sizeof(float));
    values += part;
    q += part;
    count -= part;
  }
}

// R channels of an image, from channel `o`.
template <int W, int R, int V>
INLINE void channels(float* out, const float* buffer, const float* weight, int64_t o, const Shape& s) {
  for (int64_t q = 0; q < s.height * s.pitch(); q += V * W) {
    Lanes<W> sum[R][V]{};
    block<W, R, V>(sum, buffer + q, weight + o * s.in_channels * 9, s);
    for (int r = 0; r < R; ++r) {
      store_inside(out + (o + r) * s.height * s.width, reinterpret_cast<const float*>(sum[r]), q, V * W, s);
    }
  }
}

template <int W, int R, int V>
INLINE void images(float* out, const float* x, const float* weight, const Shape& s) {
  // A block may be read V * W floats beyond the last channel.
  const std::unique_ptr<float[]> buffer(new float[s.in_channels * s.plane() + V * W + 2]());  // no mutate: slack
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t row = 0; row < s.in_channels * s.height; ++row, x += s.width)
      std::memcpy(&buffer[row / s.height * s.plane() + (row % s.height + 1) * s.pitch() + 1], x,
                  static_cast<size_t>(s.width) * sizeof(float));
    float* image = out + b * s.out_channels * s.height * s.width;
    int64_t o = 0;
    for (; o + R <= s.out_channels; o += R)  // no mutate: channels left over are done below
      channels<W, R, V>(image, buffer.get(), weight, o, s);
    for (; o < s.out_channels; ++o) channels<W, 1, V>(image, buffer.get(), weight, o, s);
  }
}

using Convolve = void (*)(float*, const float*, const float*, const Shape&);
#define DEFINE_CONVOLVE(NAME, W, R, V) \
  void NAME(float* out, const float* x, const float* weight, const Shape& s) { images<W, R, V>(out, x, weight, s); }

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

void conv2d(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& weight) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 4 && weight.dim() == 4 && out.dim() == 4, "conv2d: expected four axes");
  const Shape s{x.size(0), x.size(1), weight.size(0), x.size(2), x.size(3)};
  STD_TORCH_CHECK(weight.size(1) == s.in_channels && weight.size(2) == 3 && weight.size(3) == 3,
                  "conv2d: expected a weight of (out_channels, in_channels, 3, 3)");
  STD_TORCH_CHECK(out.size(0) == s.batch && out.size(1) == s.out_channels && out.size(2) == s.height &&
                      out.size(3) == s.width,
                  "conv2d: shapes differ");
  for (const auto* t : {&out, &x, &weight}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "conv2d: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "conv2d: expected contiguous CPU tensors");
  }
  static const Convolve run = pick_convolve();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
      static_cast<const float*>(weight.const_data_ptr()), s);
}
