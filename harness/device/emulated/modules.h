// Modules (fat binaries, or PTX given to the driver), their kernels and variables, translated beforehand.
//
// The folder options.kernels holds shared libraries and `index.txt`, one record per line:
//   module ID | kernel NAME FILE | refused NAME REASON... | missing NAME
// Kernels belong to the module before them. A missing one is not compiled yet: using it does nothing but report it,
// so that it is compiled before the next run.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "state.h"

namespace emulated {

struct Variable {
  uint64_t address = 0, size = 0;
};

struct Module {
  std::string id;
  std::map<std::string, std::string> files, refused, missing;  // by kernel
  std::map<std::string, Variable> variables;
  bool claimed = false;
};

struct Kernel {
  std::string name;
  Module* module = nullptr;
  const KernelInfo* info = nullptr;
  std::vector<uint64_t> variables;  // addresses, in the order of info->variables
  int most_dynamic_shared = 0;      // set by the project; 0: what every kernel may use
  bool large_clusters = false;
};

struct Geometry {
  uint32_t grid[3], block[3], cluster[3] = {1, 1, 1};
  uint64_t dynamic_shared = 0;
  bool cooperative = false;
};

std::vector<std::unique_ptr<Module>>& modules();
// The module with exactly these kernels, else with at least these, that no fat binary has claimed. May be null.
Module* claim_module(const std::vector<std::string>& kernels);
Module* module_of_ptx(const std::string& ptx);  // by FNV-1a of the text
int load_kernel(Kernel&);                       // cudaError_t; reports what cannot be emulated
int launch(Kernel&, const Geometry&, void** arguments, const void* packed = nullptr);
Variable* find_variable(Module&, const std::string& name);
int sticky_error();
void set_sticky(int error);
uint32_t resident_blocks(uint32_t threads, uint64_t shared);  // per multiprocessor

}  // namespace emulated
