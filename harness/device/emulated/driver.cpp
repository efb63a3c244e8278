// The emulated libcuda.so.1: modules from PTX that was translated beforehand, launches, memory, events. One device, one
// context.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "errors.h"
#include "modules.h"

#define API extern "C" __attribute__((visibility("default")))
#undef cuEventElapsedTime  // the header gives the second version; both are one here

using namespace emulated;

namespace {

struct Physical {
  int file;
  size_t size;
};
CUresult done(int error) { return CUresult(error); }
uint8_t* host(CUdeviceptr p) { return reinterpret_cast<uint8_t*>(p); }
auto& mapped = *new std::map<CUdeviceptr, size_t>;
auto& physical = *new std::map<CUmemGenericAllocationHandle, Physical>;
const CUuuid UUID = {{'e', 'm', 'u', 'l', 'a', 't', 'e', 'd', ' ', 's', 'm', '_', '9', '0', 0, 0}};

}  // namespace

API CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
API CUresult cuDriverGetVersion(int* version) { return *version = CUDART_VERSION, CUDA_SUCCESS; }
API CUresult cuGetErrorName(CUresult e, const char** name) { return *name = cudaGetErrorName(cudaError_t(e)), CUDA_SUCCESS; }
API CUresult cuGetErrorString(CUresult e, const char** text) { return *text = cudaGetErrorString(cudaError_t(e)), CUDA_SUCCESS; }

// ---- the device and its context
API CUresult cuDeviceGet(CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; }
API CUresult cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) { return *uuid = UUID, CUDA_SUCCESS; }
API CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::strncpy(name, "emulated sm_90", size);
  return CUDA_SUCCESS;
}
API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  // Runtime and driver number attributes alike. 102, 103: virtual memory, and its export as descriptors.
  if (which == 102 || which == 103) return *value = 1, CUDA_SUCCESS;
  return done(cudaDeviceGetAttribute(value, cudaDeviceAttr(which), 0));
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return *context = CUcontext(0x40), CUDA_SUCCESS; }
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
API CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
API CUresult cuCtxGetCurrent(CUcontext* context) { return *context = CUcontext(0x40), CUDA_SUCCESS; }
API CUresult cuCtxSynchronize() { return done(sticky_error()); }
API CUresult cuCtxResetPersistingL2Cache() { return CUDA_SUCCESS; }
API CUresult cuStreamSynchronize(CUstream) { return done(sticky_error()); }

// ---- memory
API CUresult cuMemGetInfo_v2(size_t* free, size_t* total) { return done(cudaMemGetInfo(free, total)); }
API CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t n) { return done(cudaMalloc(reinterpret_cast<void**>(p), n)); }
API CUresult cuMemFree_v2(CUdeviceptr p) { return done(cudaFree(host(p))); }
API CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t n) { return done(cudaMemcpy(to, host(from), n, cudaMemcpyDeviceToHost)); }
API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t n) { return done(cudaMemcpy(host(to), from, n, cudaMemcpyHostToDevice)); }
API CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t n, CUstream) { return done(cudaMemset(host(p), value, n)); }
API CUresult cuMemGetAllocationGranularity(size_t* unit, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  return *unit = 2 << 20, CUDA_SUCCESS;
}
API CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp*, unsigned long long) {
  const int file = memfd_create("emulated device memory", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, off_t(size))) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = CUmemGenericAllocationHandle(file) + 1;
  physical[*handle] = {file, size};
  return CUDA_SUCCESS;
}
API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  close(physical[handle].file);
  physical.erase(handle);
  return CUDA_SUCCESS;
}
API CUresult cuMemExportToShareableHandle(void* descriptor, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType, unsigned long long) {
  const int copy = dup(physical[handle].file);
  std::memcpy(descriptor, &copy, sizeof copy);
  return copy < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* descriptor, CUmemAllocationHandleType) {
  const int file = dup(int(reinterpret_cast<intptr_t>(descriptor)));
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = CUmemGenericAllocationHandle(file) + 1;
  physical[*handle] = {file, size_t(lseek(file, 0, SEEK_END))};
  return CUDA_SUCCESS;
}
API CUresult cuMemAddressReserve(CUdeviceptr* p, size_t size, size_t, CUdeviceptr, unsigned long long) {
  void* at = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  return *p = CUdeviceptr(at), CUDA_SUCCESS;
}
API CUresult cuMemAddressFree(CUdeviceptr p, size_t size) { return munmap(host(p), size) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
API CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long) {
  void* at = mmap(host(p), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, physical[handle].file, off_t(offset));
  if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  mapped[p] = size;
  add_range(p, size);
  return CUDA_SUCCESS;
}
API CUresult cuMemUnmap(CUdeviceptr p, size_t size) {
  remove_range(p, mapped[p]);
  mapped.erase(p);
  mmap(host(p), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  return CUDA_SUCCESS;
}
API CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }
API CUresult cuIpcGetMemHandle(CUipcMemHandle*, CUdeviceptr) { return CUDA_ERROR_NOT_SUPPORTED; }
API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr*, CUipcMemHandle, unsigned) { return CUDA_ERROR_NOT_SUPPORTED; }
API CUresult cuIpcCloseMemHandle(CUdeviceptr) { return CUDA_ERROR_NOT_SUPPORTED; }

