// Modules (fat binaries, or PTX given to the driver), their kernels and variables, translated beforehand.
//
// The folder options.kernels holds shared libraries and `index.txt`: lines with the ID of a module, and below
// each, indented, one per kernel: NAME kernel FILE | NAME refused REASON... | NAME missing
// A missing one is not compiled yet: using it does nothing but report it, so that it is compiled before the
// next run.
#pragma once
#include "state.h"

namespace emulated {

constexpr u32 SHARED_PER_BLOCK = 48 << 10, SHARED_OPT_IN = 227 << 10, SHARED_PER_SM = 228 << 10;

struct Variable { u64 address = 0, size = 0; };
struct Record {
    std::string kind, text;  // "kernel", "refused" or "missing"; its file, or the reason
};
struct Module {
    std::string id;
    std::map<std::string, Record> kernels;
    std::map<std::string, Variable> variables;
    bool claimed = false;
};
struct Kernel {
    std::string name;
    Module* module = nullptr;
    const KernelInfo* info = nullptr;
    std::vector<u64> variables = {};  // addresses, in the order of info->variables
    u32 most_dynamic_shared = 0;      // set by the project, else what every kernel may use
    bool large_clusters = false;
};
struct Geometry {
    u32 grid[3], block[3], cluster[3] = {1, 1, 1};
    u64 dynamic_shared = 0;
    bool cooperative = false;
};

// The module with exactly these kernels, else with at least these, that is not claimed yet. May be null.
Module* claim_module(const std::vector<std::string>& kernels);
Module* module_of_ptx(const std::string& ptx);  // by CRC-32 of the text
int load_kernel(Kernel&);                       // cudaError_t; reports what cannot be emulated
int launch(Kernel&, const Geometry&, void** arguments);
Variable* find_variable(Module&, const std::string& name);
int sticky_error();
void set_sticky(int error);
u32 resident_blocks(u32 threads, u64 shared);  // per multiprocessor

}  // namespace emulated
