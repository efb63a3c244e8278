#include "modules.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "errors.h"

namespace emulated {
namespace {

constexpr uint32_t SHARED_PER_BLOCK = 48 << 10, SHARED_OPT_IN = 227 << 10, SHARED_PER_SM = 228 << 10;

int sticky = 0;
constexpr uint64_t NOT_COMPILED_BYTES = 1 << 20;  // of a variable whose kernels are missing
const KernelInfo NOT_COMPILED{.abi = ABI, .name = "", .max_threads = 1024};

std::vector<std::unique_ptr<Module>> read_index() {
  std::vector<std::unique_ptr<Module>> all;
  std::ifstream file(options.kernels + "/index.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string record, name, rest;
    words >> record >> name;
    std::getline(words >> std::ws, rest);
    if (record == "module") {
      all.push_back(std::make_unique<Module>());
      all.back()->id = name;
    } else if (!all.empty() && record == "kernel") {
      all.back()->files[name] = rest;
    } else if (!all.empty() && record == "refused") {
      all.back()->refused[name] = rest;
    } else if (!all.empty()) {
      all.back()->missing[name] = rest;
    }
  }
  return all;
}

void make_variables(Kernel& kernel) {
  const KernelInfo& info = *kernel.info;
  std::vector<bool> is_new(info.variable_count);
  for (uint32_t i = 0; i < info.variable_count; i++) {
    const VariableInfo& v = info.variables[i];
    Variable& made = kernel.module->variables[v.name];
    is_new[i] = !made.address;
    if (is_new[i]) {
      const uint64_t align = std::max<uint64_t>(v.align, 256);
      made.size = v.size;
      made.address = reinterpret_cast<uint64_t>(std::aligned_alloc(align, (v.size + align) / align * align));
      std::memset(reinterpret_cast<void*>(made.address), 0, v.size);
      if (v.initial) std::memcpy(reinterpret_cast<void*>(made.address), v.initial, v.initial_size);
      add_range(made.address, v.size);
    }
    kernel.variables.push_back(made.address);
  }
  for (uint32_t i = 0; i < info.relocation_count; i++) {
    const RelocationInfo& r = info.relocations[i];
    const uint64_t target = kernel.variables[r.target] + r.addend;
    if (is_new[r.variable]) std::memcpy(reinterpret_cast<void*>(kernel.variables[r.variable] + r.offset), &target, 8);
  }
}

int refuse(const std::string& what) {
  report("cannot_emulate", nullptr, 0, what);
  set_sticky(NOT_SUPPORTED);
  return NOT_SUPPORTED;
}

int check_geometry(const Kernel& k, const Geometry& g) {
  const uint64_t threads = uint64_t(g.block[0]) * g.block[1] * g.block[2];
  const uint64_t blocks = uint64_t(g.grid[0]) * g.grid[1] * g.grid[2];
  const uint64_t cluster = uint64_t(g.cluster[0]) * g.cluster[1] * g.cluster[2];
  if (!threads || threads > 1024 || g.block[2] > 64 || !blocks || g.grid[1] > 65535 || g.grid[2] > 65535 ||
      g.grid[0] > 0x7fffffff)
    return INVALID_CONFIGURATION;
  if (threads > k.info->max_threads) return INVALID_VALUE;
  const uint64_t most = k.most_dynamic_shared ? k.most_dynamic_shared : SHARED_PER_BLOCK - std::min(k.info->shared_bytes, SHARED_PER_BLOCK);
  if (g.dynamic_shared > most || k.info->shared_bytes + g.dynamic_shared > SHARED_OPT_IN) return INVALID_VALUE;
  if (!cluster || cluster > (k.large_clusters ? 16 : 8)) return INVALID_CONFIGURATION;
  for (int i = 0; i < 3; i++)
    if (g.grid[i] % g.cluster[i]) return INVALID_CONFIGURATION;
  if (g.cooperative && blocks > uint64_t(options.multiprocessors) *
                                     resident_blocks(uint32_t(threads), k.info->shared_bytes + g.dynamic_shared))
    return COOPERATIVE_TOO_LARGE;
  return 0;
}

}  // namespace

std::vector<std::unique_ptr<Module>>& modules() {
  static auto* all = new std::vector<std::unique_ptr<Module>>(read_index());
  return *all;
}

Module* claim_module(const std::vector<std::string>& kernels) {
  Module* found = nullptr;
  for (const auto& m : modules()) {
    const bool all = std::all_of(kernels.begin(), kernels.end(),
                                 [&](const std::string& k) { return m->files.count(k) || m->refused.count(k) || m->missing.count(k); });
    if (!all || m->claimed) continue;
    const bool exact = m->files.size() + m->refused.size() + m->missing.size() == kernels.size();
    if (exact || !found) found = m.get();
    if (exact) break;
  }
  if (found) found->claimed = true;
  return found;
}

Module* module_of_ptx(const std::string& ptx) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const unsigned char c : ptx) hash = (hash ^ c) * 0x100000001b3ull;
  char id[20];
  std::snprintf(id, sizeof id, "%016llx", static_cast<unsigned long long>(hash));
  for (const auto& m : modules())
    if (m->id == id) return m.get();
  return nullptr;
}

