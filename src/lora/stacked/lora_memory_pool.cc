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
  for (const auto& member : target.members) {
    stacks.pairs.push_back({.columns = {stacks.out, member.out}});
    stacks.out += member.out;
  }
  return stacks;
}

// What the voice multiplies each output of the base's product by, its bias included, and what it adds then, so that the bias
// comes out as it was: (1 + Σ factor·(f − 1))·(W·x) + b + Σ factor·o.
struct Vectors {
  std::vector<float> factors, offsets;  // [out]; empty = all 1, all 0
};
Vectors vectors_of(const LoRATarget& target, const PackedVoice& voice, int index, int64_t out) {
  Vectors v;
  const auto base = target.base_bias ? target.base_bias() : std::span<const float>();
  const auto at_least = [out](std::vector<float>& values, float fill) {
    if (values.empty()) values.assign(out, fill);
  };
  for (const auto& [adapter, factor] : voice) {
    const PackedModule* module = adapter->module(index);
    if (module == nullptr || !module->delta) continue;
    const auto f = module->delta->output_factor();
    const auto o = module->delta->offset();
    if (!f.empty()) at_least(v.factors, 1.0F);
    if (!o.empty()) at_least(v.offsets, 0.0F);
    for (size_t c = 0; c < f.size(); ++c) v.factors[c] += factor * (f[c] - 1.0F);
    for (size_t c = 0; c < o.size(); ++c) v.offsets[c] += factor * o[c];
  }
  if (!v.factors.empty() && !base.empty()) {
    at_least(v.offsets, 0.0F);
    for (size_t c = 0; c < base.size(); ++c) v.offsets[c] += (1.0F - v.factors[c]) * base[c];
  }
  // Replaced columns come without the base's bias. Who replaces is alone in its voice.
  const PackedModule* alone = voice.front().adapter->module(index);
  if (alone == nullptr) return v;
  for (const auto& part : alone->replaced) {
    if (base.empty() && part.bias_change.empty()) continue;
    at_least(v.offsets, 0.0F);
    for (int64_t i = 0; i < part.matrix->n(); ++i) {
      const auto c = static_cast<size_t>(part.out_begin + i);
      const float f = v.factors.empty() ? 1.0F : v.factors[c];
      const float change = part.bias_change.empty() ? 0.0F : part.bias_change[i];
      v.offsets[c] += f * change + (base.empty() ? 0.0F : f * base[c]);
    }
  }
  return v;
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

Status LoRAMemoryPool::reserve_slot() {
  if (find_free() < slot_count()) return {};
  const int64_t more = std::min(size_.max_slots, std::max(kFirstSlots, 2 * slot_count()));
  if (more <= slot_count()) return resource_exhausted("all {} slots of the device are taken", slot_count());
  // Where one cannot, those that have grown serve fewer as well.
  for (size_t target = 0; target < targets_.size(); ++target) {
    CHORAL_RETURN_IF_ERROR(grow(static_cast<int>(target), more, nullptr));
  }
  slots_.resize(more);
  return {};
}

Result<int32_t> LoRAMemoryPool::put(const PackedVoice& voice) {
  CHORAL_RETURN_IF_ERROR(reserve_slot());
  const int64_t slot = find_free();
  CHORAL_TRY(Slot made, make_slot(voice));
  Status status;
  for (size_t target = 0; target < targets_.size() && status.ok(); ++target) {
    status = grow(static_cast<int>(target), slot_count(), &voice);
    if (status.ok()) status = write(static_cast<int>(target), slot, &voice);
  }
  if (!status.ok()) {
    for (size_t target = 0; target < targets_.size(); ++target)
      CHORAL_RETURN_IF_ERROR(write(static_cast<int>(target), slot, nullptr));
    size_bytes_ -= made.bytes;
    return status;
  }
  slots_[slot] = std::move(made);
  return static_cast<int32_t>(slot);
}

int32_t LoRAMemoryPool::find(const PackedVoice& voice) const {
  const auto same = [](const Term& a, const PackedVoiceTerm& b) { return a.adapter.lock() == b.adapter && a.factor == b.factor; };
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return std::equal(slot.voice.begin(), slot.voice.end(), voice.begin(), voice.end(), same);
  });
  return found == slots_.end() ? kNoSlot : static_cast<int32_t>(found - slots_.begin());
}

PackedVoice LoRAMemoryPool::voice_in(size_t slot) const {
  PackedVoice voice;
  for (const auto& [adapter, factor] : slots_[slot].voice) {
    voice.push_back({adapter.lock(), factor});
    if (voice.back().adapter == nullptr) return {};
  }
  return voice;
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
  Slot slot;
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
      CHORAL_TRY(auto matrix, place(*part.matrix, bytes));
      out->replaced.push_back({part.out_begin, std::move(matrix)});
    }
    if (module->table != nullptr) {
      CHORAL_TRY(out->table, place(*module->table, bytes));
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
      CHORAL_TRY(out->token_rows, place(*module->token_rows, bytes));
      continue;
    }
    // Of a head: a column for each token; neighbours are one matrix.
    const auto& ids = module->token_ids;
    for (size_t begin = 0; begin < ids.size();) {
      size_t end = begin + 1;
      while (end < ids.size() && ids[end] == ids[end - 1] + 1) ++end;
      const int64_t cols = module->token_rows->k();
      std::vector<float> rows((end - begin) * static_cast<size_t>(cols));
      for (size_t i = begin; i < end; ++i) {
        CHORAL_RETURN_IF_ERROR(module->token_rows->read_row(
            static_cast<int64_t>(i), std::span(rows).subspan((i - begin) * static_cast<size_t>(cols), cols)));
      }
      CHORAL_TRY(auto matrix, place_rows(rows, cols, format_of(*module->token_rows), bytes));
      out->replaced.push_back({ids[begin], std::move(matrix)});
      begin = end;
    }
  }
  out->on_product = out->on_product || !out->replaced.empty();
  return out;
}

