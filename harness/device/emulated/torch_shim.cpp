// CUDA tensors for a CPU build of PyTorch: their memory is the host's, their kernels are the emulated GPU's
// or, for PyTorch's own operators, the CPU's. Load it after libtorch_cpu and before `import torch`.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

extern "C" void emulated_add_range(uint64_t begin, uint64_t size);
extern "C" void emulated_remove_range(uint64_t begin, uint64_t size);

namespace at {

// PyTorch's registry looks for this name.
struct CUDAHooks : CUDAHooksInterface {
    explicit CUDAHooks(CUDAHooksArgs) {}
    bool hasCUDA() const override { return true; }
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(DeviceIndex) const override { return true; }
    DeviceIndex deviceCount() const override { return 1; }
    DeviceIndex getCurrentDevice() const override { return 0; }
    Device getDeviceFromPtr(void*) const override { return {kCUDA, 0}; }
};
REGISTER_CUDA_HOOKS(CUDAHooks);

}  // namespace at

namespace {

const c10::Device GPU(c10::kCUDA, 0), HOST(c10::kCPU);

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::kCUDA> {
    c10::Device exchangeDevice(c10::Device) const override { return GPU; }
    c10::Device getDevice() const override { return GPU; }
    c10::Stream getStream(c10::Device) const noexcept override {
        return c10::Stream(c10::Stream::DEFAULT, GPU);
    }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard);

// Keeps the memory's owner, and the bounds that the emulated GPU checks, while a CUDA tensor refers to it.
struct Held {
    c10::Storage owner;
    uint64_t begin, size;
    ~Held() { emulated_remove_range(begin, size); }
};

// The same memory on the other device. A CUDA tensor's bounds are its elements, not its whole storage.
at::Tensor alias(const at::Tensor& x, c10::Device device) {
    if (!x.defined() || x.device().type() == device.type()) return x;
    const c10::Storage& storage = x.storage();
    auto* held = new Held{storage, 0, 0};
    if (device.is_cuda() && x.numel()) {
        uint64_t extent = 1;
        for (int64_t d = 0; d < x.dim(); d++) extent += uint64_t(x.size(d) - 1) * uint64_t(x.stride(d));
        held->begin = reinterpret_cast<uint64_t>(x.const_data_ptr());
        held->size = extent * x.element_size();
        emulated_add_range(held->begin, held->size);
    }
    auto drop = [](void* p) { delete static_cast<Held*>(p); };
    c10::Storage view(
        c10::Storage::use_byte_size_t(), storage.nbytes(), {storage.mutable_data(), held, drop, device});
    const auto key = device.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
    auto made =
        at::detail::make_tensor<c10::TensorImpl>(std::move(view), c10::DispatchKeySet(key), x.dtype());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), x.strides(), x.storage_offset());
    return made;
}

// Applies f to the tensors of an argument or result.
template <class F> c10::IValue each_tensor(const c10::IValue& v, F f) {
    if (v.isTensor()) return f(v.toTensor());
    if (v.isTensorList()) {
        std::vector<at::Tensor> list = v.toTensorVector();
        for (at::Tensor& x : list) x = f(x);
        return list;
    }
    if (!v.isOptionalTensorList()) return v.isDevice() ? HOST : v;
    std::vector<std::optional<at::Tensor>> list = v.toOptionalTensorVector();
    for (std::optional<at::Tensor>& x : list)
        if (x) x = f(*x);
    return list;
}

// PyTorch's own operators on CUDA tensors: the CPU's, on the same memory.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    std::vector<std::pair<at::Tensor, at::Tensor>> pairs;  // CUDA, CPU
    auto in = [&](const at::Tensor& x) {
        at::Tensor y = alias(x, HOST);
        if (x.defined() && x.is_cuda()) pairs.emplace_back(x, y);
        return y;
    };
    auto out = [&](const at::Tensor& y) {
        for (auto& [cuda, cpu] : pairs)
            if (cpu.unsafeGetTensorImpl() == y.unsafeGetTensorImpl()) {
                cuda.unsafeGetTensorImpl()->set_sizes_and_strides(y.sizes(), y.strides(), y.storage_offset());
                return cuda;
            }
        return alias(y, GPU);
    };
    const size_t arguments = op.schema().arguments().size(), results = op.schema().returns().size();
    for (size_t i = stack->size() - arguments; i < stack->size(); i++)
        (*stack)[i] = each_tensor((*stack)[i], in);
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    for (size_t i = stack->size() - results; i < stack->size(); i++)
        (*stack)[i] = each_tensor((*stack)[i], out);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }
TORCH_LIBRARY_IMPL(aten, CUDA, m) {  // those that PyTorch dispatches without asking for a fallback
    for (const char* name : {"copy_", "fill_.Scalar", "zero_"})
        m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
TORCH_LIBRARY(liftbench_emulated, m) {
    m.def("cuda(Tensor x) -> Tensor", [](const at::Tensor& x) { return alias(x, GPU); });
    m.def("host(Tensor x) -> Tensor", [](const at::Tensor& x) { return alias(x, HOST); });
}

extern "C" __attribute__((visibility("default"))) int aoti_torch_get_current_cuda_stream(int, void** stream) {
    *stream = nullptr;
    return 0;
}
