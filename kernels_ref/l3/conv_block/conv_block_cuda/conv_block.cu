// 3 x 3 convolution, bias, SiLU and residual add on CUDA: float16 and bfloat16 with float32 accumulation on tensor
// cores, stride 1, padding 1.
//
// A matrix product in which K runs over the 9 filter positions and the input channels: out (channels x pixels) =
// weights (channels x K) * patches (K x pixels). In NCHW the channels of a pixel lie far apart, so image and weights
// are first copied with the channels innermost, padded with zeros to a multiple of 8: a pass over memory that is small
// beside the product, after which every piece of a patch is an aligned vector of 16 bytes, whatever the sizes.
// Convolutions of many channels then go to hopper.cu (TMA and wgmma), where the device is a Hopper. For all others,
// blocks of 4 warps make 128 x 128 outputs (64 x 128 for few channels): `cp.async` brings 64 channels at one
// filter position into a ring of three stages, zeros in place of what lies outside image or matrix; 16-byte chunks are
// exchanged within a row (chunk ^ row % 8), so that `ldmatrix` meets no bank twice; each warp multiplies 64 x 64 with
// `mma.sync`. The sums go through shared memory as float32, so that residual and output move as whole
// 16-byte vectors of pixels; bias, SiLU and residual are applied there, before the one rounding.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "hopper.h"

namespace {

constexpr int kThreads = 128;         // of the product: warps 2 (channels) x 2 (pixels)
constexpr int kStages = 3;
constexpr int kColumns = 128;         // pixels of a block
constexpr int kDepth = 64;            // channels of a stage: rows of 128 bytes, 8 chunks of 16
constexpr int kPitch = kColumns + 8;  // floats of a row of results in shared memory
constexpr int kFilterRun = 256;       // channels of a filter that are packed at one time

// N elements moved as one access of N * sizeof(T) bytes.
template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T v[N];
};

__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ float silu(float v) { return v / (1.0f + __expf(-v)); }
template <typename T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ __half from_float<__half>(float v) { return __float2half_rn(v); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }

// ---- copies with the channels innermost

// x (batch, channels, image) -> to (batch, image, padded): a block turns 64 channels of 64 pixels around. `vectors`:
// rows of x are whole aligned vectors.
template <typename T>
__global__ void __launch_bounds__(256) pack_image(T* __restrict__ to, const T* __restrict__ x, const Shape s,
                                                  bool vectors) {
  __shared__ T tile[64][66];  // [channel][pixel]; 33 words a row, so that columns fall on different banks
  const int64_t image = s.image(), first = static_cast<int64_t>(blockIdx.x) * 64;
  const int64_t b = blockIdx.z, c0 = static_cast<int64_t>(blockIdx.y) * 64;
#pragma unroll
  for (int i = threadIdx.x; i < 64 * 8; i += 256) {
    const int c = i / 8, p = i % 8 * 8;
    Pack<T, 8> v{};
    if (c0 + c < s.in_channels) {
      const T* from = x + (b * s.in_channels + c0 + c) * image + first + p;
      if (vectors && first + p < image) {
        const uint4 bits = *reinterpret_cast<const uint4*>(from);
        memcpy(&v, &bits, sizeof(v));
      } else {
#pragma unroll
        for (int e = 0; e < 8; ++e)
          if (first + p + e < image) v.v[e] = from[e];
      }
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) tile[c][p + e] = v.v[e];
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < 64 * 8; i += 256) {
    const int c = i % 8 * 8, p = i / 8;
    if (first + p >= image || c0 + c >= s.padded) continue;
    Pack<T, 8> v;
#pragma unroll
    for (int e = 0; e < 8; ++e) v.v[e] = tile[c + e][p];
    uint4 bits;
    memcpy(&bits, &v, sizeof(bits));
    // One store: nvcc splits the assignment into 4-byte ones.
    __stcg(reinterpret_cast<uint4*>(to + (b * image + first + p) * s.padded + c0 + c), bits);
  }
}

