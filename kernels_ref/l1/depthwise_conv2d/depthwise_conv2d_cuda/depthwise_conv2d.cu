// Depthwise 2-d convolution on CUDA: float16, bfloat16, float32, stride 1, accumulated in float32.
//
// Every element takes part in up to 49 products, so after one reading from memory all of them come from shared memory
// and registers. A block makes tiles of up to 64 x 64 outputs (one tile of a large image, or several small images): it
// brings them with their border to shared memory as float32, zeros where the image ends, and the filters beside them.
// Where rows are whole groups of 4 elements, each group is one load and one 16-byte store without bank conflicts; other
// rows come by aligned 16-byte loads that need not begin where a row does. A thread then makes 4 x 4 outputs: each row of
// the window is read as 16-byte vectors, and used for every output row that it belongs to. Several blocks on an SM overlap
// one's loads with another's arithmetic.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;               // most rows and columns of a tile
constexpr int kSharedFloats = 48 << 8;  // 48 KB, what a block may have without asking

// N elements moved as one access of N * sizeof(T) bytes.
template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T v[N];
};

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
template <typename T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v) { return v; }
template <>
__device__ __forceinline__ __half from_float<__half>(float v) { return __float2half_rn(v); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }

struct Shape {
  int64_t planes;  // batch * channels
  int channels, height, width;
  int tile_height, tile_width;  // multiples of 4
  int tiles;                    // planes of a block
  bool vectors;                 // x is aligned to 16 bytes, out to 4 elements in every row
  // What divided() needs to divide by groups of 4 in a row, rows, 4 x 4 outputs, and those in a row, each of a tile.
  uint32_t by_quads, by_rows, by_blocks, by_columns;
};

// Columns of a tile in shared memory before the first output's: its border, in QUADS rounded up to a float4.
template <int K, bool QUADS>
constexpr int kLead = QUADS ? ((K - 1) / 2 + 3) / 4 * 4 : (K - 1) / 2;
// Column of the first window within its float4, and float4 of a window row: 4 outputs see 4 + K - 1 columns.
template <int K, bool QUADS>
constexpr int kOffset = kLead<K, QUADS> - (K - 1) / 2;
template <int K, bool QUADS>
constexpr int kWindow = (kOffset<K, QUADS> + 4 + K - 1 + 3) / 4;
// Floats of a row of a tile in shared memory: whole float4, and the last window may be read to its end.
template <int K, bool QUADS>
__host__ __device__ constexpr int pitch_of(int tile_width) {
  return QUADS ? tile_width + 2 * kLead<K, QUADS> : tile_width + 4 * (kWindow<K, QUADS> - 1);
}
// Floats of a filter in shared memory: rows of whole float4, then the bias.
template <int K>
constexpr int kFilterPitch = (K + 3) / 4 * 4;
template <int K>
constexpr int kFilterFloats = K * kFilterPitch<K> + 4;

// dividend / divisor, for dividends below 2^16 and divisors below 2^12, given division_by(divisor).
uint32_t division_by(int divisor) { return ((uint32_t{1} << 31) + divisor - 1) / divisor; }
__device__ __forceinline__ int divided(int dividend, uint32_t by) {
  return static_cast<int>(__umulhi(2 * static_cast<uint32_t>(dividend), by));
}

// Four elements as float32.
__device__ __forceinline__ float4 widen(float, const float4& v) { return v; }
__device__ __forceinline__ float4 widen(__half, const uint2& bits) {
  __half2 low, high;
  memcpy(&low, &bits.x, 4);
  memcpy(&high, &bits.y, 4);
  return make_float4(__low2float(low), __high2float(low), __low2float(high), __high2float(high));
}
__device__ __forceinline__ float4 widen(__nv_bfloat16, const uint2& bits) {
  return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u),
                     __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000u));
}

