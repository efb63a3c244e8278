// Asynchronous copies: cp.async, bulk copies and tensor copies. They are recorded when issued and happen at the wait that
// covers them (in `eager` schedules: at once), so that a program that does not wait reads what was there before.
#include <algorithm>

#include "errors.h"
#include "state.h"
#include "tensor_map.h"

namespace emulated {
namespace {

uint8_t* host(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

uint32_t new_time(Thread& t) { return t.state->block->now++; }

uint32_t in_window(const Landing& l, uint32_t address) { return l.block * SHARED_WINDOW + address % SHARED_WINDOW; }

// ---- reductions
float bf16_to_float(uint16_t bits) {
  const uint32_t word = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}

uint16_t float_to_bf16(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  if (value != value) return 0x7fff;
  return uint16_t((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

template <class V>
V reduced_number(Reduce reduce, V a, V b) {
  switch (reduce) {
    case Reduce::Add: return V(a + b);
    case Reduce::Min: return std::min(a, b);
    case Reduce::Max: return std::max(a, b);
    default: return b;
  }
}

template <class V>
V reduced_integer(Reduce reduce, V a, V b) {
  switch (reduce) {
    case Reduce::Inc: return a >= b ? V(0) : V(a + 1);
    case Reduce::Dec: return a == 0 || a > b ? b : V(a - 1);
    case Reduce::And: return a & b;
    case Reduce::Or: return a | b;
    case Reduce::Xor: return a ^ b;
    default: return reduced_number(reduce, a, b);
  }
}

template <class V, class F>
void each_element(uint8_t* to, const uint8_t* from, uint64_t bytes, F combine) {
  for (uint64_t i = 0; i < bytes; i += sizeof(V)) {
    V a, b;
    std::memcpy(&a, to + i, sizeof a);
    std::memcpy(&b, from + i, sizeof b);
    a = combine(a, b);
    std::memcpy(to + i, &a, sizeof a);
  }
}

template <class V>
void reduce_integers(Reduce r, uint8_t* to, const uint8_t* from, uint64_t bytes) {
  each_element<V>(to, from, bytes, [r](V a, V b) { return reduced_integer(r, a, b); });
}

template <class V>
void reduce_floats(Reduce r, uint8_t* to, const uint8_t* from, uint64_t bytes) {
  each_element<V>(to, from, bytes, [r](V a, V b) { return reduced_number(r, a, b); });
}

void reduce_bytes(Type type, Reduce r, uint8_t* to, const uint8_t* from, uint64_t bytes) {
  switch (type) {
    case Type::S32: return reduce_integers<int32_t>(r, to, from, bytes);
    case Type::S64: return reduce_integers<int64_t>(r, to, from, bytes);
    case Type::U64: return reduce_integers<uint64_t>(r, to, from, bytes);
    case Type::F32: return reduce_floats<float>(r, to, from, bytes);
    case Type::F64: return reduce_floats<double>(r, to, from, bytes);
    case Type::F16: return reduce_floats<_Float16>(r, to, from, bytes);
    case Type::BF16:
      return each_element<uint16_t>(to, from, bytes, [r](uint16_t a, uint16_t b) {
        return float_to_bf16(reduced_number(r, bf16_to_float(a), bf16_to_float(b)));
      });
    default: return reduce_integers<uint32_t>(r, to, from, bytes);
  }
}

void move_bytes(Type type, Reduce r, uint8_t* to, const uint8_t* from, uint64_t bytes) {
  if (r == Reduce::None)
    std::memmove(to, from, bytes);
  else
    reduce_bytes(type, r, to, from, bytes);
}

// ---- tensor copies
TensorMap tensor_map(Thread& t, const TensorCopy& c, Site site) {
  TensorMap map;
  const void* at = in_local(t, c.map) ? host(c.map) : global_read(t, c.map, 128, site);
  std::memcpy(&map, at, sizeof map);
  if (map.magic != TENSOR_MAP_MAGIC) fault(t, "this is not a tensor map", site);
  if (map.rank != c.rank) fault(t, "the tensor map has another rank than the instruction", site);
  return map;
}

uint32_t box_bytes(const TensorMap& map) {
  uint32_t bytes = map.element_bytes;
  for (int i = 0; i < map.rank; i++) bytes *= map.box[i];
  return bytes;
}

// Calls f(shared address, global address, bytes) for runs of at most 16 bytes; global is null for elements outside.
template <class F>
void each_run(const TensorMap& map, const TensorCopy& c, uint32_t shared, F f) {
  const uint32_t row_bytes = map.box[0] * map.element_bytes, rows = box_bytes(map) / row_bytes;
  const uint32_t per_run = std::max(1u, 16u / map.element_bytes);
  for (uint32_t row = 0; row < rows; row++) {
    uint32_t rest = row;
    uint64_t at = map.address;
    bool inside = true;
    for (int d = 1; d < map.rank; d++) {
      const int64_t p = int64_t(c.coordinates[d]) + rest % map.box[d];
      rest /= map.box[d];
      inside &= p >= 0 && uint64_t(p) < map.dims[d];
      at += uint64_t(p) * map.pitches[d];
    }
    for (uint32_t x = 0; x < map.box[0]; x += per_run) {
      const uint32_t to = swizzled(shared + row * row_bytes + x * map.element_bytes, map.swizzle);
      const uint32_t count = std::min<uint32_t>(per_run, map.box[0] - x);
      const int64_t p = int64_t(c.coordinates[0]) + x;
      const bool all = inside && p >= 0 && uint64_t(p) + count <= map.dims[0];
      for (uint32_t i = 0; i < (all ? 1 : count); i++) {
        const bool one = inside && p + i >= 0 && uint64_t(p + i) < map.dims[0];
        f(to + i * map.element_bytes, one ? at + (p + i) * map.element_bytes : 0, (all ? count : 1) * map.element_bytes);
      }
    }
  }
}

void fill_outside(const TensorMap& map, uint8_t* to, uint32_t bytes) {
  std::memset(to, 0, bytes);
  if (!map.fill_nan) return;
  for (uint32_t i = 0; i < bytes; i += map.element_bytes) {
    if (Type(map.type) == Type::F32 || Type(map.type) == Type::TF32) std::memcpy(to + i, "\xff\xff\xff\x7f", 4);
    if (Type(map.type) == Type::F16 || Type(map.type) == Type::BF16) std::memcpy(to + i, "\xff\x7f", 2);
  }
}

void land_tensor(const Landing& l) {
  Thread& t = *l.thread;
  const TensorMap map = tensor_map(t, l.tensor, l.site);
  const uint32_t shared = in_window(l, l.tensor.shared);
  uint8_t* arena = t.block->arena;
  each_run(map, l.tensor, shared, [&](uint32_t at, uint64_t global, uint32_t bytes) {
    if (l.tensor.store) {
      if (!global) return;
      global_read(t, global, bytes, l.site);
      move_bytes(Type(map.type), l.tensor.reduce, host(global), arena + at, bytes);
    } else if (global) {
      std::memcpy(arena + at, global_read(t, global, bytes, l.site), bytes);
    } else {
      fill_outside(map, arena + at, bytes);
    }
  });
}

void finish_load(const Landing& l, uint64_t mbarrier, uint32_t bytes) {
  BlockState* owner = nullptr;
  Mbarrier& m = mbarrier_shared(*l.thread, in_window(l, uint32_t(mbarrier)), l.site, &owner);
  if (owner == l.thread->state->block && owner->block->shadow) {
    m.clock.resize(owner->warps + 1, 0);
    m.clock[owner->asynchronous] = std::max(m.clock[owner->asynchronous], l.time);
  }
  complete_bytes(m, *owner->group, bytes);
}

void land_bulk(const Landing& l) {
  const BulkCopy& c = l.bulk;
  uint8_t* arena = l.thread->block->arena;
  const bool to_shared = c.destination_space == Space::Shared;
  uint8_t* to = to_shared ? arena + in_window(l, uint32_t(c.destination)) : host(c.destination);
  const uint8_t* from = c.source_space == Space::Shared ? arena + c.source : host(c.source);
  move_bytes(c.type, c.reduce, to, from, c.bytes);
}

uint32_t window_of(uint64_t shared) { return uint32_t(shared) / SHARED_WINDOW; }

// One landing for each destination block. `own` is the window of the operand.
template <class F>
void each_destination(Thread& t, bool multicast, uint16_t blocks, uint32_t own, F f) {
  if (!multicast) return f(own);
  const uint32_t base = t.state->block->index - t.block->cluster_ctarank;
  for (uint32_t b = 0; b < t.grid->cluster_nctarank; b++)
    if (blocks >> b & 1) f(base + b);
}

void issue_load(Thread& t, Landing l, uint64_t mbarrier) {
  Mbarrier& m = mbarrier_shared(t, in_window(l, uint32_t(mbarrier)), l.site);
  if (t.state->block->group->launch->eager)
    land(l);
  else
    post(m, std::move(l));
}

void issue_store(Thread& t, Landing l) {
  if (t.state->block->group->launch->eager) land(l);
  issued(t).open_bulk.push_back(std::move(l));
}

void check_bulk(Thread& t, const BulkCopy& c, Site site) {
  if (c.bytes % 16 || c.destination % 16 || c.source % 16) fault(t, "cp.async.bulk: sizes and addresses are multiples of 16", site);
  for (uint64_t done = 0; c.source_space != Space::Shared && done < c.bytes; done = c.bytes)
    global_read(t, c.source, uint32_t(c.bytes), site);
  if (c.destination_space != Space::Shared && c.bytes) global_read(t, c.destination, uint32_t(c.bytes), site);
}

Landing landing(Thread& t, Landing::Kind kind, Site site) {
  Landing l{};
  l.kind = kind;
  l.thread = &t;
  l.site = site;
  l.time = new_time(t);
  return l;
}

}  // namespace

void know_asynchronous(Thread& t, uint32_t time) {
  BlockState& b = *t.state->block;
  uint32_t& known = b.known[t.warp][b.asynchronous];
  known = std::max(known, time);
}

void land(const Landing& l) {
  Thread& t = *l.thread;
  Group& g = *t.state->block->group;
  switch (l.kind) {
    case Landing::Async:
      std::memset(host(l.to), 0, l.bytes);
      std::memcpy(host(l.to), host(l.from), l.source_bytes);
      return;
    case Landing::AsyncArrive: {
      land_asyncs(t, l.sequence);
      Mbarrier& m = mbarrier_shared(t, uint32_t(l.to), l.site);
      m.clock.resize(t.state->block->warps + 1, 0);
      m.clock[t.state->block->asynchronous] = std::max(m.clock[t.state->block->asynchronous], l.time);
      return arrive(t, m, g, 1, l.site);
    }
    case Landing::Bulk:
      land_bulk(l);
      if (l.bulk.completes_mbarrier) finish_load(l, l.bulk.mbarrier, uint32_t(l.bulk.bytes));
      return;
    case Landing::Tensor:
      land_tensor(l);
      if (!l.tensor.store) finish_load(l, l.tensor.mbarrier, box_bytes(tensor_map(t, l.tensor, l.site)));
  }
}

// ---- cp.async
void cp_async(Thread& t, uint64_t shared, uint64_t global, unsigned bytes, unsigned source_bytes, Site site) {
  Landing l = landing(t, Landing::Async, site);
  if (shared % bytes) fault(t, "cp.async: misaligned destination", site);
  if (source_bytes > bytes) fault(t, "cp.async: source size above the copy's size", site);
  if (source_bytes && global % bytes) fault(t, "cp.async: misaligned source", site);
  if (source_bytes) global_read(t, global, source_bytes, site);
  asynchronous_write(t, uint32_t(shared), bytes, l.time, site);
  l.to = generic_from_shared(t, uint32_t(shared));
  l.from = global;
  l.bytes = bytes;
  l.source_bytes = source_bytes;
  Issued& i = issued(t);
  l.sequence = ++i.async_count;
  if (t.state->block->group->launch->eager) land(l);
  i.asyncs.push_back(l);
}

void cp_async_commit(Thread& t) { issued(t).async_commits.push_back(issued(t).async_count); }

void land_asyncs(Thread& t, uint32_t through) {
  std::vector<Landing>& all = issued(t).asyncs;
  size_t n = 0;
  for (; n < all.size() && all[n].sequence <= through; n++) {
    if (!t.state->block->group->launch->eager) land(all[n]);
    know_asynchronous(t, all[n].time);
  }
  all.erase(all.begin(), all.begin() + n);
}

void cp_async_wait(Thread& t, uint32_t groups_left, Site) {
  std::vector<uint32_t>& commits = issued(t).async_commits;
  if (commits.size() <= groups_left) return;
  const auto last = commits.end() - groups_left;
  land_asyncs(t, last[-1]);
  commits.erase(commits.begin(), last);
}

void cp_async_wait_all(Thread& t, Site) {
  issued(t).async_commits.clear();
  land_asyncs(t, issued(t).async_count);
}

void cp_async_mbarrier_arrive(Thread& t, uint64_t address, Space space, bool noinc, Site site) {
  const uint32_t shared = space == Space::Generic ? shared_from_generic(t, address) : uint32_t(address);
  BlockState* owner = nullptr;
  Mbarrier& m = mbarrier_shared(t, shared, site, &owner);
  if (!noinc) m.pending++;
  Landing l = landing(t, Landing::AsyncArrive, site);
  l.to = shared;
  l.sequence = issued(t).async_count;
  if (owner == t.state->block) release(*owner, t.warp, m.clock);
  post(m, l);
}

// ---- bulk copies
void bulk_copy(Thread& t, const BulkCopy& c, Site site) {
  check_bulk(t, c, site);
  const uint32_t bytes = uint32_t(c.bytes);
  if (!bytes && !c.completes_mbarrier) return;
  Landing l = landing(t, Landing::Bulk, site);
  l.bulk = c;
  if (c.source_space == Space::Shared && bytes) asynchronous_read(t, uint32_t(c.source), bytes, l.time, site);
  if (c.destination_space != Space::Shared) return issue_store(t, l);
  each_destination(t, c.multicast, c.blocks, window_of(c.destination), [&](uint32_t block) {
    l.block = block;
    if (bytes) asynchronous_write(t, in_window(l, uint32_t(c.destination)), bytes, l.time, site);
    issue_load(t, l, c.mbarrier);
  });
}

void tensor_copy(Thread& t, const TensorCopy& c, Site site) {
  if (c.mode == TensorMode::Im2col) cannot_emulate(t, "tensor copies in im2col mode", site);
  const TensorMap map = tensor_map(t, c, site);
  const uint32_t bytes = box_bytes(map);
  if (c.shared % 128) fault(t, "a tensor copy's shared address is a multiple of 128", site);
  Landing l = landing(t, Landing::Tensor, site);
  l.tensor = c;
  l.block = window_of(c.shared);
  if (c.store) {
    asynchronous_read(t, c.shared, bytes, l.time, site);
    return issue_store(t, l);
  }
  each_destination(t, c.multicast, c.blocks, l.block, [&](uint32_t block) {
    l.block = block;
    asynchronous_write(t, in_window(l, c.shared), bytes, l.time, site);
    issue_load(t, l, c.mbarrier);
  });
}

void bulk_commit(Thread& t) {
  Issued& i = issued(t);
  i.bulk.push_back(std::move(i.open_bulk));
  i.open_bulk.clear();
}

void bulk_wait(Thread& t, uint32_t groups_left, bool, Site) {
  std::vector<BulkGroup>& groups = issued(t).bulk;
  while (groups.size() > groups_left) {
    for (const Landing& l : groups.front()) {
      if (!t.state->block->group->launch->eager) land(l);
      know_asynchronous(t, l.time);
    }
    groups.erase(groups.begin());
  }
}

void finish_thread(Thread& t) {
  if (!t.state->issued) return;
  Issued& i = issued(t);
  bulk_commit(t);
  for (const BulkGroup& group : i.bulk)
    if (!group.empty()) {
      report("race", &t, group[0].site, "the thread exits and does not wait for this copy from shared memory");
      break;
    }
  bulk_wait(t, 0, false, 0);
}

}  // namespace emulated
