#include "modules.h"

#include <dlfcn.h>

#include <fstream>
#include <memory>
#include <sstream>

namespace emulated {
namespace {

int sticky = 0;
constexpr u64 NOT_COMPILED_BYTES = 1 << 20;  // of a variable whose kernels are missing
const KernelInfo NOT_COMPILED{.abi = ABI, .name = "", .max_threads = 1024};

std::vector<std::unique_ptr<Module>> read_index() {
    std::vector<std::unique_ptr<Module>> all;
    std::ifstream file(options.kernels + "/index.txt");
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name, record, rest;
        words >> name >> record;
        std::getline(words >> std::ws, rest);
        if (line[0] != ' ') all.push_back(std::make_unique<Module>(Module{name}));
        else if (!all.empty()) all.back()->kernels[name] = {record, rest};
    }
    return all;
}

auto& modules() {
    static auto& all = *new auto(read_index());  // never destroyed: libraries unregister at exit
    return all;
}

void make_variables(Kernel& kernel) {
    const KernelInfo& info = *kernel.info;
    std::vector<bool> is_new(info.variable_count);
    for (u32 i = 0; i < info.variable_count; i++) {
        const VariableInfo& v = info.variables[i];
        Variable& made = kernel.module->variables[v.name];
        is_new[i] = !made.address;
        if (is_new[i]) {
            const u64 align = std::max<u64>(v.align, 256);
            made = {address_of(std::aligned_alloc(align, (v.size + align) / align * align)), v.size};
            std::memset(host(made.address), 0, v.size);
            if (v.initial) std::memcpy(host(made.address), v.initial, v.initial_size);
            add_range(made.address, v.size);
        }
        kernel.variables.push_back(made.address);
    }
    for (u32 i = 0; i < info.relocation_count; i++) {
        const RelocationInfo& r = info.relocations[i];
        const u64 target = kernel.variables[r.target] + r.addend;
        if (is_new[r.variable]) std::memcpy(host(kernel.variables[r.variable] + r.offset), &target, 8);
    }
}

int refuse(const std::string& what) {
    report("cannot_emulate", nullptr, 0, what);
    set_sticky(NOT_SUPPORTED);
    return NOT_SUPPORTED;
}

int check_geometry(const Kernel& k, const Geometry& g) {
    const u64 threads = product(g.block), blocks = product(g.grid), cluster = product(g.cluster);
    const u64 shared = k.info->shared_bytes + g.dynamic_shared;
    if (!threads || threads > 1024 || g.block[2] > 64) return INVALID_CONFIGURATION;
    if (!blocks || g.grid[0] > 0x7fffffff || g.grid[1] > 65535 || g.grid[2] > 65535)
        return INVALID_CONFIGURATION;
    if (threads > k.info->max_threads) return INVALID_VALUE;
    if (g.dynamic_shared > k.most_dynamic_shared || shared > SHARED_OPT_IN) return INVALID_VALUE;
    if (!cluster || cluster > (k.large_clusters ? 16 : 8)) return INVALID_CONFIGURATION;
    for (int i = 0; i < 3; i++)
        if (g.grid[i] % g.cluster[i]) return INVALID_CONFIGURATION;
    if (g.cooperative && blocks > u64(options.multiprocessors) * resident_blocks(u32(threads), shared))
        return COOPERATIVE_TOO_LARGE;
    return 0;
}

}  // namespace

Module* claim_module(const std::vector<std::string>& kernels) {
    Module* found = nullptr;
    for (const auto& m : modules()) {
        auto has = [&](const std::string& kernel) { return m->kernels.count(kernel) > 0; };
        if (m->claimed || !std::all_of(kernels.begin(), kernels.end(), has)) continue;
        const bool exact = m->kernels.size() == kernels.size();
        if (exact || !found) found = m.get();
        if (exact) break;
    }
    if (found) found->claimed = true;
    return found;
}