Result<std::unique_ptr<kernels::PackedMatrix>> LoRAMemoryPool::place(const kernels::PackedMatrix& host, int64_t& bytes) {
  std::vector<float> rows(host.n() * host.k());
  for (int64_t row = 0; row < host.n(); ++row) {
    CHORAL_RETURN_IF_ERROR(host.read_row(row, {rows.data() + row * host.k(), static_cast<size_t>(host.k())}));
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

Status LoRAMemoryPool::grow(int target, int64_t slots, const PackedVoice* voice) {
  Stacks& stacks = stacks_[target];
  const auto take = [&](Tensor& place, Tensor made) {
    if (!place.empty()) size_bytes_ -= place.size_bytes();
    place = std::move(made);
  };
  const auto rewrite = [&](const auto& write_one) -> Status {
    for (size_t slot = 0; slot < slots_.size(); ++slot) {
      const PackedVoice there = voice_in(slot);
      if (!there.empty()) CHORAL_RETURN_IF_ERROR(write_one(static_cast<int64_t>(slot), &there));
    }
    return {};
  };
  for (auto& pair : stacks.pairs) {
    const int64_t needed = voice == nullptr ? 0 : OptimizedLoRAWeights::voice_rank(*voice, target, pair.columns);
    const int64_t rank = std::max(pair.rank, round_up(needed, kRankStep));
    if (rank == 0 || (rank == pair.rank && pair.a.shape()[0] >= slots)) continue;
    CHORAL_TRY(auto a, allocate(size_.dtype, {slots, rank, stacks.in}));
    auto b = allocate(size_.dtype, {slots, pair.columns.count, rank});
    auto ranks = b.ok() ? allocate(DType::kI32, {slots}) : Result<Tensor>(b.status());
    if (!ranks.ok()) {
      size_bytes_ -= a.size_bytes() + (b.ok() ? b->size_bytes() : 0);
      return std::move(ranks).status();
    }
    take(pair.a, std::move(a));
    take(pair.b, std::move(*b));
    take(pair.ranks_on_device, std::move(*ranks));
    pair.rank = rank;
    pair.ranks.assign(slots, 0);
    CHORAL_RETURN_IF_ERROR(
        rewrite([&](int64_t slot, const PackedVoice* v) { return write_pair(target, pair, stacks.in, slot, v); }));
  }
  if (stacks.pairs.empty() || targets_[target].kind == TargetKind::kEmbedding) return {};
  const Vectors wanted = voice == nullptr ? Vectors() : vectors_of(targets_[target], *voice, target, stacks.out);
  const auto grow_vector = [&](Tensor& vector, bool needed, Shape shape) -> Status {
    if (vector.empty() ? !needed : vector.shape()[0] >= slots) return {};
    CHORAL_TRY(auto made, allocate(DType::kF32, shape));
    take(vector, std::move(made));
    return rewrite([&](int64_t slot, const PackedVoice* v) { return write_vectors(target, stacks, slot, v); });
  };
  CHORAL_RETURN_IF_ERROR(grow_vector(stacks.factors, !wanted.factors.empty(), {slots, 1, stacks.out}));
  return grow_vector(stacks.offsets, !wanted.offsets.empty(), {slots, stacks.out, 1});
}

Status LoRAMemoryPool::write(int target, int64_t slot, const PackedVoice* voice) {
  Stacks& stacks = stacks_[target];
  for (auto& pair : stacks.pairs) CHORAL_RETURN_IF_ERROR(write_pair(target, pair, stacks.in, slot, voice));
  return write_vectors(target, stacks, slot, voice);
}

Status LoRAMemoryPool::write_pair(int target, Pair& pair, int64_t in, int64_t slot, const PackedVoice* voice) {
  if (pair.rank == 0) return {};
  const PackedVoice nobody;
  CHORAL_TRY(const auto weights,
             OptimizedLoRAWeights::create(voice == nullptr ? nobody : *voice, target, pair.columns, in, pair.rank, size_.dtype));
  write_slot(pair.a, slot, weights.lora_a().data);
  write_slot(pair.b, slot, weights.lora_b().data);
  pair.ranks[slot] = voice == nullptr ? 0 : static_cast<int32_t>(OptimizedLoRAWeights::voice_rank(*voice, target, pair.columns));
  write_slot(pair.ranks_on_device, slot, std::as_bytes(std::span(pair.ranks).subspan(slot, 1)).data());
  return {};
}

Status LoRAMemoryPool::write_vectors(int target, Stacks& stacks, int64_t slot, const PackedVoice* voice) {
  if (stacks.factors.empty() && stacks.offsets.empty()) return {};
  Vectors v;
  if (voice != nullptr) v = vectors_of(targets_[target], *voice, target, stacks.out);
  v.factors.resize(stacks.out, 1.0F);
  v.offsets.resize(stacks.out, 0.0F);
  if (!stacks.factors.empty()) write_slot(stacks.factors, slot, std::as_bytes(std::span(v.factors)).data());
  if (!stacks.offsets.empty()) write_slot(stacks.offsets, slot, std::as_bytes(std::span(v.offsets)).data());
  return {};
}

void LoRAMemoryPool::write_slot(Tensor& stack, int64_t slot, const std::byte* values) {
  const int64_t bytes = stack.size_bytes() / stack.shape()[0];
  platform::copy_to_device(ctx_.session, {values, static_cast<size_t>(bytes)}, stack.data() + slot * bytes);
}

}  // namespace choral::lora
