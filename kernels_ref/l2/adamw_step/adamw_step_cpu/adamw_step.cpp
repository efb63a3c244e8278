// One AdamW step on the CPU, float32.
//
// One sweep over the four arrays: nothing is written that need not be, where separate PyTorch ops read and write
// whole arrays about ten times. A plain loop over restricted pointers is vectorised by the compiler, square root and
// division too (for which build.toml says that sqrt need not set errno).
// The loop is written once and compiled for AVX-512, AVX2 and the baseline; cpuid picks one.

#include <cmath>
#include <cstdint>

#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"

namespace {

// What the scalars come to, computed in double.
struct Factors {
  float beta1, beta2, gain1, gain2, root_gain, eps, decay, step_size;
};

inline __attribute__((always_inline)) void update(float* __restrict p, const float* __restrict grad,
                                                  float* __restrict exp_avg, float* __restrict exp_avg_sq,
                                                  int64_t count, const Factors& f) {
  const float beta1 = f.beta1, beta2 = f.beta2, gain1 = f.gain1, gain2 = f.gain2;
  const float root_gain = f.root_gain, eps = f.eps, decay = f.decay, step_size = f.step_size;
  for (int64_t i = 0; i < count; ++i) {
    const float g = grad[i];
    const float m = exp_avg[i] * beta1 + g * gain1;
    const float v = exp_avg_sq[i] * beta2 + g * g * gain2;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    p[i] = p[i] * decay - step_size * m / (std::sqrt(v) * root_gain + eps);
  }
}

using Run = void (*)(float*, const float*, float*, float*, int64_t, const Factors&);
#define DEFINE_RUN(NAME)                                                                                    \
  void NAME(float* p, const float* grad, float* exp_avg, float* exp_avg_sq, int64_t count, const Factors& f) { \
    update(p, grad, exp_avg, exp_avg_sq, count, f);                                                         \
  }

DEFINE_RUN(run_baseline)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) DEFINE_RUN(run_avx2)
__attribute__((target("avx512f,prefer-vector-width=512"))) DEFINE_RUN(run_avx512)
#endif

Run pick_run() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return run_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return run_avx2;
#endif
  return run_baseline;
}

}  // namespace

void adamw_step(const torch::stable::Tensor& p, const torch::stable::Tensor& grad,
                const torch::stable::Tensor& exp_avg, const torch::stable::Tensor& exp_avg_sq, double lr, double beta1,
                double beta2, double eps, double weight_decay, int64_t step) {
  using torch::headeronly::ScalarType;
  const int64_t count = p.numel();
  for (const auto* t : {&p, &grad, &exp_avg, &exp_avg_sq}) {
    STD_TORCH_CHECK(t->dim() == 1 && t->numel() == count, "adamw_step: expected four tensors of shape (count,)");
    STD_TORCH_CHECK(t->scalar_type() == ScalarType::Float, "adamw_step: the CPU kernel takes float32");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cpu(), "adamw_step: expected contiguous CPU tensors");
  }
  STD_TORCH_CHECK(step >= 1, "adamw_step: steps count from 1");
  const double times = static_cast<double>(step);
  const Factors f{static_cast<float>(beta1),
                  static_cast<float>(beta2),
                  static_cast<float>(1.0 - beta1),
                  static_cast<float>(1.0 - beta2),
                  static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, times))),
                  static_cast<float>(eps),
                  static_cast<float>(1.0 - lr * weight_decay),
                  static_cast<float>(lr / (1.0 - std::pow(beta1, times)))};
  static const Run run = pick_run();
  run(static_cast<float*>(p.mutable_data_ptr()), static_cast<const float*>(grad.const_data_ptr()),
      static_cast<float*>(exp_avg.mutable_data_ptr()), static_cast<float*>(exp_avg_sq.mutable_data_ptr()), count, f);
}