// Rows [top, top + rows) of every plane, and columns from `left` on, which is a multiple of 4, as is the width: `tiles` is
// filled, with zeros outside of the plane. A thread has eight loads in flight before it stores any.
template <typename T>
__device__ __forceinline__ void bring_quads(float* tiles, int pitch, const T* x, int64_t first_plane, int planes,
                                            const Shape& s, int top, int left, int rows) {
  using Quad = std::conditional_t<sizeof(T) == 4, float4, uint2>;
  constexpr int kBatch = sizeof(T) == 4 ? 4 : 8;
  const int quads = pitch / 4, items = planes * rows * quads;
  const T* const planes_begin = x + first_plane * s.height * s.width;
#pragma unroll 1
  for (int base = threadIdx.x; base < items; base += kBatch * blockDim.x) {
    Quad words[kBatch];
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int item = base + u * blockDim.x, tile_row = divided(item, s.by_quads);
      const int p = divided(tile_row, s.by_rows), y = top + tile_row - p * rows, c = left + (item - tile_row * quads) * 4;
      const bool inside = item < items && static_cast<unsigned>(y) < static_cast<unsigned>(s.height) &&
                          static_cast<unsigned>(c) < static_cast<unsigned>(s.width);
      const int64_t row_begin = static_cast<int64_t>(p * s.height + y) * s.width;  // 16 planes of 2^20 rows at most
      words[u] = inside ? *reinterpret_cast<const Quad*>(planes_begin + row_begin + c) : Quad{};
    }
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int item = base + u * blockDim.x;
      if (item < items) reinterpret_cast<float4*>(tiles)[item] = widen(T{}, words[u]);
    }
  }
}

// Rows [top, top + rows) and columns [left, left + columns) of every plane (any of them may lie outside it) go to
// `tiles`, which hold zeros already. Work is cut into (plane, row, 16-byte vector) items; a thread has four loads in
// flight before it stores any.
template <typename T>
__device__ __forceinline__ void bring(float* tiles, int pitch, const T* x, int64_t first_plane, int planes,
                                      const Shape& s, int top, int left, int rows, int columns) {
  constexpr int N = 16 / sizeof(T), kBatch = 4, kNothing = INT32_MAX;
  const int begin = left > 0 ? left : 0, end = left + columns < s.width ? left + columns : s.width;
  const int vectors = (columns + N - 2) / N + 1;  // cover any `columns` elements, however they are aligned
  const int items = planes * rows * vectors;
  for (int base = threadIdx.x; base < items; base += kBatch * blockDim.x) {
    uint4 words[kBatch];  // taken apart only when all loads have started: elements of 16 bits would be waited for
    int column[kBatch], to[kBatch];  // of the vector's first element: in the plane, and in `tiles`
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int item = base + u * blockDim.x, tile_row = item / vectors, p = tile_row / rows;
      const int y = top + tile_row - p * rows;
      column[u] = kNothing;
      if (item >= items || y < 0 || y >= s.height) continue;
      const int64_t row_begin = ((first_plane + p) * s.height + y) * s.width;  // in elements of x
      const int lead = static_cast<int>((row_begin + begin) % N);              // the vectors lie at multiples of N
      const int c = begin - lead + (item - tile_row * vectors) * N;
      if (c >= end) continue;
      column[u] = c;
      to[u] = tile_row * pitch + c - left;
      if (s.vectors && row_begin + c + N <= s.planes * s.height * s.width) {
        words[u] = *reinterpret_cast<const uint4*>(x + row_begin + c);
      } else {
        Pack<T, N> v{};
#pragma unroll
        for (int e = 0; e < N; ++e)
          if (c + e >= begin && c + e < end) v.v[e] = x[row_begin + c + e];
        memcpy(&words[u], &v, sizeof(v));
      }
    }
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      if (column[u] == kNothing) continue;
      asm volatile("" : "+r"(words[u].x), "+r"(words[u].y), "+r"(words[u].z), "+r"(words[u].w));
      Pack<T, N> v;
      memcpy(&v, &words[u], sizeof(v));
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (column[u] + e >= begin && column[u] + e < end) tiles[to[u] + e] = to_float(v.v[e]);
    }
  }
}

