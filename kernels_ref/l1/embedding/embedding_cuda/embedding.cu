// Embedding lookup on CUDA: float16, bfloat16, float32 (only the size of an element matters).
//
// Bound by memory, so the design is about moving bytes: a row is copied by as many threads as it has 16-byte vectors
// (a power of two up to 256; short rows share a block), each with up to four vectors in flight before the first is
// stored. Output is stored as streaming data, so that the L2 cache keeps rows of the table: frequent tokens come
// back. Rows that are not whole vectors are copied by the same kernel one element at a time.

#include <cuda_runtime.h>

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 4;

// x of the grid and y of the block choose the token; the rest of the threads run along `vectors` elements of type Vec.
template <typename Vec>
__global__ void __launch_bounds__(kThreads) copy_rows(Vec* __restrict__ out, const int64_t* __restrict__ ids,
                                                      const Vec* __restrict__ table, int64_t tokens, int64_t vectors) {
  const int64_t token = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (token >= tokens) return;
  const Vec* from = table + ids[token] * vectors;
  Vec* to = out + token * vectors;
  for (int64_t i = threadIdx.x; i < vectors; i += kInFlight * blockDim.x) {
    Vec v[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (i + k * blockDim.x < vectors) v[k] = __ldg(from + i + k * blockDim.x);
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (i + k * blockDim.x < vectors) __stcs(to + i + k * blockDim.x, v[k]);
    }
  }
}

template <typename Vec>
void launch(void* out, const int64_t* ids, const void* table, int64_t tokens, int64_t vectors, cudaStream_t stream) {
  int wide = kThreads;  // threads along a row: a power of two, so that short rows share a block
  while (wide > 1 && wide / 2 >= vectors) wide /= 2;
  const dim3 block(wide, kThreads / wide);
  const unsigned grid = static_cast<unsigned>((tokens + block.y - 1) / block.y);
  copy_rows<Vec><<<grid, block, 0, stream>>>(static_cast<Vec*>(out), ids, static_cast<const Vec*>(table), tokens,
                                             vectors);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

void embedding(const torch::stable::Tensor& out, const torch::stable::Tensor& ids,
               const torch::stable::Tensor& table) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(out.dim() == 2 && ids.dim() == 1 && table.dim() == 2,
                  "embedding: expected (tokens, dim), (tokens,) and (vocab, dim)");
  const int64_t tokens = out.size(0), dim = out.size(1);
  STD_TORCH_CHECK(ids.size(0) == tokens && table.size(1) == dim, "embedding: shapes differ");
  STD_TORCH_CHECK(tokens <= INT32_MAX, "embedding: too many tokens");
  STD_TORCH_CHECK(ids.scalar_type() == ScalarType::Long, "embedding: ids are int64");
  STD_TORCH_CHECK(out.scalar_type() == table.scalar_type(), "embedding: dtypes differ");
  for (const auto* t : {&out, &ids, &table}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == out.get_device_index(),
                    "embedding: expected contiguous tensors on one CUDA device");
  }
  const ScalarType type = out.scalar_type();
  STD_TORCH_CHECK(type == ScalarType::Float || type == ScalarType::Half || type == ScalarType::BFloat16,
                  "embedding: expected float32, float16 or bfloat16");
  if (tokens == 0 || dim == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(out.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(out.get_device_index(), &raw_stream) == 0,
                  "embedding: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  void* to = out.mutable_data_ptr();
  const void* from = table.const_data_ptr();
  const auto* which = static_cast<const int64_t*>(ids.const_data_ptr());
  const int64_t size = type == ScalarType::Float ? 4 : 2;
  if (dim * size % 16 == 0 && aligned(to) && aligned(from)) {
    launch<uint4>(to, which, from, tokens, dim * size / 16, stream);
  } else if (size == 4) {
    launch<unsigned int>(to, which, from, tokens, dim, stream);
  } else {
    launch<unsigned short>(to, which, from, tokens, dim, stream);
  }
  const cudaError_t error = cudaGetLastError();
  STD_TORCH_CHECK(error == cudaSuccess, "embedding: ", cudaGetErrorString(error));
}
