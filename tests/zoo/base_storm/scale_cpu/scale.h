#pragma once
#include <cstdint>

void scale_floats(float* out, const float* x, int64_t n, float alpha);
