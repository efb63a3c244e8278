// What happened, as one JSON object per line of the report file. A claim of the process that runs the project.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "errors.h"
#include "state.h"

namespace emulated {
namespace {

constexpr size_t MOST_FINDINGS = 64;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    char escaped[8];
    if (c == '"' || c == '\\') {
      out += std::string("\\") + c;
    } else if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned char>(c));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string triple(const uint32_t v[3]) {
  return "[" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " + std::to_string(v[2]) + "]";
}

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text && *text ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string text_from(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? text : "";
}

Options from_environment() {
  Options o;
  o.kernels = text_from("LIFTBENCH_EMULATED_KERNELS");
  o.report = text_from("LIFTBENCH_EMULATED_REPORT");
  o.seed = number_from("LIFTBENCH_EMULATED_SEED", o.seed);
  o.step_budget = number_from("LIFTBENCH_EMULATED_STEPS", o.step_budget);
  o.detect = number_from("LIFTBENCH_EMULATED_DETECT", 1) != 0;
  o.cores = unsigned(number_from("LIFTBENCH_EMULATED_CORES", 1));
  o.multiprocessors = unsigned(number_from("LIFTBENCH_EMULATED_SMS", o.multiprocessors));
  return o;
}

void append(const std::string& line) {
  if (options.report.empty()) {
    std::fputs(line.c_str(), stderr);
    return;
  }
  const int file = open(options.report.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return;
  if (write(file, line.data(), line.size()) < 0) std::fputs(line.c_str(), stderr);
  close(file);
}

}  // namespace

Options options = from_environment();
static std::mutex reports_lock;
static std::set<std::tuple<std::string, const void*, Site>> seen;

void forget_reports() {
  const std::lock_guard<std::mutex> lock(reports_lock);
  seen.clear();
}

std::string place(Thread& t, Site site) {
  const KernelInfo& kernel = *t.grid->kernel;
  if (site >= kernel.site_count) return "?";
  const SiteInfo& s = kernel.sites[site];
  std::string file = s.file ? s.file : "";
  file = file.substr(file.rfind('/') + 1);
  return std::string(s.instruction) + (s.line ? " (" + file + ":" + std::to_string(s.line) + ")" : "");
}

void report(const char* kind, Thread* t, Site site, const std::string& message, const uint64_t* address) {
  const std::lock_guard<std::mutex> lock(reports_lock);
  if (seen.size() >= MOST_FINDINGS) return;
  if (!seen.insert({kind, t ? t->grid->kernel : nullptr, site}).second) return;
  std::string line = "{\"kind\": " + quoted(kind);
  if (t) {
    const KernelInfo& kernel = *t->grid->kernel;
    line += ", \"kernel\": " + quoted(kernel.name) + ", \"block\": " + triple(t->block->ctaid) +
            ", \"thread\": " + triple(t->tid);
    if (site < kernel.site_count) {
      const SiteInfo& s = kernel.sites[site];
      line += ", \"instruction\": " + quoted(s.instruction) + ", \"file\": " + quoted(s.file ? s.file : "") +
              ", \"line\": " + std::to_string(s.line);
    }
    line += ", \"seed\": " + std::to_string(t->state->block->group->launch->seed);
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

void cannot_emulate(Thread& t, const char* what, Site site) {
  report("cannot_emulate", &t, site, what);
  fail(t, NOT_SUPPORTED);
}

void trap(Thread& t, Site site) { fault(t, "trap", site); }

void assert_fail(Thread& t, uint64_t message, uint64_t file, uint32_t line, uint64_t function, Site site) {
  auto text = [](uint64_t address) {
    Range r;
    return find_range(address, 1, r) ? reinterpret_cast<const char*>(address) : "?";
  };
  const std::string what = std::string(text(file)) + ":" + std::to_string(line) + ": " + text(function) + ": assertion `" +
                           text(message) + "` failed";
  report("crashed", &t, site, what);
  fail(t, ASSERTION);
}

// printf: arguments lie in a buffer, each aligned to its size (CUDA C++ Programming Guide, "Formatted Output").
int32_t print(Thread&, uint64_t format, uint64_t arguments) {
  const char* f = reinterpret_cast<const char*>(format);
  uint64_t at = arguments;
  std::string out;
  int32_t count = 0;
  auto next = [&](unsigned bytes) {
    at = (at + bytes - 1) / bytes * bytes;
    uint64_t value = 0;
    std::memcpy(&value, reinterpret_cast<void*>(at), bytes);
    at += bytes;
    return value;
  };
  while (*f) {
    if (*f != '%' || f[1] == '%') {
      out += *f;
      f += *f == '%' ? 2 : 1;
      continue;
    }
    std::string spec(1, *f++);
    bool is_long = false;
    for (; *f && !std::strchr("diouxXcsfFeEgGaAp", *f); f++) {
      if (std::strchr("ljzt", *f)) is_long = true;
      if (!std::strchr("hljzt", *f)) spec += *f;
    }
    if (!*f) break;
    const char kind = *f++;
    char text[512];
    if (std::strchr("fFeEgGaA", kind)) {
      const uint64_t bits = next(8);
      double value;
      std::memcpy(&value, &bits, 8);
      std::snprintf(text, sizeof text, (spec + kind).c_str(), value);
    } else if (kind == 's' || kind == 'p') {
      std::snprintf(text, sizeof text, (spec + kind).c_str(), reinterpret_cast<void*>(next(8)));
    } else if (is_long) {
      std::snprintf(text, sizeof text, (spec + "ll" + kind).c_str(), static_cast<long long>(next(8)));
    } else {
      std::snprintf(text, sizeof text, (spec + kind).c_str(), static_cast<int>(next(4)));
    }
    out += text;
    count++;
  }
  std::fputs(out.c_str(), stdout);
  return count;
}

}  // namespace emulated
