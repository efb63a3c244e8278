#include "row_sum.h"

#include <algorithm>
#include <cmath>

void sum_rows(float* out, const float* x, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = x + i * cols;
    float largest = 0;
    for (int64_t j = 0; j < cols; ++j) largest = std::max(largest, std::fabs(row[j]));
    int exponent = 0;
    std::frexp(largest, &exponent);
    // A power of two: dividing by it loses nothing.
    const double unit = std::ldexp(1.0, exponent);
    double sum = 0;
    for (int64_t j = 0; j < cols; ++j) sum += row[j] / unit;
    out[i] = static_cast<float>(sum * unit);
  }
}
