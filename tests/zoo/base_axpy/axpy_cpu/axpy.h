#pragma once
#include <cstdint>

void axpy_floats(float* y, const float* x, int64_t n, float alpha);
