// CUDA's driver: modules from PTX that was translated beforehand, launches, memory that processes share. One
// device, one context. libcuda.so.1 only names this library.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "modules.h"

#define API extern "C" __attribute__((visibility("default")))

using namespace emulated;

namespace {

// A block of device memory that processes share is a file.
using Handle = CUmemGenericAllocationHandle;
Handle handle_of(int file) { return Handle(file) + 1; }
int file_of(Handle handle) { return int(handle) - 1; }

template <class T, class V> CUresult give(T* to, V value) {
    *to = T(value);
    return CUDA_SUCCESS;
}
const CUuuid UUID = {{'e', 'm', 'u', 'l', 'a', 't', 'e', 'd', ' ', 's', 'm', '_', '9', '0', 0, 0}};

}  // namespace

// ---- errors
API CUresult cuGetErrorName(CUresult e, const char** name) {
    return give(name, cudaGetErrorName(cudaError_t(e)));
}
API CUresult cuGetErrorString(CUresult e, const char** text) {
    return give(text, cudaGetErrorString(cudaError_t(e)));
}

// ---- the device and its context
API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) { return give(uuid, UUID); }
API CUresult cuDeviceGetName(char* name, int size, CUdevice) {
    std::strncpy(name, "emulated sm_90", size);
    return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return give(context, 0x40ul); }

// ---- memory
API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t n) {
    return CUresult(cudaMemcpy(to, host(from), n, cudaMemcpyDeviceToHost));
}
API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t n) {
    return CUresult(cudaMemcpy(host(to), from, n, cudaMemcpyHostToDevice));
}

// ---- virtual memory: the arenas that the judge shares with a worker
API CUresult cuMemGetAllocationGranularity(
    size_t* unit, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
    return give(unit, 2 << 20);
}
API CUresult cuMemCreate(Handle* handle, size_t size, const CUmemAllocationProp*, unsigned long long) {
    const int file = memfd_create("emulated device memory", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, off_t(size))) return CUDA_ERROR_OUT_OF_MEMORY;
    return give(handle, handle_of(file));
}
API CUresult cuMemRelease(Handle handle) {
    return close(file_of(handle)) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
API CUresult cuMemExportToShareableHandle(
    void* to, Handle handle, CUmemAllocationHandleType, unsigned long long) {
    const int copy = dup(file_of(handle));
    return copy < 0 ? CUDA_ERROR_OPERATING_SYSTEM : give(static_cast<int*>(to), copy);
}
API CUresult cuMemImportFromShareableHandle(Handle* handle, void* descriptor, CUmemAllocationHandleType) {
    const int file = dup(int(reinterpret_cast<intptr_t>(descriptor)));
    return file < 0 ? CUDA_ERROR_INVALID_VALUE : give(handle, handle_of(file));
}
API CUresult cuMemAddressReserve(CUdeviceptr* p, size_t size, size_t, CUdeviceptr, unsigned long long) {
    void* at = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : give(p, address_of(at));
}
API CUresult cuMemAddressFree(CUdeviceptr p, size_t size) {
    return munmap(host(p), size) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
API CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, Handle handle, unsigned long long) {
    constexpr int protection = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_FIXED;
    if (mmap(host(p), size, protection, flags, file_of(handle), off_t(offset)) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    add_range(p, size);
    return CUDA_SUCCESS;
}
API CUresult cuMemUnmap(CUdeviceptr p, size_t size) {
    remove_range(p, 0);
    mmap(host(p), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return CUDA_SUCCESS;
}

// ---- modules
API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    Module* found = module_of_ptx(static_cast<const char*>(image));
    if (found) return give(module, reinterpret_cast<CUmodule>(found));
    report("cannot_emulate", nullptr, 0, "a module whose PTX was not translated beforehand");
    return CUDA_ERROR_NOT_SUPPORTED;
}
API CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    auto made = std::make_unique<Kernel>(Kernel{name, reinterpret_cast<Module*>(module)});
    if (!made->module->kernels.count(name)) return CUDA_ERROR_NOT_FOUND;
    if (const int error = load_kernel(*made)) return CUresult(error);
    return give(function, reinterpret_cast<CUfunction>(made.release()));
}
API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared, CUstream, void** arguments, void**) {
    const Geometry g{{gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, shared};
    return CUresult(launch(*reinterpret_cast<Kernel*>(f), g, arguments));
}
