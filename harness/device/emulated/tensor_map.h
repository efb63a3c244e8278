// What cuTensorMapEncodeTiled writes into the 128 bytes of a CUtensorMap: a layout of our own.
#pragma once
#include "machine.h"

namespace emulated {

constexpr u32 TENSOR_MAP_MAGIC = 0x70616d54;

struct TensorMap {
    u32 magic;
    u8 rank, element_bytes, swizzle;  // swizzle: 0, or its width in bytes: 32, 64, 128
    Element type;
    u64 address, dims[5],
        pitches[5];  // dims in elements; pitches in bytes, the first is the size of an element
    u16 box[5];      // elements
    bool fill_nan;
};
static_assert(sizeof(TensorMap) <= 128);

}  // namespace emulated
