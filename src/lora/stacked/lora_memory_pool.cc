#include "lora/stacked/lora_memory_pool.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "platform/host_view.h"

namespace choral::lora {
namespace {

constexpr int64_t kFirstSlots = 4;
constexpr int64_t kRankStep = 8;

// Norms are replaced, not adapted; an absorbed projection meets its pairs the other way round.
bool is_the_hosts(const LoRATarget& target) { return target.kind == TargetKind::kNorm || target.absorbed; }

// The projections of a target; an embedding's and a head's single one. An embedding's A is looked up by the device, and its
// stack, one column of zeros, only makes middles that are zero beyond their adapter's rank.
LoRAMemoryPool::Stacks empty_stacks(const LoRATarget& target) {
  LoRAMemoryPool::Stacks stacks;
  if (is_the_hosts(target)) return stacks;
  if (target.kind == TargetKind::kEmbedding) {
    stacks.in = 1;
    stacks.out = target.in;
    stacks.pairs.push_back({.columns = {0, target.in}});
    return stacks;
  }
  stacks.in = target.in;
  int64_t begin = 0;
  for (const auto& member : target.members) {
    target.for_each_held(begin, member.out, [&](const HeldColumns& own) {
      stacks.pairs.push_back({.columns = {own.of, own.count}, .at = own.at});
      stacks.out += own.count;
    });
    begin += member.out;
  }
  return stacks;
}

// The form a device may keep the host's matrix in without losing anything.
DType format_of(const kernels::PackedMatrix& matrix) {
  const std::string format = matrix.format();
  return format == "bf16" ? DType::kBF16 : format == "f16" ? DType::kF16 : DType::kF32;
}

}  // namespace

LoRAMemoryPool::LoRAMemoryPool(const platform::Context& ctx, std::span<const LoRATarget> targets, const LoRAMemoryPoolSize& size)
    : ctx_(ctx), targets_(targets), size_(size) {
  for (const auto& target : targets) stacks_.push_back(empty_stacks(target));
}

platform::ops::Stack LoRAMemoryPool::stack_of(const Tensor& stack) {
  const TensorView view = stack.view();
  return {{view.data, view.dtype, view.shape[0], view.shape[1], view.shape[2], row_bytes(view.dtype, view.shape[2])}, {}};
}

platform::ops::Stack LoRAMemoryPool::ranked(const Pair& pair, const Tensor& stack) {
  platform::ops::Stack made = stack_of(stack);
  made.ranks = {pair.ranks, pair.ranks_on_device.as<int32_t>().data()};
  return made;
}

int64_t LoRAMemoryPool::slot_bytes(int32_t slot) const {
  int64_t bytes = slots_[slot].bytes;
  for (const auto& stacks : stacks_) {
    const auto share = [](const Tensor& tensor) { return tensor.empty() ? 0 : tensor.size_bytes() / tensor.shape()[0]; };
    for (const auto& pair : stacks.pairs) bytes += share(pair.a) + share(pair.b) + share(pair.ranks_on_device);
    bytes += share(stacks.factors) + share(stacks.offsets);
  }
  return bytes;
}

int64_t LoRAMemoryPool::find_free() const {
  const auto free = std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.voice.empty(); });
  return free - slots_.begin();
}

int64_t LoRAMemoryPool::larger_count() const { return std::min(size_.max_slots, std::max(kFirstSlots, 2 * slot_count())); }

Status LoRAMemoryPool::reserve_slot() {
  if (find_free() < slot_count()) return {};
  const int64_t more = larger_count();
  if (more <= slot_count()) return resource_exhausted("all {} slots of the device are taken", slot_count());
  // Where one cannot, those that have grown serve fewer as well.
  for (size_t target = 0; target < targets_.size(); ++target) {
    CHORAL_RETURN_IF_ERROR(grow(static_cast<int>(target), more, nullptr));
  }
  slots_.resize(more);
  return {};
}

