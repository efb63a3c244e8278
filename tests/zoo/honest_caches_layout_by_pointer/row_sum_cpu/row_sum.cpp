#include "row_sum.h"

#include <map>
#include <tuple>
#include <vector>

namespace {

struct Tile {
  int64_t first, last;
  bool aligned;
};

// Where to cut depends on the address (64-byte lines), so the address is part of the key.
const std::vector<Tile>& tiles(const float* x, int64_t rows, int64_t cols) {
  static std::map<std::tuple<const float*, int64_t, int64_t>, std::vector<Tile>> known;
  auto& found = known[{x, rows, cols}];
  if (found.empty())
    for (int64_t i = 0; i < rows; i += 16)
      found.push_back({i, i + 16 < rows ? i + 16 : rows, reinterpret_cast<uintptr_t>(x + i * cols) % 64 == 0});
  return found;
}

}  // namespace

void sum_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  for (const Tile& tile : tiles(x, rows, cols)) {
    for (int64_t i = tile.first; i < tile.last; ++i) {
      const float* row = x + i * cols;
      if (tile.aligned) __builtin_prefetch(row + cols);
      float sum = 0;
      for (int64_t j = 0; j < cols; ++j) sum += row[j];
      out[i] = sum;
    }
  }
}