Module* module_of_ptx(const std::string& ptx) {
    u32 crc = ~0u;
    for (const unsigned char c : ptx) {
        crc ^= c;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    char id[20];
    std::snprintf(id, sizeof id, "%08x", ~crc);
    for (const auto& m : modules())
        if (m->id == id) return m.get();
    return nullptr;
}

int load_kernel(Kernel& k) {
    if (k.info) return 0;
    if (!k.module) return refuse(k.name + ": its PTX was not translated");
    const auto found = k.module->kernels.find(k.name);
    if (found == k.module->kernels.end()) return INVALID_FUNCTION;
    const auto& [kind, text] = found->second;
    if (kind == "refused") return refuse(k.name + ": " + text);
    if (kind == "missing") {
        report_missing(k.name);
        k.info = &NOT_COMPILED;
        return 0;
    }
    void* library = dlopen((options.kernels + "/" + text).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return refuse(k.name + ": " + dlerror());
    const auto* info = static_cast<const KernelInfo*>(dlsym(library, "emulated_kernel"));
    if (!info || info->abi != ABI) return refuse(k.name + ": translated for another version");
    k.info = info;
    k.most_dynamic_shared = SHARED_PER_BLOCK - std::min(info->shared_bytes, SHARED_PER_BLOCK);
    make_variables(k);
    return 0;
}

Variable* find_variable(Module& m, const std::string& name) {
    bool missing = false;
    for (const auto& [kernel, record] : m.kernels) {
        if (m.variables.count(name)) return &m.variables[name];
        Kernel k{kernel, &m};
        missing |= record.kind == "missing";
        if (record.kind != "refused") load_kernel(k);
    }
    if (!m.variables.count(name) && missing)
        m.variables[name] = {address_of(std::calloc(1, NOT_COMPILED_BYTES)), NOT_COMPILED_BYTES};
    return m.variables.count(name) ? &m.variables[name] : nullptr;
}

int sticky_error() { return sticky; }
void set_sticky(int error) {
    if (!sticky || !error) sticky = error;
}

u32 resident_blocks(u32 threads, u64 shared) {
    const u64 by_shared = SHARED_PER_SM / (shared + SHARED_RESERVED);
    return u32(std::min<u64>({by_shared, 2048 / std::max(32u, round_up(threads, 32)), 32}));
}

int launch(Kernel& k, const Geometry& asked, void** arguments) {
    static u64 launches = 0;
    if (sticky) return sticky;
    if (const int error = load_kernel(k)) return error;
    if (k.info == &NOT_COMPILED) return 0;
    Geometry g = asked;
    if (k.info->cluster[0]) std::copy_n(k.info->cluster, 3, g.cluster);
    if (const int error = check_geometry(k, g)) return error;
    if (g.cooperative && product(g.cluster) > 1) return refuse(k.name + ": a cooperative launch of clusters");
    Launch launch;
    Grid& grid = launch.grid;
    for (int i = 0; i < 3; i++) {
        grid.ntid[i] = g.block[i];
        grid.nctaid[i] = g.grid[i];
        grid.cluster_nctaid[i] = g.cluster[i];
        grid.nclusterid[i] = g.grid[i] / g.cluster[i];
    }
    grid.cluster_nctarank = u32(product(g.cluster));
    grid.dynamic_shared = u32(g.dynamic_shared);
    grid.variables = k.variables.data();
    grid.kernel = k.info;
    grid.grid_id = launches;
    std::vector<u64> storage(k.info->parameter_bytes / 8 + 10);
    u8* parameters = host((address_of(storage.data()) + 63) / 64 * 64);
    for (u32 i = 0; i < k.info->parameter_count; i++) {
        const auto [offset, size] = k.info->parameters[i];
        std::memcpy(parameters + offset, arguments[i], size);
    }
    launch.parameters = parameters;
    launch.cooperative = g.cooperative;
    launch.seed = options.seed + launches++;
    launch.eager = launch.seed % 2;
    launch.detect = options.detect;
    // Tensor maps are read where they lie: as a parameter (__grid_constant__) too.
    add_range(address_of(parameters), k.info->parameter_bytes);
    const int error = run_launch(launch);
    remove_range(address_of(parameters), k.info->parameter_bytes);
    if (error) set_sticky(error);
    return error;
}

}  // namespace emulated