bool LoRAMemoryPool::must_grow(const PackedVoice& voice) const {
  if (find_free() == slot_count()) return larger_count() > slot_count();
  for (size_t i = 0; i < targets_.size(); ++i) {
    const auto target = static_cast<int>(i);
    const Stacks& stacks = stacks_[i];
    for (const auto& pair : stacks.pairs) {
      const int64_t rank = rank_with(target, pair, &voice);
      if (rank > pair.rank || (rank > 0 && pair.a.shape()[0] < slot_count())) return true;
    }
    const SlotVectors wanted = vectors_with(target, &voice);
    const auto lacks = [&](const Tensor& vector, bool needed) {
      return vector.empty() ? needed : vector.shape()[0] < slot_count();
    };
    if (lacks(stacks.factors, !wanted.factors.empty()) || lacks(stacks.offsets, !wanted.offsets.empty())) return true;
  }
  return false;
}

Result<LoRAMemoryPool::Placed> LoRAMemoryPool::put(const PackedVoice& voice) {
  CHORAL_RETURN_IF_ERROR(reserve_slot());
  const int64_t slot = find_free();
  CHORAL_TRY(Slot made, make_slot(voice));
  Status grown;
  for (size_t target = 0; target < targets_.size() && grown.ok(); ++target) {
    grown = grow(static_cast<int>(target), slot_count(), &voice);
  }
  if (!grown.ok()) {
    size_bytes_ -= made.bytes;
    return grown;
  }
  Placed placed{static_cast<int32_t>(slot), SlotWrite(targets_, voice, size_.dtype)};
  for (size_t target = 0; target < targets_.size(); ++target) {
    plan_write(static_cast<int>(target), slot, voice, placed.write);
  }
  slots_[slot] = std::move(made);
  return placed;
}

void LoRAMemoryPool::finish(int32_t slot, const SlotWrite& write, Status failure) {
  if (failure.ok()) {
    for (const auto& piece : write.pairs()) stacks_[piece.target].pairs[piece.pair].ranks[slot] = piece.own_rank;
  }
  slots_[slot].coming = false;
  slots_[slot].failure = std::move(failure);
}

int32_t LoRAMemoryPool::find(const PackedVoice& voice) const {
  const auto same = [](const Term& a, const PackedVoiceTerm& b) { return a.adapter.lock() == b.adapter && a.factor == b.factor; };
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return std::equal(slot.voice.begin(), slot.voice.end(), voice.begin(), voice.end(), same);
  });
  return found == slots_.end() ? kNoSlot : static_cast<int32_t>(found - slots_.begin());
}

// Neighbours together.
std::vector<LoRAMemoryPool::Run> LoRAMemoryPool::taken() const {
  std::vector<Run> runs;
  for (int64_t slot = 0; slot < slot_count(); ++slot) {
    if (slots_[slot].voice.empty()) continue;
    if (runs.empty() || runs.back().begin + runs.back().count < slot) runs.push_back({slot, 0});
    ++runs.back().count;
  }
  return runs;
}

bool LoRAMemoryPool::dropped(int32_t slot) const {
  const auto& voice = slots_[slot].voice;
  return std::any_of(voice.begin(), voice.end(), [](const Term& term) { return term.adapter.expired(); });
}

void LoRAMemoryPool::clear(int32_t slot) {
  size_bytes_ -= slots_[slot].bytes;
  slots_[slot] = {};  // its rows of the stacks are written by who comes next, and read by nobody before
}

void LoRAMemoryPool::clear_all() {
  slots_.clear();
  for (size_t target = 0; target < targets_.size(); ++target) stacks_[target] = empty_stacks(targets_[target]);
  size_bytes_ = 0;
}

Result<LoRAMemoryPool::Slot> LoRAMemoryPool::make_slot(const PackedVoice& voice) {
  Slot slot{.coming = true};
  for (const auto& [adapter, factor] : voice) slot.voice.push_back({adapter, factor});
  slot.modules.resize(targets_.size());
  for (size_t target = 0; target < targets_.size(); ++target) {
    auto module = make_module(voice, static_cast<int>(target), slot.bytes);
    if (!module.ok()) {
      size_bytes_ -= slot.bytes;
      return std::move(module).status().while_(targets_[target].name);
    }
    slot.modules[target] = std::move(*module);
  }
  return slot;
}