// weight (out_channels, in_channels, 9) -> to (out_channels, 9, padded): a block turns kFilterRun channels of a filter
// around, `runs` of which make the filter.
template <typename T>
__global__ void __launch_bounds__(kFilterRun) pack_weight(T* __restrict__ to, const T* __restrict__ weight,
                                                          const Shape s, int runs) {
  __shared__ T part[kFilterRun * 9];
  const int64_t o = blockIdx.x / runs, first = static_cast<int64_t>(blockIdx.x % runs) * kFilterRun;
  const int64_t left = s.in_channels - first;
  const int channels = left < kFilterRun ? static_cast<int>(left) : kFilterRun, c = threadIdx.x;
  for (int i = c; i < channels * 9; i += kFilterRun) part[i] = weight[(o * s.in_channels + first) * 9 + i];
  __syncthreads();
  if (first + c >= s.padded) return;
#pragma unroll
  for (int tap = 0; tap < 9; ++tap) {
    to[(o * 9 + tap) * s.padded + first + c] = c < channels ? part[c * 9 + tap] : from_float<T>(0.0f);
  }
}

// ---- the product

// 16 bytes from global to shared memory, or 16 zeros.
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool valid) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Pending>
__device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory"); }

// Four 8 x 8 matrices: lane l gives the address of row l % 8 of matrix l / 8, and gets from matrix m, in r[m], the
// elements 2 * (l % 4) and the next of row l / 4.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void* p) {
  const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(p));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// c (16 x 8) += a (16 x 16) b (16 x 8). With g = lane / 4 and t = lane % 4: c0 and c1 are columns 2t and 2t + 1 of row
// g, c2 and c3 the same of row g + 8.
template <typename T>
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t a0 = a[0], a1 = a[1], a2 = a[2], a3 = a[3];
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// Element offset of a chunk of a row in a stage's tile.
__device__ __forceinline__ int place(int row, int chunk) { return row * kDepth + (chunk ^ (row % 8)) * 8; }

// What a block needs of shared memory: the ring, later the results.
template <int Rows>
constexpr int shared_bytes() {
  const int ring = kStages * (Rows + kColumns) * kDepth * 2, results = Rows * kPitch * 4;
  return ring > results ? ring : results;
}

// x: (batch, height, width, padded), weight: (out_channels, 9, padded). A block makes 32 * MI channels of 128 pixels.
template <typename T, int MI>
__global__ void __launch_bounds__(kThreads, 2)
    product(T* __restrict__ out, const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias,
            const T* __restrict__ residual, const Shape s,
            int row_blocks, bool vectors) {
  constexpr int kRows = 32 * MI, kStage = (kRows + kColumns) * kDepth;
  extern __shared__ __align__(128) char shared[];
  T* const ring = reinterpret_cast<T*>(shared);
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 64, warp_column = threadIdx.x / 32 % 2;
  // Neighbouring blocks share pixels, and the whole of the weights stays in L2.
  const int64_t first_row = static_cast<int64_t>(blockIdx.x % row_blocks) * kRows;
  const int64_t first_pixel = static_cast<int64_t>(blockIdx.x / row_blocks) * kColumns;

  // This thread brings one chunk of every sixteenth row and pixel. `inside` has a bit for each of the 9 positions.
  const int chunk = threadIdx.x % 8, own = threadIdx.x / 8;
  int pixel[kColumns / 16];
  uint32_t inside[kColumns / 16];
#pragma unroll
  for (int i = 0; i < kColumns / 16; ++i) {
    const int64_t n = first_pixel + own + 16 * i;
    pixel[i] = static_cast<int>(n);
    inside[i] = 0;
    // 32 bits, which pixels fit: a division of 64 takes about a hundred instructions.
    const uint32_t position = static_cast<uint32_t>(n) % static_cast<uint32_t>(s.image());
    const int64_t row = position / static_cast<uint32_t>(s.width), column = position % static_cast<uint32_t>(s.width);
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      const int64_t y = row + tap / 3 - 1, z = column + tap % 3 - 1;
      if (n < s.pixels() && y >= 0 && y < s.height && z >= 0 && z < s.width) inside[i] |= 1u << tap;
    }
  }
  const int parts = static_cast<int>((s.padded + kDepth - 1) / kDepth), steps = 9 * parts;
  const auto bring = [&](int step) {
    T* const rows = ring + step % kStages * kStage;
    T* const columns = rows + kRows * kDepth;
    const int tap = step / parts;
    const int64_t c = static_cast<int64_t>(step % parts) * kDepth + chunk * 8;
    const bool channel = c < s.padded;
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
      const int64_t o = first_row + own + 16 * i;
      const bool valid = channel && o < s.out_channels;
      copy_async(rows + place(own + 16 * i, chunk), valid ? weight + (o * 9 + tap) * s.padded + c : weight, valid);
    }
    const int64_t shift = (tap / 3 - 1) * s.width + tap % 3 - 1;
