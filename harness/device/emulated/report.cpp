// What happened, as one JSON object per line of the report file: a claim of the project's process.
#include <fcntl.h>
#include <unistd.h>

#include <mutex>
#include <set>

#include "state.h"

namespace emulated {
namespace {

constexpr size_t MOST_FINDINGS = 64;

std::mutex reports_lock;
std::set<std::tuple<std::string, const void*, Site>> seen;

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        char escaped[8];
        const bool plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
        std::snprintf(escaped, sizeof escaped, plain ? "%c" : "\\u%04x", static_cast<unsigned char>(c));
        out += escaped;
    }
    return out + "\"";
}

std::string triple(const u32 v[3]) {
    return "[" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " + std::to_string(v[2]) + "]";
}

std::string text_from(const char* variable) {
    const char* text = std::getenv((std::string("LIFTBENCH_EMULATED_") + variable).c_str());
    return text ? text : "";
}

u64 number_from(const char* variable, u64 otherwise) {
    const std::string text = text_from(variable);
    return text.empty() ? otherwise : std::strtoull(text.c_str(), nullptr, 10);
}

void append(const std::string& line) {
    int file = STDERR_FILENO;
    if (!options.report.empty())
        file = open(options.report.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (write(file, line.data(), line.size()) < 0) std::fputs(line.c_str(), stderr);
    if (file > STDERR_FILENO) close(file);
}

}  // namespace

Options options = {
    .seed = number_from("SEED", 0),
    .step_budget = number_from("STEPS", Options().step_budget),
    .detect = number_from("DETECT", 1) != 0,
    .cores = unsigned(number_from("CORES", 1)),
    .multiprocessors = unsigned(number_from("SMS", 132)),
    .kernels = text_from("KERNELS"),
    .report = text_from("REPORT"),
};

void forget_reports() {
    const std::lock_guard lock(reports_lock);
    seen.clear();
}

std::string place(Thread& t, Site site) {
    const KernelInfo& kernel = *t.grid->kernel;
    if (site >= kernel.site_count) return "?";
    const SiteInfo& s = kernel.sites[site];
    const std::string file = s.file, name = file.substr(file.rfind('/') + 1);
    return s.instruction + (s.line ? " (" + name + ":" + std::to_string(s.line) + ")" : "");
}

void report(const char* kind, Thread* t, Site site, const std::string& message, const u64* address) {
    const std::lock_guard lock(reports_lock);
    const KernelInfo* kernel = t ? t->grid->kernel : nullptr;
    if (seen.size() >= MOST_FINDINGS || !seen.insert({kind, kernel, site}).second) return;
    std::string line = "{\"kind\": " + quoted(kind);
    if (t) {
        line += ", \"kernel\": " + quoted(kernel->name) + ", \"block\": " + triple(t->block->ctaid);
        line += ", \"thread\": " + triple(t->tid) + ", \"seed\": " + std::to_string(launch_of(*t).seed);
    }
    if (t && site < kernel->site_count) {
        const SiteInfo& s = kernel->sites[site];
        line += ", \"instruction\": " + quoted(s.instruction) + ", \"file\": " + quoted(s.file);
        line += ", \"line\": " + std::to_string(s.line);
    }
    if (address) line += ", \"address\": " + std::to_string(*address);
    append(line + ", \"message\": " + quoted(message) + "}\n");
}

void report_missing(const std::string& kernel) {
    append("{\"kind\": \"missing\", \"kernel\": " + quoted(kernel) + "}\n");
}

void fault(Thread& t, const char* reason, Site site) {
    report("crashed", &t, site, reason);
    fail(t, LAUNCH_FAILURE);
}

void assert_fail(Thread& t, u64 message, u64 file, u32 line, u64 function, Site site) {
    auto text = [](u64 address) {
        Range r;
        return std::string(find_range(address, 1, r) ? reinterpret_cast<const char*>(address) : "?");
    };
    const std::string where = text(file) + ":" + std::to_string(line) + ": " + text(function);
    report("crashed", &t, site, where + ": assertion `" + text(message) + "` failed");
    fail(t, ASSERTION);
}

// printf: arguments lie in a buffer, each aligned to its size (CUDA C++ Programming Guide).
s32 print(Thread&, u64 format, u64 arguments) {
    const std::string f = reinterpret_cast<const char*>(format);
    s32 count = 0;
    auto next = [&](auto value) {
        arguments = (arguments + sizeof value - 1) / sizeof value * sizeof value;
        std::memcpy(&value, host(arguments), sizeof value);
        arguments += sizeof value;
        return value;
    };
    for (size_t at = 0; at < f.size();) {
        const size_t end = f.find_first_of("diouxXcsfFeEgGaAp%", at + 1);
        if (f[at] != '%' || end == f.npos || f[end] == '%') {
            std::putchar(f[at]);
            at += f[at] == '%' && end == at + 1 ? 2 : 1;
            continue;
        }
        std::string spec = f.substr(at, end + 1 - at);
        const char kind = f[end];
        at = end + 1;
        const bool wide = spec.find_first_of("ljzt") != spec.npos;
        if (std::strchr("fFeEgGaA", kind)) std::printf(spec.c_str(), next(0.0));
        else if (kind == 's' || kind == 'p' || wide) std::printf(spec.c_str(), next(0ull));
        else std::printf(spec.c_str(), next(0));
        count++;
    }
    return count;
}

}  // namespace emulated