Result<std::unique_ptr<LoRAMemoryPool::Module>> LoRAMemoryPool::make_module(const PackedVoice& voice, int target,
                                                                            int64_t& bytes) {
  const bool touched = std::any_of(voice.begin(), voice.end(),
                                   [&](const PackedVoiceTerm& term) { return term.adapter->module(target) != nullptr; });
  const bool embedding = targets_[target].kind == TargetKind::kEmbedding;
  if (!touched || is_the_hosts(targets_[target])) return std::unique_ptr<Module>();
  auto out = std::make_unique<Module>();
  for (const auto& term : voice) {
    const PackedModule* module = term.adapter->module(target);
    if (embedding) out->lookups.emplace_back();
    if (module == nullptr) continue;
    if (module->delta && !embedding) out->on_product = out->on_product || !module->delta->is_plain();
    for (const auto& part : module->replaced) {
      CHORAL_RETURN_IF_ERROR(place_outputs(targets_[target], *part.matrix, 0, part.out_begin, part.matrix->n(), *out, bytes));
    }
    if (module->table != nullptr) {
      CHORAL_TRY(out->table, place(*module->table, 0, module->table->n(), bytes));
    }
    if (module->delta && embedding) {
      const TensorView middles = module->token_middles.view();
      CHORAL_TRY(const Tensor rows, to_float_tensor(middles));
      const auto values = rows.as<float>();
      CHORAL_TRY(out->lookups.back(), place_rows({values.begin(), values.end()}, middles.cols(), middles.dtype, bytes));
    }
    if (module->token_rows == nullptr) continue;
    if (embedding) {
      out->token_ids = module->token_ids;
      CHORAL_TRY(out->token_rows, place(*module->token_rows, 0, module->token_rows->n(), bytes));
      continue;
    }
    // Of a head: a column for each token; neighbours are one matrix.
    const auto& ids = module->token_ids;
    for (size_t begin = 0; begin < ids.size();) {
      size_t end = begin + 1;
      while (end < ids.size() && ids[end] == ids[end - 1] + 1) ++end;
      CHORAL_RETURN_IF_ERROR(place_outputs(targets_[target], *module->token_rows, static_cast<int64_t>(begin), ids[begin],
                                           static_cast<int64_t>(end - begin), *out, bytes));
      begin = end;
    }
  }
  out->on_product = out->on_product || !out->replaced.empty();
  return out;
}

Status LoRAMemoryPool::place_outputs(const LoRATarget& target, const kernels::PackedMatrix& host, int64_t row, int64_t first,
                                     int64_t count, Module& module, int64_t& bytes) {
  Status status;
  target.for_each_held(first, count, [&](const HeldColumns& own) {
    if (!status.ok()) return;
    auto matrix = place(host, row + own.of - first, own.count, bytes);
    status = matrix.status();
    if (matrix.ok()) module.replaced.push_back({own.at, std::move(*matrix)});
  });
  return status;
}

Result<std::unique_ptr<kernels::PackedMatrix>> LoRAMemoryPool::place(const kernels::PackedMatrix& host, int64_t begin,
                                                                     int64_t count, int64_t& bytes) {
  std::vector<float> rows(count * host.k());
  for (int64_t i = 0; i < count; ++i) {
    CHORAL_RETURN_IF_ERROR(host.read_row(begin + i, {rows.data() + i * host.k(), static_cast<size_t>(host.k())}));
  }
  return place_rows(rows, host.k(), format_of(host), bytes);
}