#pragma unroll
    for (int i = 0; i < kColumns / 16; ++i) {
      const bool valid = channel && (inside[i] >> tap & 1);
      copy_async(columns + place(own + 16 * i, chunk), valid ? x + (pixel[i] + shift) * s.padded + c : x, valid);
    }
  };

  float sum[MI][8][4]{};
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < steps) bring(step);
    commit();
  }
  for (int step = 0; step < steps; ++step) {
    wait<kStages - 2>();
    __syncthreads();  // the stage has come for everyone, and everyone is done with the one that is overwritten next
    if (step + kStages - 1 < steps) bring(step + kStages - 1);
    commit();
    const T* const rows = ring + step % kStages * kStage;
    const T* const columns = rows + kRows * kDepth;
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      uint32_t a[MI][4], b[4][4];
#pragma unroll
      for (int i = 0; i < MI; ++i)  // matrices: rows 0-7 and 8-15 of k 0-7, then of k 8-15
        load_matrices(a[i], rows + place(warp_row * 16 * MI + i * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
      for (int j = 0; j < 4; ++j)  // matrices: k 0-7 and 8-15 of columns 0-7, then of columns 8-15
        load_matrices(b[j], columns + place(warp_column * 64 + j * 16 + lane / 16 * 8 + lane % 8,
                                            2 * k + lane / 8 % 2));
#pragma unroll
      for (int i = 0; i < MI; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) mma<T>(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }

  wait<0>();
  __syncthreads();
  float* const results = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int i = 0; i < MI; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float* const to =
          results + (warp_row * 16 * MI + i * 16 + lane / 4) * kPitch + warp_column * 64 + j * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(to) = make_float2(sum[i][j][0], sum[i][j][1]);
      *reinterpret_cast<float2*>(to + 8 * kPitch) = make_float2(sum[i][j][2], sum[i][j][3]);
    }
  }
  __syncthreads();
  // A thread stores the same 8 pixels of every eighth row: where they lie is divided out once.
  const int column = threadIdx.x % (kColumns / 8) * 8;
  const int64_t n = first_pixel + column, first_image = n / s.image(), in_image = n - first_image * s.image();
  if (n >= s.pixels()) return;
  for (int row = threadIdx.x / (kColumns / 8); row < kRows; row += kThreads / (kColumns / 8)) {
    const int64_t o = first_row + row;
    if (o >= s.out_channels) break;
    const float* const from = results + row * kPitch + column;
    if (vectors) {  // images are whole vectors, so these 8 pixels are of one image
      const int64_t at = (first_image * s.out_channels + o) * s.image() + in_image;
      Pack<T, 8> v;
      const Pack<T, 8> rest = *reinterpret_cast<const Pack<T, 8>*>(residual + at);
#pragma unroll
      for (int e = 0; e < 8; ++e)
        v.v[e] = from_float<T>(to_float(rest.v[e]) + silu(from[e] + to_float(bias[o])));
      uint4 bits;
      memcpy(&bits, &v, sizeof(bits));
      __stcs(reinterpret_cast<uint4*>(out + at), bits);
    } else {
      int64_t image = first_image, pixel_in = in_image;
      for (int e = 0; e < 8 && n + e < s.pixels(); ++e) {
        const int64_t at = (image * s.out_channels + o) * s.image() + pixel_in;
        out[at] = from_float<T>(to_float(residual[at]) + silu(from[e] + to_float(bias[o])));
        if (++pixel_in == s.image()) ++image, pixel_in = 0;
      }
    }
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T, int MI>
void launch_product(T* out, const T* x, const T* weight, const T* bias, const T* residual, const Shape& s,
                    bool vectors, cudaStream_t stream) {
  constexpr int bytes = shared_bytes<32 * MI>();
  const auto kernel = product<T, MI>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);  // an error shows at the launch
  const int64_t row_blocks = (s.out_channels + 32 * MI - 1) / (32 * MI);
  const int64_t column_blocks = (s.pixels() + kColumns - 1) / kColumns;
  kernel<<<static_cast<unsigned>(row_blocks * column_blocks), kThreads, bytes, stream>>>(
      out, x, weight, bias, residual, s, static_cast<int>(row_blocks), vectors);
}

// `packed_x` and `packed_weight`: room for the copies with the channels innermost.
template <typename T>
void launch(T* out, const T* x, const T* weight, const T* bias, const T* residual, T* packed_x, T* packed_weight,
            const Shape& s, bool hopper, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((s.image() + 63) / 64), static_cast<unsigned>((s.padded + 63) / 64),
                  static_cast<unsigned>(s.batch));
  const bool whole = s.image() % 8 == 0;
  pack_image<T><<<grid, 256, 0, stream>>>(packed_x, x, s, whole && aligned(x));
  const int64_t runs = (s.padded + kFilterRun - 1) / kFilterRun;
  pack_weight<T><<<static_cast<unsigned>(s.out_channels * runs), kFilterRun, 0, stream>>>(packed_weight, weight, s,
                                                                                          static_cast<int>(runs));
  // Smaller ones would mostly multiply zeros.
  if (hopper && s.in_channels >= 64 && s.out_channels >= 64 &&
      conv_block_by_warp_groups(out, packed_x, packed_weight, bias, residual, s, std::is_same_v<T, __nv_bfloat16>,
                                stream)) {
    return;
  }
  const bool vectors = whole && aligned(out) && aligned(residual);
  if (s.out_channels <= 64) {
    launch_product<T, 2>(out, packed_x, packed_weight, bias, residual, s, vectors, stream);
  } else {
    launch_product<T, 4>(out, packed_x, packed_weight, bias, residual, s, vectors, stream);
  }
}

}  // namespace

