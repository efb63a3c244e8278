// A few vectors times packed 4-bit weights on CUDA: float16 and bfloat16 activations, accumulated in float32.
//
// Bound by reading the packed weights once; at 4.8 TB/s an SM gets about 38 weights a cycle, too many to convert to
// float32 and multiply one by one. So weights become pairs of 16-bit floats (exactly: |q - 8| <= 8) by one bit
// operation and one subtraction, and tensor cores multiply them: mma.m16n8k16 with 16 rows of weights and up to 8
// vectors, of which the batch uses 1 to 4.
// A sum over k may be taken in any order as long as both factors agree on it: lane t of a row's four lanes takes the 16
// bytes, 32 weights, that lie at t * 16 of the group's 64, straight from memory, and the same 32 columns of x.
// A group of 128 is summed by 8 mma without its scale; the scale of each row is multiplied in once, in float32.
// The 8 warps of a block share 16 rows and take every eighth group; their sums meet in shared memory in a fixed order.

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

constexpr int kGroup = 128;
constexpr int kWarps = 8;
constexpr int kRows = 16;     // rows of a block: the M of an mma
constexpr int kMaxBatch = 4;  // columns of the accumulator that are kept, of 8

__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
template <typename T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ __half from_float<__half>(float v) { return __float2half_rn(v); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }

template <typename V>
__device__ __forceinline__ uint32_t bits_of(const V& v) {
  uint32_t bits;
  memcpy(&bits, &v, sizeof(bits));
  return bits;
}
template <typename V>
__device__ __forceinline__ V of_bits(uint32_t bits) {
  V v;
  memcpy(&v, &bits, sizeof(v));
  return v;
}

// (word & mask) | bits, as one instruction.
__device__ __forceinline__ uint32_t and_or(uint32_t word, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
  return result;
}

// (q - 8) of the nibbles at bits 0 and 16 of `word`, as two floats: below a suitable exponent the nibble is the end of
// the mantissa of 1024 + q (float16) or 128 + q (bfloat16), from which the constant is subtracted without rounding.
template <typename T>
__device__ __forceinline__ uint32_t weights(uint32_t word);
template <>
__device__ __forceinline__ uint32_t weights<__half>(uint32_t word) {
  const __half2 biased = of_bits<__half2>(and_or(word, 0x000f000fu, 0x64006400u));
  return bits_of(__hsub2(biased, of_bits<__half2>(0x64086408u)));  // 1032
}
template <>
__device__ __forceinline__ uint32_t weights<__nv_bfloat16>(uint32_t word) {
  const __nv_bfloat162 biased = of_bits<__nv_bfloat162>(and_or(word, 0x000f000fu, 0x43004300u));
  return bits_of(__hsub2(biased, of_bits<__nv_bfloat162>(0x43084308u)));  // 136
}
// The same of the nibbles at bits 4 and 20. Of float16 they are 1024 + 16 q, a 16th of which is 64 + q: no shift.
template <typename T>
__device__ __forceinline__ uint32_t next_weights(uint32_t word) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 biased = of_bits<__half2>(and_or(word, 0x00f000f0u, 0x64006400u));
    return bits_of(__hfma2(biased, of_bits<__half2>(0x2c002c00u), of_bits<__half2>(0xd480d480u)));  // 1 / 16, -72
  } else {
    return weights<T>(word >> 4);
  }
}

// c (16 x 8) += a (16 x 16) b (16 x 8). With g = lane / 4 and t = lane % 4: a0 and a2 are of row g, a1 and a3 of row
// g + 8; b0 and b1 of column g; c0 and c1 are columns 2t and 2t + 1 of row g, c2 and c3 the same of row g + 8.
template <typename T>
__device__ __forceinline__ void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                    uint32_t b1) {
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

// 8 weights of two rows (`low`, `high`: their words) times 8 columns of x (`x`: four words of two each). Nibble i of a
// word is column i; the pairs are columns (0, 4), (1, 5), (2, 6), (3, 7) on both sides.
template <typename T>
__device__ __forceinline__ void multiply_word(float (&c)[4], uint32_t low, uint32_t high, const uint4& x) {
  mma<T>(c, weights<T>(low), weights<T>(high), next_weights<T>(low), next_weights<T>(high),
         __byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632));
  low >>= 8, high >>= 8;
  mma<T>(c, weights<T>(low), weights<T>(high), next_weights<T>(low), next_weights<T>(high),
         __byte_perm(x.y, x.w, 0x5410), __byte_perm(x.y, x.w, 0x7632));
}

template <typename T>
__global__ void __launch_bounds__(32 * kWarps) gemv_packed(T* __restrict__ out, const T* __restrict__ x,
                                                           const uint8_t* __restrict__ packed,
                                                           const T* __restrict__ scales, int batch, int64_t n,
                                                           int groups) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows;
  // Rows beyond the last one are read as the last one, and never written.
  const int64_t low = first + g < n ? first + g : n - 1, high = first + g + 8 < n ? first + g + 8 : n - 1;
  const uint4* low_row = reinterpret_cast<const uint4*>(packed + low * groups * (kGroup / 2)) + t;
  const uint4* high_row = reinterpret_cast<const uint4*>(packed + high * groups * (kGroup / 2)) + t;
  // Lane (g, t) brings the columns of vector g, 32 of them: 4 of the 16 uint4 that a group of x has.
  const bool used = g < batch;
  const uint4* x_row =
      reinterpret_cast<const uint4*>(x + (used ? g : 0) * static_cast<int64_t>(groups) * kGroup) + t * 4;

  float sum[4]{};
