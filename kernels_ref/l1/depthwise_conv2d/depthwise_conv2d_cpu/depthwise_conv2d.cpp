// Depthwise 2-d convolution on the CPU, float32, stride 1.
//
// Every image is copied into a small buffer with its border of zeros (L1 or L2 cache), so that nothing after it asks
// where the edge is. Then R rows of W columns are made at a time: a vector loaded from the buffer serves every one of
// the R rows whose filter covers it, and the sums stay in registers. The filter's size is a constant of the code, so
// all its loops are unrolled. Written once for W lanes, compiled for AVX-512, AVX2 and the baseline; cpuid picks.

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

constexpr int64_t kBlockRows = 4;

// Where an image lies in the buffer: rows of `pitch` floats, `border` zeros on every side and more at the right, so
// that whole vectors and blocks of rows may be read from anywhere.
struct Buffer {
  float* data;
  int64_t pitch;
};

// R rows and W columns of the output, from the buffer's element under the filter's first.
template <int W, int K, int R>
INLINE void block(Lanes<W> (&sum)[R], const float* x, int64_t pitch, const float* weight) {
#pragma GCC unroll 16
  for (int i = 0; i < R + K - 1; ++i) {
#pragma GCC unroll 8
    for (int s = 0; s < K; ++s) {
      const Lanes<W> v = load<W>(x + i * pitch + s);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        if (i - r >= 0 && i - r < K) sum[r] += v * weight[(i - r) * K + s];
      }
    }
  }
}

template <int W, int K>
INLINE void image(float* out, const Buffer& buffer, const float* weight, float bias, int64_t height, int64_t width) {
  for (int64_t i = 0; i < height; i += kBlockRows) {
    for (int64_t j = 0; j < width; j += W) {
      Lanes<W> sum[kBlockRows];
      for (auto& v : sum) v = bias - Lanes<W>{};
      block<W, K, kBlockRows>(sum, buffer.data + i * buffer.pitch + j, buffer.pitch, weight);
      const int64_t rows = height - i < kBlockRows ? height - i : kBlockRows;
      const int64_t columns = width - j < W ? width - j : W;
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(out + (i + r) * width + j, &sum[r], static_cast<size_t>(columns) * sizeof(float));
    }
  }
}

template <int W, int K>
INLINE void images(float* out, const float* x, const float* weight, const float* bias, int64_t batch, int64_t channels,
                   int64_t height, int64_t width) {
  const int64_t border = (K - 1) / 2;
  const int64_t pitch = width + K + W, rows = height + K + kBlockRows;  // no mutate: a larger buffer does as well
  const std::unique_ptr<float[]> data(new float[rows * pitch]());
  for (int64_t n = 0; n < batch * channels; ++n, x += height * width, out += height * width) {
    for (int64_t i = 0; i < height; ++i)
      std::memcpy(&data[(i + border) * pitch + border], x + i * width, static_cast<size_t>(width) * sizeof(float));
    const int64_t c = n % channels;
    image<W, K>(out, {data.get(), pitch}, weight + c * K * K, bias[c], height, width);
  }
}

template <int W>
INLINE void convolve(float* out, const float* x, const float* weight, const float* bias, int64_t batch,
                     int64_t channels, int64_t height, int64_t width, int64_t kernel) {
  switch (kernel) {
    case 1: return images<W, 1>(out, x, weight, bias, batch, channels, height, width);
    case 3: return images<W, 3>(out, x, weight, bias, batch, channels, height, width);
    case 5: return images<W, 5>(out, x, weight, bias, batch, channels, height, width);
    case 7: return images<W, 7>(out, x, weight, bias, batch, channels, height, width);
  }
}

using Convolve = void (*)(float*, const float*, const float*, const float*, int64_t, int64_t, int64_t, int64_t,
                          int64_t);
#define DEFINE_CONVOLVE(NAME, W)                                                                                   \
  void NAME(float* out, const float* x, const float* weight, const float* bias, int64_t batch, int64_t channels, \
            int64_t height, int64_t width, int64_t kernel) {                                                      \
    convolve<W>(out, x, weight, bias, batch, channels, height, width, kernel);                                    \
  }

DEFINE_CONVOLVE(convolve_baseline, 4)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_CONVOLVE(convolve_avx2, 8)
__attribute__((target("avx512f"))) DEFINE_CONVOLVE(convolve_avx512, 16)
#endif

Convolve pick_convolve() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return convolve_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return convolve_avx2;
#endif
  return convolve_baseline;
}

}  // namespace

void depthwise_conv2d(const torch::stable::Tensor& out, const torch::stable::Tensor& x,
                      const torch::stable::Tensor& weight, const torch::stable::Tensor& bias) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 4 && out.dim() == 4 && weight.dim() == 3 && bias.dim() == 1,
                  "depthwise_conv2d: expected NCHW images, (channels, kernel, kernel) and (channels,)");
  const int64_t batch = x.size(0), channels = x.size(1), height = x.size(2), width = x.size(3);
  const int64_t kernel = weight.size(2);
  for (int64_t i = 0; i < 4; ++i) STD_TORCH_CHECK(out.size(i) == x.size(i), "depthwise_conv2d: shapes differ");
  STD_TORCH_CHECK(weight.size(0) == channels && weight.size(1) == kernel && bias.size(0) == channels,
                  "depthwise_conv2d: shapes differ");
  STD_TORCH_CHECK(kernel == 1 || kernel == 3 || kernel == 5 || kernel == 7,
                  "depthwise_conv2d: expected a kernel of 1, 3, 5 or 7");
  for (const auto* t : {&out, &x, &weight, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "depthwise_conv2d: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "depthwise_conv2d: expected contiguous CPU tensors");
  }
  static const Convolve run = pick_convolve();
  run(static_cast<float*>(out.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
      static_cast<const float*>(weight.const_data_ptr()), static_cast<const float*>(bias.const_data_ptr()), batch,
      channels, height, width, kernel);
}
