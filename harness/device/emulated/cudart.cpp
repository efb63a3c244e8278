// The emulated libcudart.so.13: registration, launches, memory, properties. Everything is done when a call returns.
// Functions of the real library that are not here are generated as stubs that report `cannot_emulate`.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "errors.h"
#include "modules.h"
#include "tensor_map.h"

#define API extern "C" __attribute__((visibility("default")))

namespace emulated {
namespace {

struct FatBinary {
  std::vector<std::string> kernels;
  Module* module = nullptr;
  bool resolved = false;

  Module* get() {
    if (!resolved) module = claim_module(kernels);
    resolved = true;
    return module;
  }
};

struct HostVariable {
  FatBinary* binary;
  std::string name;
  uint64_t size;
};

struct HostFunction {
  FatBinary* binary;
  Kernel kernel;
};

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};

// Never destroyed: libraries unregister at exit.
auto& functions = *new std::map<const void*, HostFunction>;
auto& host_variables = *new std::map<const void*, HostVariable>;
auto& allocations = *new std::map<void*, size_t>;
thread_local std::vector<Configuration> configurations;
thread_local cudaError_t last = cudaSuccess;

cudaError_t answer(int error) {
  if (error) last = cudaError_t(error);
  return cudaError_t(error);
}

cudaError_t done() { return answer(sticky_error()); }

// A function is named by its host stub, or by the handle that __cudaGetKernel gave out.
Kernel* find_kernel(const void* function) {
  auto found = functions.find(function);
  if (found == functions.end())
    found = std::find_if(functions.begin(), functions.end(), [&](auto& f) { return &f.second.kernel == function; });
  if (found == functions.end()) return nullptr;
  Kernel& k = found->second.kernel;
  if (!k.module) k.module = found->second.binary->get();
  return &k;
}

cudaError_t start(const void* function, Geometry g, dim3 grid, dim3 block, void** arguments, size_t shared) {
  Kernel* k = find_kernel(function);
  if (!k) return answer(cudaErrorInvalidDeviceFunction);
  const uint32_t grids[] = {grid.x, grid.y, grid.z}, blocks[] = {block.x, block.y, block.z};
  std::copy_n(grids, 3, g.grid);
  std::copy_n(blocks, 3, g.block);
  g.dynamic_shared = shared;
  return answer(launch(*k, g, arguments));
}

bool is_device(const void* p) {
  Range r;
  return find_range(reinterpret_cast<uint64_t>(p), 1, r);
}

// Whether the device end of a copy is memory of the device, as far as it goes.
bool device_end(const void* p, size_t bytes) {
  Range r;
  const auto address = reinterpret_cast<uint64_t>(p);
  if (!bytes || find_range(address, bytes, r)) return true;
  report("crashed", nullptr, 0, "a copy of " + std::to_string(bytes) + " bytes: " + describe_address(address + bytes - 1), &address);
  return false;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (sticky_error()) return done();
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ||
                         (kind == cudaMemcpyDefault && is_device(to));
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ||
                           (kind == cudaMemcpyDefault && is_device(from));
  if ((to_device && !device_end(to, bytes)) || (from_device && !device_end(from, bytes)))
    return answer(cudaErrorInvalidValue);
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t fill(void* to, int value, size_t bytes) {
  if (sticky_error()) return done();
  if (!device_end(to, bytes)) return answer(cudaErrorInvalidValue);
  std::memset(to, value, bytes);
  return cudaSuccess;
}

cudaError_t allocate(void** p, size_t bytes, bool device) {
  if (sticky_error()) return done();
  *p = bytes ? std::aligned_alloc(256, (bytes + 511) / 256 * 256) : nullptr;
  if (bytes && !*p) return answer(cudaErrorMemoryAllocation);
  if (bytes) std::memset(*p, 0xff, bytes);
  if (device) add_range(reinterpret_cast<uint64_t>(*p), bytes);
  allocations[*p] = device ? bytes : 0;
  return cudaSuccess;
}

cudaError_t release_memory(void* p) {
  if (!p) return cudaSuccess;
  const auto found = allocations.find(p);
  if (found == allocations.end()) return answer(cudaErrorInvalidValue);
  if (found->second) remove_range(reinterpret_cast<uint64_t>(p), found->second);
  allocations.erase(found);
  std::free(p);
  return done();
}

Variable* symbol(const void* host) {
  const auto found = host_variables.find(host);
  if (found == host_variables.end()) return nullptr;
  HostVariable& v = found->second;
  Module* module = v.binary->get();
  return module ? find_variable(*module, v.name) : nullptr;
}

cudaError_t symbol_copy(const void* host, void* other, size_t bytes, size_t offset, cudaMemcpyKind kind, bool to_symbol) {
  const auto known = host_variables.find(host);
  if (known == host_variables.end()) return answer(cudaErrorInvalidSymbol);
  Variable* v = symbol(host);
  if (!v) return known->second.binary->get() ? cudaSuccess : answer(cudaErrorNotSupported);  // no kernel reads it
  if (offset + bytes > v->size) return answer(cudaErrorInvalidValue);
  void* at = reinterpret_cast<void*>(v->address + offset);
  return to_symbol ? copy(at, other, bytes, kind) : copy(other, at, bytes, kind);
}

int attribute(int number) {
  switch (number) {
    case cudaDevAttrMaxThreadsPerBlock: return 1024;
    case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: return 0x7fffffff;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 48 << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return 227 << 10;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return 228 << 10;
    case cudaDevAttrReservedSharedMemoryPerBlock: return 1 << 10;
    case cudaDevAttrTotalConstantMemory: return 64 << 10;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
    case cudaDevAttrClockRate: return 1980000;
    case cudaDevAttrMemoryClockRate: return 2619000;
    case cudaDevAttrGlobalMemoryBusWidth: return 5120;
    case cudaDevAttrL2CacheSize: return 50 << 20;
    case cudaDevAttrMultiProcessorCount: return int(options.multiprocessors);
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return 32;
    case cudaDevAttrComputeCapabilityMajor: return 9;
    case cudaDevAttrConcurrentKernels: case cudaDevAttrUnifiedAddressing: case cudaDevAttrManagedMemory:
    case cudaDevAttrCooperativeLaunch: case cudaDevAttrClusterLaunch: case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrGlobalL1CacheSupported: case cudaDevAttrLocalL1CacheSupported: return 1;
    default: return 0;
  }
}

Geometry geometry_of(const cudaLaunchConfig_t& c) {
  Geometry g;
  for (unsigned i = 0; i < c.numAttrs; i++) {
    const auto& value = c.attrs[i].val;
    if (c.attrs[i].id == cudaLaunchAttributeCooperative) g.cooperative = value.cooperative != 0;
    if (c.attrs[i].id != cudaLaunchAttributeClusterDimension) continue;
    const uint32_t cluster[] = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
    std::copy_n(cluster, 3, g.cluster);
  }
  return g;
}

Type type_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return Type::U8;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16: return Type::B16;
    case CU_TENSOR_MAP_DATA_TYPE_INT32: return Type::S32;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64: return Type::U64;
    case CU_TENSOR_MAP_DATA_TYPE_INT64: return Type::S64;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16: return Type::F16;
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return Type::BF16;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return Type::F64;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32: return Type::U32;
    default: return Type::F32;
  }
}