int load_kernel(Kernel& k) {
  if (k.info) return 0;
  if (!k.module) return refuse(k.name + ": its PTX was not translated");
  const auto refused = k.module->refused.find(k.name);
  if (refused != k.module->refused.end()) return refuse(k.name + ": " + refused->second);
  if (k.module->missing.count(k.name)) {
    report_missing(k.name);
    k.info = &NOT_COMPILED;
    return 0;
  }
  const auto file = k.module->files.find(k.name);
  if (file == k.module->files.end()) return INVALID_FUNCTION;
  void* library = dlopen((options.kernels + "/" + file->second).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return refuse(k.name + ": " + dlerror());
  const auto* info = static_cast<const KernelInfo*>(dlsym(library, "emulated_kernel"));
  if (!info || info->abi != ABI) return refuse(k.name + ": translated for another version");
  k.info = info;
  make_variables(k);
  return 0;
}

Variable* find_variable(Module& m, const std::string& name) {
  for (const auto& [kernel, file] : m.files) {
    const auto found = m.variables.find(name);
    if (found != m.variables.end()) return &found->second;
    Kernel k;
    k.name = kernel;
    k.module = &m;
    load_kernel(k);
  }
  const auto found = m.variables.find(name);
  if (found != m.variables.end()) return &found->second;
  if (m.missing.empty()) return nullptr;
  for (const auto& [kernel, none] : m.missing) report_missing(kernel);
  return &(m.variables[name] = {reinterpret_cast<uint64_t>(std::calloc(1, NOT_COMPILED_BYTES)), NOT_COMPILED_BYTES});
}

int sticky_error() { return sticky; }
void set_sticky(int error) {
  if (!sticky || !error) sticky = error;
}

uint32_t resident_blocks(uint32_t threads, uint64_t shared) {
  const uint32_t rounded = (threads + 31) / 32 * 32;
  const uint64_t by_shared = SHARED_PER_SM / (shared + SHARED_RESERVED);
  return uint32_t(std::min<uint64_t>({by_shared, 2048 / std::max(32u, rounded), 32}));
}

int launch(Kernel& k, const Geometry& asked, void** arguments, const void* packed) {
  static uint64_t launches = 0;
  if (sticky) return sticky;
  if (const int error = load_kernel(k)) return error;
  if (k.info == &NOT_COMPILED) return 0;
  Geometry g = asked;
  if (k.info->cluster[0]) std::copy_n(k.info->cluster, 3, g.cluster);
  if (const int error = check_geometry(k, g)) return error;
  Launch launch;
  Grid& grid = launch.grid;
  for (int i = 0; i < 3; i++) {
    grid.ntid[i] = g.block[i];
    grid.nctaid[i] = g.grid[i];
    grid.cluster_nctaid[i] = g.cluster[i];
    grid.nclusterid[i] = g.grid[i] / g.cluster[i];
  }
  grid.cluster_nctarank = g.cluster[0] * g.cluster[1] * g.cluster[2];
  if (g.cooperative && grid.cluster_nctarank > 1) return refuse(k.name + ": a cooperative launch of clusters");
  grid.dynamic_shared = uint32_t(g.dynamic_shared);
  grid.variables = k.variables.data();
  grid.kernel = k.info;
  grid.grid_id = launches;
  std::vector<uint64_t> storage(k.info->parameter_bytes / 8 + 10);
  auto* parameters = reinterpret_cast<uint8_t*>((reinterpret_cast<uint64_t>(storage.data()) + 63) / 64 * 64);
  for (uint32_t i = 0; i < k.info->parameter_count; i++) {
    const ParameterInfo& p = k.info->parameters[i];
    const auto* from = packed ? static_cast<const uint8_t*>(packed) + p.offset : static_cast<const uint8_t*>(arguments[i]);
    std::memcpy(parameters + p.offset, from, p.size);
  }
  launch.parameters = parameters;
  launch.cooperative = g.cooperative;
  launch.seed = options.seed + launches;
  launch.eager = launch.seed % 2;
  launch.detect = options.detect;
  launches++;
  // Tensor maps are read where they lie: as a parameter (__grid_constant__) too.
  add_range(reinterpret_cast<uint64_t>(parameters), k.info->parameter_bytes);
  const int error = run_launch(launch);
  remove_range(reinterpret_cast<uint64_t>(parameters), k.info->parameter_bytes);
  if (error) set_sticky(error);
  return error;
}

}  // namespace emulated
