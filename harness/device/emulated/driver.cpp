// The emulated libcuda.so.1: modules from PTX that was translated beforehand, launches, memory, events. One
// device, one context.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "modules.h"

#define API extern "C" __attribute__((visibility("default")))
#undef cuEventElapsedTime  // the header gives the second version; both are one here

using namespace emulated;

namespace {

// A block of device memory that processes share is a file.
using Handle = CUmemGenericAllocationHandle;
Handle handle_of(int file) { return Handle(file) + 1; }
int file_of(Handle handle) { return int(handle) - 1; }

CUresult done(int error) { return CUresult(error); }
template <class T, class V> CUresult give(T* to, V value) {
    *to = T(value);
    return CUDA_SUCCESS;
}
const CUuuid UUID = {{'e', 'm', 'u', 'l', 'a', 't', 'e', 'd', ' ', 's', 'm', '_', '9', '0', 0, 0}};

}  // namespace

// ---- calls that do nothing: everything is over when a call returns; later ones fail where a kernel did
API int emulated_success() { return CUDA_SUCCESS; }
API int emulated_status() { return sticky_error(); }
API int emulated_missing() { return CUDA_ERROR_NOT_SUPPORTED; }
asm(R"(
.macro same_as function, names:vararg
.irp name, \names
.globl \name
.set \name, \function
.endr
.endm
same_as emulated_success, cuInit, cuDevicePrimaryCtxRelease_v2, cuCtxSetCurrent, cuCtxResetPersistingL2Cache
same_as emulated_success, cuMemSetAccess, cuModuleUnload, cuEventDestroy_v2
same_as emulated_status, cuCtxSynchronize, cuEventRecord, cuEventQuery
same_as emulated_missing, cuIpcGetMemHandle, cuIpcOpenMemHandle_v2, cuIpcCloseMemHandle
)");

// ---- errors
API CUresult cuGetErrorName(CUresult e, const char** name) {
    return give(name, cudaGetErrorName(cudaError_t(e)));
}
API CUresult cuGetErrorString(CUresult e, const char** text) {
    return give(text, cudaGetErrorString(cudaError_t(e)));
}

// ---- the device and its context
API CUresult cuDriverGetVersion(int* version) { return give(version, CUDART_VERSION); }
API CUresult cuDeviceGet(CUdevice* device, int) { return give(device, 0); }
API CUresult cuDeviceGetCount(int* count) { return give(count, 1); }
API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) { return give(uuid, UUID); }
API CUresult cuDeviceGetName(char* name, int size, CUdevice) {
    std::strncpy(name, "emulated sm_90", size);
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
    // Runtime and driver number attributes alike. 102, 103: virtual memory, and its export as descriptors.
    if (which == 102 || which == 103) return give(value, 1);
    return done(cudaDeviceGetAttribute(value, cudaDeviceAttr(which), 0));
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return give(context, 0x40ul); }

// ---- memory
API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) { return done(cudaMemGetInfo(free, total)); }
API CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t n) {
    return done(cudaMalloc(reinterpret_cast<void**>(p), n));
}
API CUresult cuMemFree_v2(CUdeviceptr p) { return done(cudaFree(host(p))); }
API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t n) {
    return done(cudaMemcpy(to, host(from), n, cudaMemcpyDeviceToHost));
}
API CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t n, CUstream) {
    return done(cudaMemset(host(p), value, n));
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
    if (const int error = load_kernel(*made)) return done(error);
    return give(function, reinterpret_cast<CUfunction>(made.release()));
}
API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared, CUstream, void** arguments, void**) {
    const Geometry g{{gx, gy, gz}, {bx, by, bz}, {1, 1, 1}, shared};
    return done(launch(*reinterpret_cast<Kernel*>(f), g, arguments));
}

// ---- events
API CUresult cuEventCreate(CUevent* event, unsigned) { return give(event, 0x20ul); }
API CUresult cuEventElapsedTime(float* ms, CUevent, CUevent) { return give(ms, 1); }