Result<std::unique_ptr<kernels::PackedMatrix>> LoRAMemoryPool::place_rows(const std::vector<float>& rows, int64_t cols,
                                                                          DType format, int64_t& bytes) {
  const kernels::WeightRows source{
      {std::as_bytes(std::span(rows)).data(), DType::kF32, {static_cast<int64_t>(rows.size()) / cols, cols}, kCpuDevice}, {}};
  CHORAL_TRY(auto matrix, ctx_.session.prepack(ctx_, {.rows = {&source, 1}, .format = format}));
  if (!platform::host_reads(ctx_.session) && !matrix->on_device()) {
    return unsupported("the device does not take {} weights", dtype_name(format));
  }
  if (size_.budget_bytes > 0 && size_bytes_ + matrix->size_bytes() > size_.budget_bytes) {
    return resource_exhausted(
        "{} bytes of the {} that adapters may have on the device are taken, and a matrix of {} comes; raise "
        "--adapter-memory",
        size_bytes_, size_.budget_bytes, matrix->size_bytes());
  }
  bytes += matrix->size_bytes();
  size_bytes_ += matrix->size_bytes();
  return matrix;
}

Result<Tensor> LoRAMemoryPool::allocate(DType dtype, Shape shape) {
  int64_t bytes = row_bytes(dtype, 1);
  for (const int64_t extent : shape.dims()) {
    const auto product = checked_mul(static_cast<uint64_t>(bytes), static_cast<uint64_t>(extent));
    if (!product || *product > static_cast<uint64_t>(INT64_MAX)) return too_large("a stack of adapters of {}", shape.to_string());
    bytes = static_cast<int64_t>(*product);
  }
  if (size_.budget_bytes > 0 && size_bytes_ + bytes > size_.budget_bytes) {
    return resource_exhausted(
        "{} bytes of the {} that adapters may have on the device are taken, and a stack of {} comes; raise "
        "--adapter-memory or lower --max-loras",
        size_bytes_, size_.budget_bytes, bytes);
  }
  CHORAL_TRY(auto tensor, ctx_.session.allocate(dtype, shape));
  size_bytes_ += bytes;
  return tensor;
}

int64_t LoRAMemoryPool::rank_with(int target, const Pair& pair, const PackedVoice* voice) const {
  const int64_t needed = voice == nullptr ? 0 : OptimizedLoRAWeights::voice_rank(*voice, target, pair.columns);
  return std::max(pair.rank, round_up(needed, kRankStep));
}

SlotVectors LoRAMemoryPool::vectors_with(int target, const PackedVoice* voice) const {
  if (voice == nullptr || stacks_[target].pairs.empty() || targets_[target].kind == TargetKind::kEmbedding) return {};
  return SlotVectors::of(targets_[target], *voice, target, stacks_[target].out);
}

Status LoRAMemoryPool::grow(int target, int64_t slots, const PackedVoice* voice) {
  Stacks& stacks = stacks_[target];
  for (auto& pair : stacks.pairs) {
    const int64_t rank = rank_with(target, pair, voice);
    if (rank == 0 || (rank == pair.rank && pair.a.shape()[0] >= slots)) continue;
    CHORAL_RETURN_IF_ERROR(grow_pair(pair, stacks.in, slots, rank));
  }
  const SlotVectors wanted = vectors_with(target, voice);
  const auto lacks = [&](const Tensor& vector, bool needed) { return vector.empty() ? needed : vector.shape()[0] < slots; };
  if (lacks(stacks.factors, !wanted.factors.empty())) {
    CHORAL_RETURN_IF_ERROR(grow_vector(stacks.factors, {slots, 1, stacks.out}, 1.0F));
  }
  if (!lacks(stacks.offsets, !wanted.offsets.empty())) return {};
  return grow_vector(stacks.offsets, {slots, stacks.out, 1}, 0.0F);
}

