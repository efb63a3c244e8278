// Joint attention of text and image tokens on CUDA: float16 and bfloat16, head_dim up to 128.
//
// Nothing is concatenated. hopper_attention.cuh (TMA and wgmma) does the work, in tiles of text or of image. Small
// images would not fill those: flash_attention.cuh (mma.sync) takes them, where a row's number says which of the two
// operands it lies in, also where a tile holds the end of one and the beginning of the other. Here is where rows lie.

#include <cuda_runtime.h>

#include <cstdint>

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/ScalarType.h>

#include "../torch-ext/torch_binding.h"
#include "flash_attention.cuh"
#include "hopper_attention.cuh"

namespace {

// The tokens of one head of one sequence: text first.
template <typename T>
struct Tokens {
  T *text, *image;

  __device__ T* at(int row, int text_length, int64_t stride) const {
    return row < text_length ? text + row * stride : image + (row - text_length) * stride;
  }
};

template <typename T>
struct Head {
  Tokens<const T> q_rows, k_rows, v_rows;
  Tokens<T> out_rows;
  int queries, text, dim;
  int64_t stride;
  float scale_log2;
  static constexpr bool vectors = true;

  __device__ const T* q(int row) const { return q_rows.at(row, text, stride); }
  __device__ const T* k(int key) const { return k_rows.at(key, text, stride); }
  __device__ const T* v(int key) const { return v_rows.at(key, text, stride); }
  __device__ T* out(int row) const { return out_rows.at(row, text, stride); }
  __device__ int begin(int) const { return 0; }
  __device__ int end(int) const { return queries; }
};

// All operands are (batch, tokens, heads, dim), so the rows of a head are heads * dim apart.
template <typename T>
struct Problem {
  Tokens<T> out;
  Tokens<const T> q, k, v;
  int heads, text, image, dim;
  float scale_log2;