template <typename T, int K, bool QUADS>
__global__ void __launch_bounds__(kThreads, K < 5 || QUADS ? 4 : 3)
    convolve(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias,
             const Shape s) {
  extern __shared__ __align__(16) float shared[];
  constexpr int kBorder = (K - 1) / 2, kVectors = kWindow<K, QUADS>, kAt = kOffset<K, QUADS>;
  const int pitch = pitch_of<K, QUADS>(s.tile_width), tile_rows = s.tile_height + K - 1;
  const int tile_floats = tile_rows * pitch;
  const int64_t first_plane = static_cast<int64_t>(blockIdx.x) * s.tiles;
  const int planes = static_cast<int>(s.planes - first_plane < s.tiles ? s.planes - first_plane : s.tiles);
  const int top = blockIdx.y * s.tile_height, left = blockIdx.z * s.tile_width;

  float* const filters = shared + s.tiles * tile_floats;
  for (int i = threadIdx.x; i < planes * kFilterFloats<K>; i += blockDim.x) {
    const int p = i / kFilterFloats<K>, at = i - p * kFilterFloats<K>, f = at / kFilterPitch<K>;
    const int g = at - f * kFilterPitch<K>;
    const unsigned channel = static_cast<unsigned>(first_plane + p) % static_cast<unsigned>(s.channels);
    const int64_t weights = static_cast<int64_t>(channel) * (K * K);
    filters[i] = f == K && g == 0 ? to_float(bias[channel]) : f < K && g < K ? to_float(weight[weights + f * K + g]) : 0;
  }
  if constexpr (QUADS) {
    bring_quads(shared, pitch, x, first_plane, planes, s, top - kBorder, left - kLead<K, QUADS>, tile_rows);
  } else {
    for (int i = threadIdx.x; i < planes * tile_floats / 4; i += blockDim.x)
      reinterpret_cast<float4*>(shared)[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    __syncthreads();
    bring(shared, pitch, x, first_plane, planes, s, top - kBorder, left - kBorder, tile_rows, s.tile_width + K - 1);
  }
  __syncthreads();

  // A thread's 4 x 4 outputs.
  const int columns = s.tile_width / 4, blocks = columns * (s.tile_height / 4);
  const int p = divided(threadIdx.x, s.by_blocks), own = threadIdx.x - p * blocks, own_row = divided(own, s.by_columns);
  const int row = own_row * 4, column = (own - own_row * columns) * 4;
  if (p >= planes || top + row >= s.height || left + column >= s.width) return;
  const int64_t plane = first_plane + p;
  const float* own_filter = filters + p * kFilterFloats<K>;
  float sum[4][4];
#pragma unroll
  for (int i = 0; i < 16; ++i) sum[i / 4][i % 4] = own_filter[K * kFilterPitch<K>];

  const float* window = shared + p * tile_floats + row * pitch + column;
  float filter[K][kFilterPitch<K>];  // a row lives from the window row where it begins to the third after it
#pragma unroll
  for (int i = 0; i < 4 + K - 1; ++i) {
    if (i < K) {
#pragma unroll
      for (int f = 0; f < kFilterPitch<K>; f += 4)
        *reinterpret_cast<float4*>(filter[i] + f) =
            *reinterpret_cast<const float4*>(own_filter + i * kFilterPitch<K> + f);
    }
    float v[4 * kVectors];
#pragma unroll
    for (int j = 0; j < kVectors; ++j)
      *reinterpret_cast<float4*>(v + 4 * j) = *reinterpret_cast<const float4*>(window + i * pitch + 4 * j);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if (i - r < 0 || i - r >= K) continue;
#pragma unroll
      for (int f = 0; f < K; ++f) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[r][c] = fmaf(filter[i - r][f], v[kAt + c + f], sum[r][c]);
      }
    }
  }

  T* to = out + (plane * s.height + top + row) * s.width + left + column;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    if (top + row + r >= s.height) break;
    Pack<T, 4> result;
