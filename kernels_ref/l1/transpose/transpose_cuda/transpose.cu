// Transposition of the last two axes on CUDA: float16, bfloat16, float32 (only the size of an element matters).
//
// Bound by memory, so the design is about moving bytes. A thread transposes an N x N tile in its registers, N elements
// being 16 bytes: N vectors are read from N rows, all in flight together, and N vectors are written to N rows of the
// output. A warp has 8 tiles side by side and 4 below each other: every load touches whole 128-byte lines, every store
// whole 64-byte halves of lines, whose other halves the next warp of the block writes. No shared memory, so
// no bank conflicts and no synchronisation.
// Matrices whose sides are not whole vectors, or that are not aligned, go through 32 x 33 elements of shared memory.

#include <cuda_runtime.h>

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

constexpr int kWarpCols = 8, kWarpRows = 4;   // tiles of a warp
constexpr int kBlockWarps = 8;                // 2 beside each other, 4 below: 16 x 16 tiles
constexpr int kTiles = 16;                    // tiles of a block along either side
constexpr int kSide = 32;                     // elements along a side of the shared tile

// N elements moved as one access of 16 bytes.
template <typename T>
struct alignas(16) Pack {
  T v[16 / sizeof(T)];
};

// As one store: nvcc splits the assignment of an array that was assembled in registers into 4-byte ones.
template <typename T>
__device__ __forceinline__ void store(T* p, const Pack<T>& pack) {
  uint4 bits;
  memcpy(&bits, &pack, sizeof(bits));
  __stcs(reinterpret_cast<uint4*>(p), bits);
}

// Which part of the batch a block has: blocks run along the columns first, then the rows, then the batch.
struct Place {
  int64_t matrix, row, col;
};
__device__ __forceinline__ Place place_of_block(unsigned row_blocks, unsigned col_blocks, int side) {
  const unsigned above = blockIdx.x / col_blocks;
  return {above / row_blocks, static_cast<int64_t>(above % row_blocks) * side,
          static_cast<int64_t>(blockIdx.x % col_blocks) * side};
}

template <typename T>
__global__ void __launch_bounds__(32 * kBlockWarps) transpose_vectors(T* __restrict__ out, const T* __restrict__ x,
                                                                     int64_t rows, int64_t cols, unsigned row_blocks,
                                                                     unsigned col_blocks) {
  constexpr int N = 16 / sizeof(T);
  using Vec = Pack<T>;
  const Place place = place_of_block(row_blocks, col_blocks, kTiles * N);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row = place.row + (warp / 2 * kWarpRows + lane / kWarpCols) * N;
  const int64_t col = place.col + (warp % 2 * kWarpCols + lane % kWarpCols) * N;
  if (row >= rows || col >= cols) return;  // whole tiles only: both sides are multiples of N
  x += place.matrix * rows * cols + row * cols + col;
  out += place.matrix * rows * cols + col * rows + row;
  Vec read[N];
#pragma unroll
  for (int i = 0; i < N; ++i) read[i] = *reinterpret_cast<const Vec*>(x + i * cols);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    Vec turned;
#pragma unroll
    for (int i = 0; i < N; ++i) turned.v[i] = read[i].v[j];
    store(out + j * rows, turned);
  }
}

// blockDim is (32, 8): a thread moves four elements of a 32 x 32 tile in and four others out.
template <typename T>
__global__ void __launch_bounds__(kSide * 8) transpose_elements(T* __restrict__ out, const T* __restrict__ x,
                                                               int64_t rows, int64_t cols, unsigned row_blocks,
                                                               unsigned col_blocks) {
  __shared__ T tile[kSide][kSide + 1];  // one more, so that a column lies in 32 different banks
  const Place place = place_of_block(row_blocks, col_blocks, kSide);
  x += place.matrix * rows * cols;
  out += place.matrix * rows * cols;
#pragma unroll
  for (int k = threadIdx.y; k < kSide; k += 8) {
    const int64_t row = place.row + k, col = place.col + threadIdx.x;
    if (row < rows && col < cols) tile[k][threadIdx.x] = x[row * cols + col];
  }
  __syncthreads();
#pragma unroll
  for (int k = threadIdx.y; k < kSide; k += 8) {
    const int64_t row = place.row + threadIdx.x, col = place.col + k;
    if (row < rows && col < cols) out[col * rows + row] = tile[threadIdx.x][k];
  }
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <typename T>
void launch(void* raw_out, const void* raw_x, int64_t batch, int64_t rows, int64_t cols, cudaStream_t stream) {
  constexpr int N = 16 / sizeof(T);
  T* out = static_cast<T*>(raw_out);
  const T* x = static_cast<const T*>(raw_x);
  const bool whole = rows % N == 0 && cols % N == 0 && aligned(out) && aligned(x);
  const int64_t side = whole ? kTiles * N : kSide;
  const int64_t row_blocks = (rows + side - 1) / side, col_blocks = (cols + side - 1) / side;
  STD_TORCH_CHECK(batch <= INT32_MAX / row_blocks / col_blocks, "transpose: tensor too large");
  const unsigned grid = static_cast<unsigned>(batch * row_blocks * col_blocks);
  const unsigned r = static_cast<unsigned>(row_blocks), c = static_cast<unsigned>(col_blocks);
  if (whole) {
    transpose_vectors<T><<<grid, 32 * kBlockWarps, 0, stream>>>(out, x, rows, cols, r, c);
  } else {
    transpose_elements<T><<<grid, dim3(kSide, 8), 0, stream>>>(out, x, rows, cols, r, c);
  }
}

}  // namespace

void transpose(const torch::stable::Tensor& out, const torch::stable::Tensor& x) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 3 && out.dim() == 3, "transpose: expected (batch, rows, cols)");
  const int64_t batch = x.size(0), rows = x.size(1), cols = x.size(2);
  STD_TORCH_CHECK(out.size(0) == batch && out.size(1) == cols && out.size(2) == rows, "transpose: shapes differ");
  STD_TORCH_CHECK(x.scalar_type() == out.scalar_type(), "transpose: dtypes differ");
  for (const auto* t : {&out, &x}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == x.get_device_index(),
                    "transpose: expected contiguous tensors on one CUDA device");
  }
  if (batch == 0 || rows == 0 || cols == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &raw_stream) == 0,
                  "transpose: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  switch (x.scalar_type()) {
    case ScalarType::Float:
      launch<uint32_t>(out.mutable_data_ptr(), x.const_data_ptr(), batch, rows, cols, stream);
      break;
    case ScalarType::Half:
    case ScalarType::BFloat16:
      launch<uint16_t>(out.mutable_data_ptr(), x.const_data_ptr(), batch, rows, cols, stream);
      break;
    default: STD_TORCH_CHECK(false, "transpose: expected float32, float16 or bfloat16");
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "transpose: ", cudaGetErrorString(error));
}
