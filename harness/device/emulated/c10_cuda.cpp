// What projects of the ordinary ABI take from libc10_cuda and libtorch_cuda: device and its properties, streams,
// error checks, the allocator.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

namespace c10::cuda {

DeviceIndex device_count() noexcept { return 1; }
DeviceIndex device_count_ensure_non_zero() { return 1; }
DeviceIndex current_device() { return 0; }
void set_device(DeviceIndex, bool) {}
void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }
cudaError_t GetDeviceCount(int* count) { return cudaGetDeviceCount(count); }
cudaError_t GetDevice(DeviceIndex* device) { return *device = 0, cudaSuccess; }
cudaError_t SetDevice(DeviceIndex, bool) { return cudaSuccess; }
cudaError_t MaybeSetDevice(DeviceIndex) { return cudaSuccess; }
DeviceIndex ExchangeDevice(DeviceIndex) { return 0; }
DeviceIndex MaybeExchangeDevice(DeviceIndex) { return 0; }
void SetTargetDevice() {}

static CUDAStream the_stream() {
    return CUDAStream(CUDAStream::UNCHECKED, Stream(Stream::DEFAULT, Device(kCUDA, 0)));
}
CUDAStream getCurrentCUDAStream(DeviceIndex) { return the_stream(); }
CUDAStream getDefaultCUDAStream(DeviceIndex) { return the_stream(); }
CUDAStream getStreamFromPool(bool, DeviceIndex) { return the_stream(); }
CUDAStream getStreamFromPool(int, DeviceIndex) { return the_stream(); }
CUDAStream getStreamFromExternal(cudaStream_t, DeviceIndex) { return the_stream(); }
void setCurrentCUDAStream(CUDAStream) {}
cudaStream_t CUDAStream::stream() const { return nullptr; }
bool CUDAStream::query() const { return true; }
void CUDAStream::synchronize() const { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

void c10_cuda_check_implementation(
    int32_t error, const char* file, const char* function, uint32_t line, bool) {
    TORCH_CHECK(error == 0, "CUDA error: ", cudaGetErrorString(cudaError_t(error)), " in ", function, " at ",
        file, ":", line);
}

namespace CUDACachingAllocator {
std::atomic<CUDAAllocator*> allocator{nullptr};
}

}  // namespace c10::cuda

namespace at::cuda {  // declared here: ATen's header includes cuSPARSE and cuSOLVER

C10_EXPORT cudaDeviceProp* getDeviceProperties(c10::DeviceIndex) {
    static cudaDeviceProp properties = [] {
        cudaDeviceProp found{};
        C10_CUDA_CHECK(cudaGetDeviceProperties(&found, 0));
        return found;
    }();
    return &properties;
}
C10_EXPORT cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
C10_EXPORT int warp_size() { return 32; }

}  // namespace at::cuda
