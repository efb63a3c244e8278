// Mixture-of-experts dispatch on the CPU: a counting sort, and rows copied as it goes.
//
// Expert numbers are small, so no comparison sort is needed: count, sum up, place. Assignments are placed in their own
// order, which makes the sort stable, and a token's row is copied to its k places while it is in the L1 cache, where
// an indexed gather comes back for it k times.

#include <cstdint>
#include <cstring>
#include <vector>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

void dispatch(float* x_sorted, int32_t* order, int32_t* offsets, const float* x, const int32_t* ids, int32_t* load,
              int64_t tokens, int64_t k, int64_t experts, int64_t hidden) {
  std::vector<int32_t> next(static_cast<size_t>(experts));  // how many go to an expert, then its next free place
  for (int64_t n = 0; n < tokens * k; ++n) ++next[ids[n]];
  int32_t sum = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int32_t count = next[e];
    load[e] += count;
    offsets[e] = next[e] = sum;
    sum += count;
  }
  offsets[experts] = sum;
  for (int64_t n = 0; n < tokens * k; ++n) {
    const int64_t place = next[ids[n]]++;
    order[place] = static_cast<int32_t>(n);
    std::memcpy(x_sorted + place * hidden, x + n / k * hidden, static_cast<size_t>(hidden) * sizeof(float));
  }
}

}  // namespace

void moe_dispatch(const torch::stable::Tensor& x_sorted, const torch::stable::Tensor& order,
                  const torch::stable::Tensor& offsets, const torch::stable::Tensor& x,
                  const torch::stable::Tensor& ids, const torch::stable::Tensor& load) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(x.dim() == 2 && x_sorted.dim() == 2 && ids.dim() == 2 && order.dim() == 1 && offsets.dim() == 1 &&
                      load.dim() == 1,
                  "moe_dispatch: expected (tokens, hidden), (tokens, k) and (experts,)");
  const int64_t tokens = x.size(0), hidden = x.size(1), k = ids.size(1), experts = load.size(0);
  STD_TORCH_CHECK(ids.size(0) == tokens && x_sorted.size(0) == tokens * k && x_sorted.size(1) == hidden &&
                      order.size(0) == tokens * k && offsets.size(0) == experts + 1,
                  "moe_dispatch: shapes differ");
  STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float && x_sorted.scalar_type() == ScalarType::Float,
                  "moe_dispatch: the CPU kernel takes float32");
  for (const auto* t : {&order, &offsets, &ids, &load}) {
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Int, "moe_dispatch: expected int32 indices and counts");
  }
  for (const auto* t : {&x_sorted, &order, &offsets, &x, &ids, &load}) {
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "moe_dispatch: expected contiguous CPU tensors");
  }
  dispatch(static_cast<float*>(x_sorted.mutable_data_ptr()), static_cast<int32_t*>(order.mutable_data_ptr()),
           static_cast<int32_t*>(offsets.mutable_data_ptr()), static_cast<const float*>(x.const_data_ptr()),
           static_cast<const int32_t*>(ids.const_data_ptr()), static_cast<int32_t*>(load.mutable_data_ptr()), tokens, k,
           experts, hidden);
}
