// Selective state-space scan on CUDA: u, delta, B, C and out in float16, bfloat16 or float32, the state in float32.
//
// Every step of every state needs one exponential, which makes these the bottleneck, not memory: an SM computes 16 a
// cycle. So nothing is computed twice: the scan runs straight through the sequence, where a parallel scan within a
// channel would multiply the decays once more, and all else takes fewer instructions than the exponentials leave room for.
// Parallel are the channels, and the states: eight lanes share a channel and hold two states each in registers. The
// steps of a state depend on each other by a single multiply-add; exponentials of later steps do not wait for it.
// Blocks of 4 warps take 16 channels: of 5120 channels no multiprocessor has more than 48, the mean being 39. Tiles of
// 64 steps come to shared memory as float32, rows of the sequence by 16-byte loads; the next tile is on its way in
// registers while one is being computed. The eight partial sums of eight steps are exchanged by seven shuffles, after
// which each lane has the whole of one step.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

constexpr int kThreads = 128;
constexpr int kLanes = 8;    // of a channel
constexpr int kChannels = kThreads / kLanes;
constexpr int kStates = 16;    // most states; missing ones have A = B = C = 0 and stay 0
constexpr int kOwn = kStates / kLanes;  // states of a lane
constexpr int kSteps = 64;     // of a tile
constexpr int kPitch = kSteps + 4;        // floats of a channel's row in shared memory; rows lie on different banks
constexpr int kStatePitch = kStates + 4;  // floats of a step's states
constexpr float kLog2E = 1.44269504f;

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

// 2^v by the special function unit: 2 units in the last place; below 2^-126 it is 0.
__device__ __forceinline__ float power_of_two(float v) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(v));
  return result;
}

struct Shape {
  int64_t batch, dim, state, length;
};

// `Rows` rows of kSteps elements, split among the threads: vector k of a thread is (k * kThreads + thread).
template <typename T, int Rows>
struct Tile {
  static constexpr int N = 16 / sizeof(T), kVectors = Rows * kSteps / N / kThreads;
  static_assert(Rows * kSteps % (N * kThreads) == 0);
  Pack<T, N> v[kVectors];

  // Row r of the tile begins at from + r * length; rows from `rows` on and steps from `steps` on are 0.
  __device__ __forceinline__ void load(const T* from, int64_t length, int64_t rows, int64_t steps, bool vectors) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int i = k * kThreads + threadIdx.x, row = i / (kSteps / N), t = i % (kSteps / N) * N;
      v[k] = Pack<T, N>{};
      if (row >= rows || t >= steps) continue;
      const T* p = from + row * length + t;
      if (vectors) {
        const uint4 bits = *reinterpret_cast<const uint4*>(p);
        memcpy(&v[k], &bits, sizeof(bits));
      } else {
#pragma unroll
        for (int e = 0; e < N; ++e)
          if (t + e < steps) v[k].v[e] = p[e];
      }
    }
  }
  // To shared memory: element (row, t) goes to to[row * row_pitch + t * step_pitch].
  __device__ __forceinline__ void put(float* to, int row_pitch, int step_pitch) const {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int i = k * kThreads + threadIdx.x, row = i / (kSteps / N), t = i % (kSteps / N) * N;
#pragma unroll
      for (int e = 0; e < N; ++e) to[row * row_pitch + (t + e) * step_pitch] = to_float(v[k].v[e]);
    }
  }
};

// Writes rows of a tile in shared memory to memory; the same split as above.
template <typename T>
__device__ __forceinline__ void write_tile(T* to, const float* tile, int64_t length, int64_t rows, int64_t steps,
                                           bool vectors) {
  constexpr int N = 16 / sizeof(T);
#pragma unroll
  for (int k = 0; k < kChannels * kSteps / N / kThreads; ++k) {
    const int i = k * kThreads + threadIdx.x, row = i / (kSteps / N), t = i % (kSteps / N) * N;
    if (row >= rows || t >= steps) continue;
    Pack<T, N> v;
#pragma unroll
    for (int e = 0; e < N; ++e) v.v[e] = from_float<T>(tile[row * kPitch + t + e]);
    T* p = to + row * length + t;
    if (vectors) {
      uint4 bits;
      memcpy(&bits, &v, sizeof(bits));
      *reinterpret_cast<uint4*>(p) = bits;
    } else {
#pragma unroll
      for (int e = 0; e < N; ++e)
        if (t + e < steps) p[e] = v.v[e];
    }
  }
}

