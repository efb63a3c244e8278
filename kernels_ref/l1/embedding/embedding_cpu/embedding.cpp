// Embedding lookup on the CPU, float32.
//
// Nothing but copies, so the work is to have the next row on its way while this one is being copied: rows are chosen
// at random, which no hardware prefetcher can guess. The first lines of the row two tokens ahead are requested; the
// hardware follows the rest of it.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

constexpr int64_t kAhead = 2, kLine = 16, kLines = 8;  // no mutate: only what is requested early

void copy_rows(float* out, const int64_t* ids, const float* table, int64_t tokens, int64_t dim) {
  for (int64_t t = 0; t < tokens; ++t) {
    const float* next = table + ids[std::min(t + kAhead, tokens - 1)] * dim;        // no mutate: a hint
    const int64_t end = std::min(dim, kLines * kLine);                              // no mutate: a hint
    for (int64_t j = 0; j < end; j += kLine) __builtin_prefetch(next + j);          // no mutate: a hint
    std::memcpy(out + t * dim, table + ids[t] * dim, static_cast<size_t>(dim) * sizeof(float));
  }
}

}  // namespace

void embedding(const torch::stable::Tensor& out, const torch::stable::Tensor& ids,
               const torch::stable::Tensor& table) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(out.dim() == 2 && ids.dim() == 1 && table.dim() == 2,
                  "embedding: expected (tokens, dim), (tokens,) and (vocab, dim)");
  const int64_t tokens = out.size(0), dim = out.size(1);
  STD_TORCH_CHECK(ids.size(0) == tokens && table.size(1) == dim, "embedding: shapes differ");
  STD_TORCH_CHECK(ids.scalar_type() == ScalarType::Long, "embedding: ids are int64");
  for (const auto* t : {&out, &table}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "embedding: the CPU kernel takes float32");
  }
  for (const auto* t : {&out, &ids, &table}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "embedding: expected contiguous CPU tensors");
  }
  copy_rows(static_cast<float*>(out.mutable_data_ptr()), static_cast<const int64_t*>(ids.const_data_ptr()),
            static_cast<const float*>(table.const_data_ptr()), tokens, dim);
}