#pragma unroll
    for (int c = 0; c < 4; ++c) result.v[c] = from_float<T>(sum[r][c]);
    if (QUADS || (s.vectors && s.width % 4 == 0)) {
      *reinterpret_cast<Pack<T, 4>*>(to + static_cast<int64_t>(r) * s.width) = result;
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (left + column + c < s.width) to[static_cast<int64_t>(r) * s.width + c] = result.v[c];
    }
  }
}

// Equal tiles of at most kTile, a multiple of 4.
int tile_of(int size) {
  const int parts = (size + kTile - 1) / kTile;
  return ((size + parts - 1) / parts + 3) / 4 * 4;
}

template <typename T, int K, bool QUADS>
void launch_kernel(T* out, const T* x, const T* weight, const T* bias, Shape s, cudaStream_t stream) {
  s.tile_height = tile_of(s.height);
  s.tile_width = tile_of(s.width);
  const int rows = s.tile_height + K - 1, pitch = pitch_of<K, QUADS>(s.tile_width);
  const int floats = rows * pitch + kFilterFloats<K>, threads_of_tile = s.tile_height / 4 * (s.tile_width / 4);
  const int by_threads = kThreads / threads_of_tile, by_memory = kSharedFloats / floats;
  s.tiles = by_threads < by_memory ? by_threads : by_memory;
  s.by_quads = division_by(pitch / 4);
  s.by_rows = division_by(rows);
  s.by_blocks = division_by(threads_of_tile);
  s.by_columns = division_by(s.tile_width / 4);
  const dim3 grid(static_cast<unsigned>((s.planes + s.tiles - 1) / s.tiles),
                  static_cast<unsigned>((s.height + s.tile_height - 1) / s.tile_height),
                  static_cast<unsigned>((s.width + s.tile_width - 1) / s.tile_width));
  const auto threads = static_cast<unsigned>((s.tiles * threads_of_tile + 31) / 32 * 32);
  convolve<T, K, QUADS><<<grid, threads, s.tiles * floats * sizeof(float), stream>>>(out, x, weight, bias, s);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T>
void launch(T* out, const T* x, const T* weight, const T* bias, Shape s, int64_t kernel, cudaStream_t stream) {
  s.vectors = aligned(out) && aligned(x);
  const bool quads = s.vectors && s.width % 4 == 0;
  switch (kernel) {
    case 1: return (quads ? launch_kernel<T, 1, true> : launch_kernel<T, 1, false>)(out, x, weight, bias, s, stream);
    case 3: return (quads ? launch_kernel<T, 3, true> : launch_kernel<T, 3, false>)(out, x, weight, bias, s, stream);
    case 5: return (quads ? launch_kernel<T, 5, true> : launch_kernel<T, 5, false>)(out, x, weight, bias, s, stream);
    default: return (quads ? launch_kernel<T, 7, true> : launch_kernel<T, 7, false>)(out, x, weight, bias, s, stream);
  }
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
  // Tiles of at least 29 rows or columns where there is more than one: the grid's y and z stay below 65536.
  STD_TORCH_CHECK(batch * channels <= INT32_MAX && height <= (1 << 20) && width <= (1 << 20),
                  "depthwise_conv2d: tensor too large");
  for (const auto* t : {&out, &x, &weight, &bias}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "depthwise_conv2d: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "depthwise_conv2d: expected contiguous tensors on one CUDA device");
  }
  if (batch * channels * height * width == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "depthwise_conv2d: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  Shape shape{};
  shape.planes = batch * channels;
  shape.channels = static_cast<int>(channels);
  shape.height = static_cast<int>(height);
  shape.width = static_cast<int>(width);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    launch(static_cast<T*>(out.mutable_data_ptr()), static_cast<const T*>(x.const_data_ptr()),
           static_cast<const T*>(weight.const_data_ptr()), static_cast<const T*>(bias.const_data_ptr()), shape, kernel,
           stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "depthwise_conv2d: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "depthwise_conv2d: ", cudaGetErrorString(error));
}