uint8_t element_size(Type type) {
  switch (type) {
    case Type::U8: return 1;
    case Type::B16: case Type::F16: case Type::BF16: return 2;
    case Type::U64: case Type::S64: case Type::F64: return 8;
    default: return 4;
  }
}

CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address, const cuuint64_t* dims,
                      const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* steps,
                      CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                      CUtensorMapFloatOOBfill fill) {
  static const uint8_t widths[] = {0, 32, 64, 128};
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle > CU_TENSOR_MAP_SWIZZLE_128B) {
    report("cannot_emulate", nullptr, 0, "cuTensorMapEncodeTiled: interleaved layouts and atomic swizzles");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (rank < 1 || rank > 5 || !address || reinterpret_cast<uint64_t>(address) % 16) return CUDA_ERROR_INVALID_VALUE;
  TensorMap m{};
  m.magic = TENSOR_MAP_MAGIC;
  m.rank = uint8_t(rank);
  m.type = uint8_t(type_of(type));
  m.element_bytes = element_size(type_of(type));
  m.swizzle = widths[swizzle];
  m.fill_nan = fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
  m.address = reinterpret_cast<uint64_t>(address);
  for (uint32_t i = 0; i < rank; i++) {
    if (!dims[i] || dims[i] > 1ull << 32 || !box[i] || box[i] > 256) return CUDA_ERROR_INVALID_VALUE;
    if (i && (strides[i - 1] % 16 || strides[i - 1] >= 1ull << 40)) return CUDA_ERROR_INVALID_VALUE;
    if (steps[i] != 1) {
      report("cannot_emulate", nullptr, 0, "cuTensorMapEncodeTiled: element strides other than 1");
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    m.dims[i] = dims[i];
    m.box[i] = uint16_t(box[i]);
    m.pitches[i] = i ? strides[i - 1] : m.element_bytes;
  }
  const uint32_t inner = box[0] * m.element_bytes;
  if (inner % 16 || (m.swizzle && inner > m.swizzle)) return CUDA_ERROR_INVALID_VALUE;
  static_assert(sizeof m <= sizeof *map);
  std::memset(map, 0, sizeof *map);
  std::memcpy(map, &m, sizeof m);
  return CUDA_SUCCESS;
}

CUresult replace_address(CUtensorMap* map, void* address) {
  TensorMap m;
  std::memcpy(&m, map, sizeof m);
  m.address = reinterpret_cast<uint64_t>(address);
  std::memcpy(map, &m, sizeof m);
  return CUDA_SUCCESS;
}

const struct { int code; const char *name, *text; } errors[] = {
    {0, "cudaSuccess", "no error"},
    {1, "cudaErrorInvalidValue", "invalid argument"},
    {2, "cudaErrorMemoryAllocation", "out of memory"},
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {710, "cudaErrorAssert", "device-side assert triggered"},
    {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {720, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {801, "cudaErrorNotSupported", "operation not supported (by the emulated GPU)"},
};

}  // namespace

// For the torch side: memory that tensors refer to, and the error that ended a kernel.
API void emulated_add_range(uint64_t begin, uint64_t size) { add_range(begin, size); }
API void emulated_remove_range(uint64_t begin, uint64_t size) { remove_range(begin, size); }
API int emulated_error() { return sticky_error(); }
// Schedules of the launches to come: the first has this seed, each launch adds one.
API void emulated_seed(uint64_t seed) { options.seed = seed; }
// Forgets the error that ended a kernel, and what was reported: a test goes on to the next kernel.
API void emulated_reset() {
  set_sticky(0);
  forget_reports();
}
API int emulated_unsupported(const char* function) {
  report("cannot_emulate", nullptr, 0, std::string("the CUDA runtime function ") + function);
  return answer(cudaErrorNotSupported);
}

}  // namespace emulated

using namespace emulated;

// ---- registration, by nvcc's host code
API void** __cudaRegisterFatBinary(void*) { return reinterpret_cast<void**>(new FatBinary); }
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API char __cudaInitModule(void**) { return 0; }
API void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, void*, void*, void*, void*, int*) {
  auto* binary = reinterpret_cast<FatBinary*>(handle);
  binary->kernels.push_back(name);
  HostFunction& f = functions[host];
  f.binary = binary;
  f.kernel = Kernel{};
  f.kernel.name = name;
}
API void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t size, int, int) {
  host_variables[host] = {reinterpret_cast<FatBinary*>(handle), name, size};
}
API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (configurations.empty()) return answer(cudaErrorMissingConfiguration);
  const Configuration c = configurations.back();
  configurations.pop_back();
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}
API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  Kernel* k = find_kernel(function);
  if (!k) return answer(cudaErrorInvalidDeviceFunction);
  *kernel = reinterpret_cast<cudaKernel_t>(k);
  return cudaSuccess;
}
API cudaError_t __cudaLaunchKernel(cudaKernel_t f, dim3 g, dim3 b, void** arguments, size_t shared, cudaStream_t) {
  return start(f, {}, g, b, arguments, shared);
}
API cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t f, dim3 g, dim3 b, void** arguments, size_t shared, cudaStream_t) {
  return start(f, {}, g, b, arguments, shared);
}