Status LoRAMemoryPool::grow_pair(Pair& pair, int64_t in, int64_t slots, int64_t rank) {
  CHORAL_TRY(auto a, allocate(size_.dtype, {slots, rank, in}));
  auto b = allocate(size_.dtype, {slots, pair.columns.count, rank});
  auto ranks = b.ok() ? allocate(DType::kI32, {slots}) : Result<Tensor>(b.status());
  if (!ranks.ok()) {
    size_bytes_ -= a.size_bytes() + (b.ok() ? b->size_bytes() : 0);
    return std::move(ranks).status();
  }
  std::vector<int32_t> on_host(slots, 0);
  for (const auto& [begin, count] : taken()) {
    if (!pair.ranks.empty()) std::copy_n(pair.ranks.begin() + begin, count, on_host.begin() + begin);
  }
  move_slots(pair.a, a, 1);
  move_slots(pair.b, *b, pair.columns.count);
  move_slots(pair.ranks_on_device, *ranks, 1);
  replace(pair.a, std::move(a));
  replace(pair.b, std::move(*b));
  replace(pair.ranks_on_device, std::move(*ranks));
  pair.rank = rank;
  pair.ranks = std::move(on_host);
  return {};
}

// Slots that are taken and have never had such a vector get `neutral`; memory begins as zeros.
Status LoRAMemoryPool::grow_vector(Tensor& vector, Shape shape, float neutral) {
  CHORAL_TRY(auto made, allocate(DType::kF32, shape));
  move_slots(vector, made, 1);
  if (vector.empty() && neutral != 0.0F) {
    moved_ = true;
    const int64_t slot_bytes = made.size_bytes() / shape[0];
    for (const auto& [begin, count] : taken()) {
      const std::vector<float> values(count * slot_bytes / static_cast<int64_t>(sizeof neutral), neutral);
      platform::copy_to_device(ctx_.session, std::as_bytes(std::span(values)), made.data() + begin * slot_bytes);
    }
  }
  replace(vector, std::move(made));
  return {};
}

void LoRAMemoryPool::move_slots(const Tensor& from, Tensor& to, int64_t rows) {
  if (from.empty()) return;
  moved_ = true;
  const int64_t from_pitch = from.size_bytes() / (from.shape()[0] * rows), to_pitch = to.size_bytes() / (to.shape()[0] * rows);
  for (const auto& [begin, count] : taken()) {
    platform::copy_rows(ctx_.session, platform::CopyKind::kOnDevice, to.data() + begin * rows * to_pitch, to_pitch,
                        from.view().data + begin * rows * from_pitch, from_pitch, from_pitch, count * rows);
  }
}

void LoRAMemoryPool::plan_write(int target, int64_t slot, const PackedVoice& voice, SlotWrite& write) {
  Stacks& stacks = stacks_[target];
  const auto place = [&](Tensor& stack) {
    return stack.empty() ? nullptr : stack.data() + slot * (stack.size_bytes() / stack.shape()[0]);
  };
  for (size_t i = 0; i < stacks.pairs.size(); ++i) {
    Pair& pair = stacks.pairs[i];
    if (pair.rank == 0) continue;
    const auto own_rank = static_cast<int32_t>(OptimizedLoRAWeights::voice_rank(voice, target, pair.columns));
    int32_t& there = pair.ranks[slot];
    there = std::max(there, own_rank);
    if (there == 0) continue;
    write.add(SlotWrite::PairPiece{.target = target,
                                   .pair = i,
                                   .columns = pair.columns,
                                   .in = stacks.in,
                                   .rank = there,
                                   .stack_rank = pair.rank,
                                   .own_rank = own_rank,
                                   .a = place(pair.a),
                                   .b = place(pair.b),
                                   .ranks = place(pair.ranks_on_device)});
  }
  if (stacks.factors.empty() && stacks.offsets.empty()) return;
  write.add(SlotWrite::VectorPiece{
      .target = target, .out = stacks.out, .factors = place(stacks.factors), .offsets = place(stacks.offsets)});
}

void LoRAMemoryPool::replace(Tensor& place, Tensor made) {
  if (!place.empty()) size_bytes_ -= place.size_bytes();
  place = std::move(made);
}

}  // namespace choral::lora