// `vectors`: every row begins at a multiple of 16 bytes and has whole vectors.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    scan(T* __restrict__ out, const T* __restrict__ u, const T* __restrict__ delta, const float* __restrict__ A,
         const T* __restrict__ B, const T* __restrict__ C, const float* __restrict__ D, const Shape s, bool vectors) {
  __shared__ __align__(16) float inputs[kChannels * kPitch];  // u, then the results
  __shared__ __align__(16) float deltas[kChannels * kPitch];
  __shared__ __align__(16) float b_states[kSteps * kStatePitch];
  __shared__ __align__(16) float c_states[kSteps * kStatePitch];
  const int channel = threadIdx.x / kLanes, part = threadIdx.x % kLanes;
  const int64_t first_channel = static_cast<int64_t>(blockIdx.x) * kChannels, b = blockIdx.y;
  const int64_t channels = s.dim - first_channel, d = first_channel + channel;
  const int64_t rows = (b * s.dim + first_channel) * s.length, states = b * s.state * s.length;

  float a[kOwn], h[kOwn]{};
#pragma unroll
  for (int n = 0; n < kOwn; ++n) {
    const int state = part * kOwn + n;
    a[n] = d < s.dim && state < s.state ? A[d * s.state + state] * kLog2E : 0.0f;
  }
  const float skip = d < s.dim ? D[d] : 0.0f;

  Tile<T, kChannels> next_u, next_delta;
  Tile<T, kStates> next_b, next_c;
  const auto bring = [&](int64_t first) {
    const int64_t steps = s.length - first;
    next_u.load(u + rows + first, s.length, channels, steps, vectors);
    next_delta.load(delta + rows + first, s.length, channels, steps, vectors);
    next_b.load(B + states + first, s.length, s.state, steps, vectors);
    next_c.load(C + states + first, s.length, s.state, steps, vectors);
  };
  bring(0);
  for (int64_t first = 0; first < s.length; first += kSteps) {
    next_u.put(inputs, kPitch, 1);
    next_delta.put(deltas, kPitch, 1);
    next_b.put(b_states, 1, kStatePitch);
    next_c.put(c_states, 1, kStatePitch);
    __syncthreads();
    if (first + kSteps < s.length) bring(first + kSteps);

    // Steps beyond the end have delta = 0 and u = 0: they leave the state alone, and are not written.
    for (int t = 0; t < kSteps; t += kLanes) {
      float dt[kLanes], x[kLanes], y[kLanes];
#pragma unroll
      for (int i = 0; i < kLanes; i += 4) {
        *reinterpret_cast<float4*>(dt + i) = *reinterpret_cast<const float4*>(deltas + channel * kPitch + t + i);
        *reinterpret_cast<float4*>(x + i) = *reinterpret_cast<const float4*>(inputs + channel * kPitch + t + i);
      }
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        const float2 b2 = *reinterpret_cast<const float2*>(b_states + (t + i) * kStatePitch + part * kOwn);
        const float2 c2 = *reinterpret_cast<const float2*>(c_states + (t + i) * kStatePitch + part * kOwn);
        const float input = dt[i] * x[i];
        h[0] = fmaf(power_of_two(dt[i] * a[0]), h[0], input * b2.x);
        h[1] = fmaf(power_of_two(dt[i] * a[1]), h[1], input * b2.y);
        y[i] = fmaf(h[0], c2.x, h[1] * c2.y);
      }
      // Lane `part` ends with the sum of step t + part over the eight lanes: in each exchange a lane gives away the half
      // of its steps that the other one keeps.
#pragma unroll
      for (int half = kLanes / 2; half > 0; half /= 2) {
        const bool upper = part & half;
#pragma unroll
        for (int i = 0; i < half; ++i) {
          const float other = __shfl_xor_sync(0xffffffffu, upper ? y[i] : y[i + half], half);
          y[i] = (upper ? y[i + half] : y[i]) + other;
        }
      }
      float& place = inputs[channel * kPitch + t + part];
      const float own = place;
      __syncwarp();  // the lanes of a channel have all read these eight u
      place = fmaf(skip, own, y[0]);
    }
    __syncthreads();
    write_tile(out + rows + first, inputs, s.length, channels, s.length - first, vectors);
    __syncthreads();
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T>
void launch(T* out, const T* u, const T* delta, const float* A, const T* B, const T* C, const float* D, const Shape& s,
            cudaStream_t stream) {
  const bool vectors = s.length % (16 / sizeof(T)) == 0 && aligned(out) && aligned(u) && aligned(delta) && aligned(B) &&
                       aligned(C);
  const dim3 grid(static_cast<unsigned>((s.dim + kChannels - 1) / kChannels), static_cast<unsigned>(s.batch));
  scan<T><<<grid, kThreads, 0, stream>>>(out, u, delta, A, B, C, D, s, vectors);
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
  STD_TORCH_CHECK(s.batch <= 65535 && s.dim <= INT32_MAX, "selective_scan: tensor too large");
  for (const auto* t : {&out, &u, &delta, &B, &C}) {
    STD_TORCH_CHECK(t->scalar_type() == u.scalar_type(), "selective_scan: dtypes differ");
  }
  STD_TORCH_CHECK(A.scalar_type() == ScalarType::Float && D.scalar_type() == ScalarType::Float,
                  "selective_scan: A and D are float32");
  for (const auto* t : {&out, &u, &delta, &A, &B, &C, &D}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == u.get_device_index(),
                    "selective_scan: expected contiguous tensors on one CUDA device");
  }
  if (s.batch * s.dim * s.length == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(u.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(u.get_device_index(), &raw_stream) == 0,
                  "selective_scan: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    const auto read = [](const torch::stable::Tensor& t) { return static_cast<const T*>(t.const_data_ptr()); };
    launch(static_cast<T*>(out.mutable_data_ptr()), read(u), read(delta), static_cast<const float*>(A.const_data_ptr()),
           read(B), read(C), static_cast<const float*>(D.const_data_ptr()), s, stream);
  };
  switch (u.scalar_type()) {
    case ScalarType::Float: run(float{}); break;
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "selective_scan: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "selective_scan: ", cudaGetErrorString(error));
}