// ---- launches
API cudaError_t cudaLaunchKernel(const void* f, dim3 g, dim3 b, void** arguments, size_t shared, cudaStream_t) {
  return start(f, {}, g, b, arguments, shared);
}
API cudaError_t cudaLaunchCooperativeKernel(const void* f, dim3 g, dim3 b, void** arguments, size_t shared, cudaStream_t) {
  Geometry geometry;
  geometry.cooperative = true;
  return start(f, geometry, g, b, arguments, shared);
}
API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** arguments) {
  return start(f, geometry_of(*c), c->gridDim, c->blockDim, arguments, c->dynamicSmemBytes);
}
API cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t f, void* data) {
  f(data);
  return cudaSuccess;
}
API cudaError_t cudaFuncSetAttribute(const void* f, cudaFuncAttribute which, int value) {
  Kernel* k = find_kernel(f);
  if (!k) return answer(cudaErrorInvalidDeviceFunction);
  if (load_kernel(*k)) return done();
  if (which == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || uint32_t(value) + k->info->shared_bytes > 227u << 10) return answer(cudaErrorInvalidValue);
    k->most_dynamic_shared = value;
  }
  if (which == cudaFuncAttributeNonPortableClusterSizeAllowed) k->large_clusters = value != 0;
  return cudaSuccess;
}
API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* f) {
  Kernel* k = find_kernel(f);
  if (!k) return answer(cudaErrorInvalidDeviceFunction);
  if (load_kernel(*k)) return done();
  *a = {};
  a->sharedSizeBytes = k->info->shared_bytes;
  a->localSizeBytes = k->info->local_bytes;
  a->maxThreadsPerBlock = int(k->info->max_threads);
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = 90;
  a->maxDynamicSharedSizeBytes = k->most_dynamic_shared ? k->most_dynamic_shared : (48 << 10) - int(k->info->shared_bytes);
  a->nonPortableClusterSizeAllowed = k->large_clusters;
  return cudaSuccess;
}
API cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return done(); }
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void* f, int threads, size_t shared) {
  Kernel* k = find_kernel(f);
  if (!k) return answer(cudaErrorInvalidDeviceFunction);
  if (load_kernel(*k)) return done();
  *n = int(resident_blocks(uint32_t(threads), k->info->shared_bytes + shared));
  return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void* f, int threads, size_t shared, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, f, threads, shared);
}
API cudaError_t cudaOccupancyMaxActiveClusters(int* n, const void* f, const cudaLaunchConfig_t* c) {
  const Geometry g = geometry_of(*c);
  const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      n, f, int(c->blockDim.x * c->blockDim.y * c->blockDim.z), c->dynamicSmemBytes);
  *n = *n * int(options.multiprocessors) / int(g.cluster[0] * g.cluster[1] * g.cluster[2]);
  return error;
}
API cudaError_t cudaOccupancyMaxPotentialClusterSize(int* n, const void* f, const cudaLaunchConfig_t*) {
  const Kernel* k = find_kernel(f);
  *n = k && k->large_clusters ? 16 : 8;
  return done();
}