  template <typename U>
  __device__ Tokens<U> start(const Tokens<U>& all, int64_t sequence, int64_t column) const {
    const int64_t stride = static_cast<int64_t>(heads) * dim;
    return {all.text + sequence * text * stride + column, all.image + sequence * image * stride + column};
  }
  __device__ Head<T> head(int index) const {
    const int64_t sequence = index / heads, column = static_cast<int64_t>(index % heads) * dim;
    return {start(q, sequence, column),
            start(k, sequence, column),
            start(v, sequence, column),
            start(out, sequence, column),
            text + image,
            text,
            dim,
            static_cast<int64_t>(heads) * dim,
            scale_log2};
  }
};

// False, and nothing is started, where the driver refuses an operand.
template <typename T, int D>
bool launch_hopper(const Problem<T>& x, int64_t batch, cudaStream_t stream) {
  const int count = static_cast<int>(batch) * x.heads;
  const int64_t head = x.dim, row = head * x.heads;
  const hopper::Problem<T, 2> problem{{x.out.text, x.out.image},
                                      {row, row},
                                      {head, head},
                                      {row * x.text, row * x.image},
                                      {x.text, x.image},
                                      {x.text, x.image},
                                      x.heads,
                                      count,
                                      x.dim,
                                      x.scale_log2};
  const auto text = [&](const T* data) -> hopper::Operand { return {data, x.text, row, head, row * x.text}; };
  const auto image = [&](const T* data) -> hopper::Operand { return {data, x.image, row, head, row * x.image}; };
  return hopper::launch<T, D, 128, false, 2>(problem, {text(x.q.text), image(x.q.image)},
                                             {text(x.k.text), image(x.k.image)}, {text(x.v.text), image(x.v.image)},
                                             stream);
}

template <typename T>
bool launch_hopper(const Problem<T>& x, int64_t batch, cudaStream_t stream) {
  if (x.image < hopper::kRows / 2) return false;
  if (x.dim <= 64) return launch_hopper<T, 64>(x, batch, stream);
  if (x.dim <= 96) return launch_hopper<T, 96>(x, batch, stream);
  return launch_hopper<T, 128>(x, batch, stream);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

void flux_joint_attention(const torch::stable::Tensor& out_text, const torch::stable::Tensor& out_image,
                          const torch::stable::Tensor& q_text, const torch::stable::Tensor& k_text,
                          const torch::stable::Tensor& v_text, const torch::stable::Tensor& q_image,
                          const torch::stable::Tensor& k_image, const torch::stable::Tensor& v_image, double scale) {
  using torch::headeronly::ScalarType;
  STD_TORCH_CHECK(q_text.dim() == 4 && q_image.dim() == 4,
                  "flux_joint_attention: expected (batch, tokens, heads, head_dim)");
  const int64_t batch = q_text.size(0), heads = q_text.size(2), dim = q_text.size(3);
  const int64_t text = q_text.size(1), image = q_image.size(1);
  STD_TORCH_CHECK(dim % 8 == 0 && dim <= 128, "flux_joint_attention: head_dim must be a multiple of 8, at most 128");
  STD_TORCH_CHECK(text + image < (1 << 20) && batch * heads < (1 << 15), "flux_joint_attention: tensor too large");
  const torch::stable::Tensor* const of_text[] = {&out_text, &q_text, &k_text, &v_text};
  const torch::stable::Tensor* const of_image[] = {&out_image, &q_image, &k_image, &v_image};
  for (int i = 0; i < 8; ++i) {
    const torch::stable::Tensor* const t = i < 4 ? of_text[i] : of_image[i - 4];
    STD_TORCH_CHECK(t->dim() == 4 && t->size(0) == batch && t->size(1) == (i < 4 ? text : image) &&
                        t->size(2) == heads && t->size(3) == dim,
                    "flux_joint_attention: shapes differ");
    STD_TORCH_CHECK(t->scalar_type() == q_text.scalar_type(), "flux_joint_attention: dtypes differ");
    STD_TORCH_CHECK(t->is_contiguous() && t->is_cuda() && t->get_device_index() == q_text.get_device_index(),
                    "flux_joint_attention: expected contiguous tensors on one CUDA device");
    STD_TORCH_CHECK(aligned(t->const_data_ptr()), "flux_joint_attention: expected 16-byte alignment");
  }
  if (batch == 0 || heads == 0 || dim == 0 || text + image == 0) return;

  const torch::stable::accelerator::DeviceGuard guard(q_text.get_device_index());
  void* raw_stream = nullptr;
  STD_TORCH_CHECK(aoti_torch_get_current_cuda_stream(q_text.get_device_index(), &raw_stream) == 0,
                  "flux_joint_attention: no current stream");
  const auto stream = static_cast<cudaStream_t>(raw_stream);
  const auto run = [&](auto kind) {
    using T = decltype(kind);
    const auto read = [](const torch::stable::Tensor& a, const torch::stable::Tensor& b) -> Tokens<const T> {
      return {static_cast<const T*>(a.const_data_ptr()), static_cast<const T*>(b.const_data_ptr())};
    };
    const Tokens<T> out{static_cast<T*>(out_text.mutable_data_ptr()), static_cast<T*>(out_image.mutable_data_ptr())};
    const Problem<T> problem{out,
                             read(q_text, q_image),
                             read(k_text, k_image),
                             read(v_text, v_image),
                             static_cast<int>(heads),
                             static_cast<int>(text),
                             static_cast<int>(image),
                             static_cast<int>(dim),
                             static_cast<float>(scale) * flash::kLog2E};
    const cudaError_t error = launch_hopper(problem, batch, stream)
                                  ? cudaGetLastError()
                                  : flash::launch<T>(problem, batch * heads, text + image, dim, stream);
    STD_TORCH_CHECK(error == cudaSuccess, "flux_joint_attention: ", cudaGetErrorString(error));
  };
  switch (q_text.scalar_type()) {
    case ScalarType::Half: run(__half{}); break;
    case ScalarType::BFloat16: run(__nv_bfloat16{}); break;
    default: STD_TORCH_CHECK(false, "flux_joint_attention: expected float16 or bfloat16");
  }
}