void conv_block(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& weight,
                const torch::stable::Tensor& bias, const torch::stable::Tensor& residual) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 4 && weight.dim() == 4 && out.dim() == 4 && residual.dim() == 4 && bias.dim() == 1,
                  "conv_block: expected NCHW images, (out_channels, in_channels, 3, 3) and (out_channels,)");
  STD_TORCH_CHECK(bias.size(0) == weight.size(0), "conv_block: shapes differ");
  const int64_t padded = (x.size(1) + 7) / 8 * 8;
  const Shape s{x.size(0), x.size(1), weight.size(0), x.size(2), x.size(3), padded};
  STD_TORCH_CHECK(weight.size(1) == s.in_channels && weight.size(2) == 3 && weight.size(3) == 3,
                  "conv_block: expected a weight of (out_channels, in_channels, 3, 3)");
  for (const auto* t : {&out, &residual}) {
    STD_TORCH_CHECK(t->size(0) == s.batch && t->size(1) == s.out_channels && t->size(2) == s.height &&
                        t->size(3) == s.width,
                    "conv_block: shapes differ");
  }
  STD_TORCH_CHECK(s.batch <= 65535 && s.in_channels <= 65535 * 64 && s.pixels() <= INT32_MAX - kColumns &&
                      s.out_channels * 9 * padded <= INT32_MAX,
                  "conv_block: tensor too large");
  for (const auto* t : {&out, &x, &weight, &bias, &residual}) {
    STD_TORCH_CHECK(t->scalar_type() == x.scalar_type(), "conv_block: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "conv_block: expected contiguous tensors on one CUDA device");
  }
  if (s.pixels() * s.in_channels * s.out_channels == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "conv_block: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto packed_x = torch::stable::new_empty(x, {s.pixels() * padded});
  const auto packed_weight = torch::stable::new_empty(x, {s.out_channels * 9 * padded});
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, x.get_device_index());
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    const auto read = [](const torch::stable::Tensor& t) { return static_cast<const T*>(t.const_data_ptr()); };
    const auto write = [](const torch::stable::Tensor& t) { return static_cast<T*>(t.mutable_data_ptr()); };
    launch(write(out), read(x), read(weight), read(bias), read(residual), write(packed_x), write(packed_weight), s,
           major == 9, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "conv_block: expected float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "conv_block: ", cudaGetErrorString(error));
}