// ---- errors
API cudaError_t cudaGetLastError() {
  const cudaError_t error = last ? last : cudaError_t(sticky_error());
  last = cudaSuccess;
  return error;
}
API cudaError_t cudaPeekAtLastError() { return last ? last : cudaError_t(sticky_error()); }
API const char* cudaGetErrorString(cudaError_t e) {
  for (const auto& one : errors)
    if (one.code == e) return one.text;
  return "an error of the emulated CUDA runtime";
}
API const char* cudaGetErrorName(cudaError_t e) {
  for (const auto& one : errors)
    if (one.code == e) return one.name;
  return "cudaErrorUnknown";
}

// ---- the device
API cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
API cudaError_t cudaSetDevice(int device) { return device ? answer(cudaErrorInvalidDevice) : cudaSuccess; }
API cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) { return *value = attribute(which), cudaSuccess; }
API cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
API cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::strcpy(p->name, "NVIDIA H100 80GB HBM3");
  p->totalGlobalMem = 80ull << 30;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = 227 << 10;
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->reservedSharedMemPerBlock = 1 << 10;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 64 << 10;
  p->major = 9;
  p->multiProcessorCount = int(options.multiprocessors);
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->l2CacheSize = 50 << 20;
  p->memoryBusWidth = 5120;
  p->cooperativeLaunch = p->unifiedAddressing = p->managedMemory = p->concurrentKernels = 1;
  return cudaSuccess;
}
API cudaError_t cudaDeviceSynchronize() { return done(); }
API cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return done(); }
API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, done(); }
API cudaError_t cudaCtxResetPersistingL2Cache() { return done(); }
API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** f, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* status) {
  const std::string wanted = name;
  *f = wanted == "cuTensorMapEncodeTiled" ? reinterpret_cast<void*>(&encode_tiled)
       : wanted == "cuTensorMapReplaceAddress" ? reinterpret_cast<void*>(&replace_address) : nullptr;
  if (status) *status = *f ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  if (!*f) emulated_unsupported(name);
  return *f ? cudaSuccess : cudaErrorNotSupported;
}
API cudaError_t cudaGetDriverEntryPoint(const char* name, void** f, unsigned long long flags, cudaDriverEntryPointQueryResult* status) {
  return cudaGetDriverEntryPointByVersion(name, f, CUDART_VERSION, flags, status);
}
// So that a program that links -lcuda finds it too; the emulated libcuda.so.1 forwards here.
API CUresult emulated_encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                   const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                   const cuuint32_t* steps, CUtensorMapInterleave i, CUtensorMapSwizzle s,
                                   CUtensorMapL2promotion l, CUtensorMapFloatOOBfill f) {
  return encode_tiled(map, type, rank, address, dims, strides, box, steps, i, s, l, f);
}

