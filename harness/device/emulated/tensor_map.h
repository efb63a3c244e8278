// What cuTensorMapEncodeTiled writes into the 128 bytes of a CUtensorMap: a layout of our own.
#pragma once
#include <cstdint>

namespace emulated {

constexpr uint32_t TENSOR_MAP_MAGIC = 0x70616d54;

struct TensorMap {
  uint32_t magic;
  uint8_t rank, element_bytes, swizzle;  // swizzle: 0, or its width in bytes: 32, 64, 128
  uint8_t type;                          // emulated::Type
  uint64_t address;
  uint64_t dims[5];     // elements
  uint64_t pitches[5];  // bytes; pitches[0] is the size of an element
  uint16_t box[5];      // elements
  uint8_t fill_nan;
};
static_assert(sizeof(TensorMap) <= 128);

// The address of a byte of shared memory under a swizzle: bits 4.. are XORed with bits 7.. (section 5.5.7 of the PTX ISA).
inline uint32_t swizzled(uint32_t address, unsigned width) {
  return address ^ (((address >> 7) & (width / 16 - 1)) << 4 & (width ? ~0u : 0));
}

}  // namespace emulated