// ---- modules
API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  Module* found = module_of_ptx(static_cast<const char*>(image));
  if (!found) {
    report("cannot_emulate", nullptr, 0, "a module whose PTX was not translated beforehand");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return *module = reinterpret_cast<CUmodule>(found), CUDA_SUCCESS;
}
API CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
API CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  auto made = std::make_unique<Kernel>();
  made->name = name;
  made->module = reinterpret_cast<Module*>(module);
  if (!made->module->files.count(name) && !made->module->refused.count(name)) return CUDA_ERROR_NOT_FOUND;
  if (const int error = load_kernel(*made)) return done(error);
  return *function = reinterpret_cast<CUfunction>(made.release()), CUDA_SUCCESS;
}
API CUresult cuModuleGetGlobal_v2(CUdeviceptr* p, size_t* size, CUmodule module, const char* name) {
  const Variable* v = find_variable(*reinterpret_cast<Module*>(module), name);
  if (!v) return CUDA_ERROR_NOT_FOUND;
  if (p) *p = v->address;
  if (size) *size = v->size;
  return CUDA_SUCCESS;
}
API CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute which, int value) {
  if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) reinterpret_cast<Kernel*>(f)->most_dynamic_shared = value;
  return CUDA_SUCCESS;
}
API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                            unsigned shared, CUstream, void** arguments, void** extra) {
  Geometry g;
  const uint32_t grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  std::copy_n(grid, 3, g.grid);
  std::copy_n(block, 3, g.block);
  g.dynamic_shared = shared;
  const void* packed = nullptr;
  for (; !arguments && extra && *extra != CU_LAUNCH_PARAM_END; extra += 2)
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) packed = extra[1];
  return done(launch(*reinterpret_cast<Kernel*>(f), g, arguments, packed));
}

// ---- events
API CUresult cuEventCreate(CUevent* event, unsigned) { return *event = CUevent(0x20), CUDA_SUCCESS; }
API CUresult cuEventRecord(CUevent, CUstream) { return done(sticky_error()); }
API CUresult cuEventQuery(CUevent) { return done(sticky_error()); }
API CUresult cuEventSynchronize(CUevent) { return done(sticky_error()); }
API CUresult cuEventElapsedTime(float* ms, CUevent, CUevent) { return *ms = 1.0f, CUDA_SUCCESS; }
API CUresult cuEventDestroy_v2(CUevent) { return CUDA_SUCCESS; }

extern "C" CUresult emulated_encode_tiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                                          const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                          CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
API CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                    const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                    const cuuint32_t* steps, CUtensorMapInterleave i, CUtensorMapSwizzle s,
                                    CUtensorMapL2promotion l, CUtensorMapFloatOOBfill f) {
  return emulated_encode_tiled(map, type, rank, address, dims, strides, box, steps, i, s, l, f);
}