#pragma unroll 2
  for (int group = warp; group < groups; group += kWarps) {
    const uint4 low_words = __ldcs(low_row + group * 4), high_words = __ldcs(high_row + group * 4);
    const float low_scale = to_float(scales[low * groups + group]);
    const float high_scale = to_float(scales[high * groups + group]);
    uint4 columns[4]{};
    if (used) {
#pragma unroll
      for (int i = 0; i < 4; ++i) columns[i] = x_row[group * 16 + i];
    }
    float c[4]{};
    multiply_word<T>(c, low_words.x, high_words.x, columns[0]);
    multiply_word<T>(c, low_words.y, high_words.y, columns[1]);
    multiply_word<T>(c, low_words.z, high_words.z, columns[2]);
    multiply_word<T>(c, low_words.w, high_words.w, columns[3]);
    sum[0] = fmaf(c[0], low_scale, sum[0]);
    sum[1] = fmaf(c[1], low_scale, sum[1]);
    sum[2] = fmaf(c[2], high_scale, sum[2]);
    sum[3] = fmaf(c[3], high_scale, sum[3]);
  }

  __shared__ float partial[kWarps][kMaxBatch][kRows];
  if (t < kMaxBatch / 2) {  // columns 2t and 2t + 1 of rows g and g + 8
    partial[warp][2 * t][g] = sum[0];
    partial[warp][2 * t + 1][g] = sum[1];
    partial[warp][2 * t][g + 8] = sum[2];
    partial[warp][2 * t + 1][g + 8] = sum[3];
  }
  __syncthreads();
  const int b = threadIdx.x / kRows, row = threadIdx.x % kRows;
  if (b >= batch || first + row >= n) return;
  float total = 0.0f;
#pragma unroll
  for (int s = 0; s < kWarps; ++s) total += partial[s][b][row];
  out[b * n + first + row] = from_float<T>(total);
}

template <typename T>
void launch(void* out, const void* x, const void* packed, const void* scales, int64_t batch, int64_t n, int64_t groups,
            cudaStream_t stream) {
  const unsigned grid = static_cast<unsigned>((n + kRows - 1) / kRows);
  gemv_packed<T><<<grid, 32 * kWarps, 0, stream>>>(
      static_cast<T*>(out), static_cast<const T*>(x), static_cast<const uint8_t*>(packed),
      static_cast<const T*>(scales), static_cast<int>(batch), n, static_cast<int>(groups));
}

}  // namespace

void w4a16_gemv(const torch::stable::Tensor& out, const torch::stable::Tensor& x, const torch::stable::Tensor& packed,
                const torch::stable::Tensor& scales) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && packed.dim() == 2 && scales.dim() == 2 && out.dim() == 2,
                  "w4a16_gemv: expected (batch, n), (batch, k), (n, k / 2) and (n, k / 128)");
  const int64_t batch = x.size(0), n = scales.size(0), groups = scales.size(1), k = groups * kGroup;
  STD_TORCH_CHECK(x.size(1) == k && packed.size(0) == n && packed.size(1) == k / 2 && out.size(0) == batch &&
                      out.size(1) == n,
                  "w4a16_gemv: shapes differ");
  STD_TORCH_CHECK(batch >= 1 && batch <= kMaxBatch, "w4a16_gemv: expected a batch of 1 to 4");
  STD_TORCH_CHECK(n <= INT32_MAX && k <= INT32_MAX, "w4a16_gemv: tensor too large");
  STD_TORCH_CHECK(packed.scalar_type() == ScalarType::Byte, "w4a16_gemv: expected packed weights in uint8");
  STD_TORCH_CHECK(x.scalar_type() == out.scalar_type() && x.scalar_type() == scales.scalar_type(),
                  "w4a16_gemv: dtypes differ");
  for (const auto* t : {&out, &x, &packed, &scales}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "w4a16_gemv: expected contiguous tensors on one CUDA device");
  }
  for (const auto* t : {&x, &packed}) {
    STD_TORCH_CHECK(reinterpret_cast<uintptr_t>(t->const_data_ptr()) % 16 == 0,
                    "w4a16_gemv: expected x and packed aligned to 16 bytes");
  }
  if (n == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "w4a16_gemv: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    launch<decltype(kind)>(out.mutable_data_ptr(), x.const_data_ptr(), packed.const_data_ptr(), scales.const_data_ptr(),
                           batch, n, groups, stream);
  };
  switch (x.scalar_type()) {
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "w4a16_gemv: expected float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "w4a16_gemv: ", cudaGetErrorString(error));
}
