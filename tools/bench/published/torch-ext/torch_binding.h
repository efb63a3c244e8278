#pragma once

#include <torch/torch.h>

void scale(torch::Tensor& out, const torch::Tensor& x, double factor);