// ---- memory
API cudaError_t cudaMalloc(void** p, size_t n) { return allocate(p, n, true); }
API cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) { return allocate(p, n, true); }
API cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) { return allocate(p, n, true); }
API cudaError_t cudaMallocHost(void** p, size_t n) { return allocate(p, n, true); }
API cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) { return allocate(p, n, true); }
API cudaError_t cudaFree(void* p) { return release_memory(p); }
API cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return release_memory(p); }
API cudaError_t cudaFreeHost(void* p) { return release_memory(p); }
API cudaError_t cudaMemGetInfo(size_t* free, size_t* total) { return *free = 79ull << 30, *total = 80ull << 30, done(); }
API cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) { return copy(to, from, n, kind); }
API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t) {
  return copy(to, from, n, kind);
}
API cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind) {
  cudaError_t error = cudaSuccess;
  for (size_t row = 0; row < height && !error; row++)
    error = copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width, kind);
  return error;
}
API cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}
API cudaError_t cudaMemset(void* p, int value, size_t n) { return fill(p, value, n); }
API cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t) { return fill(p, value, n); }
API cudaError_t cudaMemset2DAsync(void* p, size_t pitch, int value, size_t width, size_t height, cudaStream_t) {
  cudaError_t error = cudaSuccess;
  for (size_t row = 0; row < height && !error; row++) error = fill(static_cast<char*>(p) + row * pitch, value, width);
  return error;
}
API cudaError_t cudaMemcpyToSymbol(const void* s, const void* from, size_t n, size_t offset, cudaMemcpyKind kind) {
  return symbol_copy(s, const_cast<void*>(from), n, offset, kind, true);
}
API cudaError_t cudaMemcpyToSymbolAsync(const void* s, const void* from, size_t n, size_t offset, cudaMemcpyKind kind, cudaStream_t) {
  return symbol_copy(s, const_cast<void*>(from), n, offset, kind, true);
}
API cudaError_t cudaMemcpyFromSymbol(void* to, const void* s, size_t n, size_t offset, cudaMemcpyKind kind) {
  return symbol_copy(s, to, n, offset, kind, false);
}
API cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* s, size_t n, size_t offset, cudaMemcpyKind kind, cudaStream_t) {
  return symbol_copy(s, to, n, offset, kind, false);
}
API cudaError_t cudaGetSymbolAddress(void** p, const void* s) {
  Variable* v = symbol(s);
  *p = v ? reinterpret_cast<void*>(v->address) : nullptr;
  return answer(v ? cudaSuccess : cudaErrorInvalidSymbol);
}
API cudaError_t cudaGetSymbolSize(size_t* n, const void* s) {
  const auto found = host_variables.find(s);
  if (found == host_variables.end()) return answer(cudaErrorInvalidSymbol);
  return *n = found->second.size, cudaSuccess;
}
API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  *a = {};
  const bool device = is_device(p);
  a->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  a->devicePointer = device ? const_cast<void*>(p) : nullptr;
  a->hostPointer = device ? nullptr : const_cast<void*>(p);
  return done();
}

// ---- streams and events: every operation is over when it returns
static cudaStream_t const STREAM = reinterpret_cast<cudaStream_t>(0x10);
static cudaEvent_t const EVENT = reinterpret_cast<cudaEvent_t>(0x20);
API cudaError_t cudaStreamCreate(cudaStream_t* s) { return *s = STREAM, done(); }
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return *s = STREAM, done(); }
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) { return *s = STREAM, done(); }
API cudaError_t cudaStreamDestroy(cudaStream_t) { return done(); }
API cudaError_t cudaStreamSynchronize(cudaStream_t) { return done(); }
API cudaError_t cudaStreamQuery(cudaStream_t) { return done(); }
API cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return done(); }
API cudaError_t cudaStreamSetAttribute(cudaStream_t, cudaLaunchAttributeID, const cudaLaunchAttributeValue*) { return done(); }
API cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* s) { return *s = cudaStreamCaptureStatusNone, done(); }
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus* s, unsigned long long*, cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, size_t*) {
  return *s = cudaStreamCaptureStatusNone, done();
}
API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return done(); }
API cudaError_t cudaEventCreate(cudaEvent_t* e) { return *e = EVENT, done(); }
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return *e = EVENT, done(); }
API cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return done(); }
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned) { return done(); }
API cudaError_t cudaEventQuery(cudaEvent_t) { return done(); }
API cudaError_t cudaEventSynchronize(cudaEvent_t) { return done(); }
API cudaError_t cudaEventDestroy(cudaEvent_t) { return done(); }
API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) { return *ms = 0, done(); }
