#include "lora/store/packed_adapter.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/checked_math.h"
#include "kernels/gemm/gemm_float.h"
#include "kernels/quant/dequantise.h"
#include "lora/store/dora_factors.h"
#include "lora/store/own_rows.h"

namespace choral::lora {
namespace {

kernels::LoRAFormat panel_format(LoRADType type) {
  switch (type) {
    case LoRADType::kAuto: return kernels::LoRAFormat::kAuto;
    case LoRADType::kFloat16: return kernels::LoRAFormat::kF16;
    case LoRADType::kBFloat16: return kernels::LoRAFormat::kBF16;
    case LoRADType::kFloat32: return kernels::LoRAFormat::kF32;
    case LoRADType::kInt8: return kernels::LoRAFormat::kI8;
  }
  return kernels::LoRAFormat::kAuto;
}

// PEFT computes with the copy that is in the file, the engine with the base's weight: they must be one weight, up to the rounding
// of any of the formats that bases are stored in. `first_row` is where `member` begins in `target`.
Status check_frozen_copy(ThreadPool& pool, const LoRATarget& target, const std::string& member, int64_t first_row,
                         const TensorView& copy) {
  constexpr int64_t kRowsPerChunk = 256;
  constexpr double kFarOff = 0.5;       // of the row's length
  constexpr double kNegligible = 0.01;  // of the mean length: what is left of a row of zeros
  const auto rows = static_cast<size_t>(copy.rows()), cols = static_cast<size_t>(copy.cols());
  std::vector<double> lengths(rows), differences(rows);
  std::vector<Status> read(rows);
  pool.parallel_for(copy.rows(), kRowsPerChunk, [&](int64_t begin, int64_t end, int) {
    std::vector<float> own(cols), base(cols);
    for (int64_t r = begin; r < end; ++r) {
      if (!target.has_row(first_row + r)) continue;  // another process looks at it
      kernels::dequantise_row(copy.dtype, copy.row(r), copy.cols(), own.data());
      read[r] = target.base_row(first_row + r, base);
      lengths[r] = std::max(length_of(own), length_of(base));
      std::transform(own.begin(), own.end(), base.begin(), own.begin(), std::minus<>());
      differences[r] = length_of(own);
    }
  });
  for (auto& status : read) CHORAL_RETURN_IF_ERROR(std::move(status).while_(member));
  int64_t looked_at = 0;
  for (int64_t r = 0; r < copy.rows(); ++r) looked_at += target.has_row(first_row + r) ? 1 : 0;
  const double mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / static_cast<double>(std::max<int64_t>(looked_at, 1));
  const auto is_close = [&](size_t r) { return differences[r] <= std::max(kFarOff * lengths[r], kNegligible * mean); };
  size_t far = 0, first = rows;
  for (size_t r = rows; r-- > 0;) {
    if (is_close(r)) continue;  // nothing is close to NaN
    ++far;
    first = r;
  }
  if (far == 0) return {};
  return invalid_argument(
      "the file's copy of the base's weight '{}' is another weight: {} of its {} rows are far from the base's, the first is row "
      "{}; "
      "load the base that it was trained on, or save it with modules_to_save or trainable_token_indices for what was changed",
      member, far, rows, first);
}

// Makes a target's module in two steps, so that the panels of all modules' deltas can be packed into one piece of memory. Without
// a context it goes the same way and only measures: values are not read (zeros stand for them) and matrices not made.
class ModulePacker {
 public:
  ModulePacker(const platform::Context* ctx, const LoRAModel& model, const LoRATarget& target, kernels::LoRAFormat format)
      : ctx_(ctx), model_(model), target_(target), format_(format) {}

  // Everything but the delta's panels.
  Status prepare() {
    CHORAL_RETURN_IF_ERROR(check_frozen_copies());
    switch (target_.kind) {
      case TargetKind::kNorm: return pack_norm();
      case TargetKind::kEmbedding: return pack_embedding();
      case TargetKind::kLinear:
      case TargetKind::kHead:
        CHORAL_RETURN_IF_ERROR(pack_linear());
        CHORAL_RETURN_IF_ERROR(pack_token_rows());
        return pack_own_rows();
    }
    return {};
  }

  // Of the module when it is done: known once prepare() is through.
  int64_t size_bytes() const { return module_.size_bytes() + measured_bytes_; }

  // What fill() writes.
  int64_t panel_bytes() const { return module_.delta ? round_up(module_.delta->panel_bytes(), int64_t{kCacheLineBytes}) : 0; }

  // Any thread.
  Status fill(std::byte* panels) {
    if (!module_.delta) return {};
    return module_.delta->fill(delta_source(), panels).while_(target_.name);
  }

  // Null when the adapter leaves the target alone.
  std::unique_ptr<PackedModule> take() { return touched_ ? std::make_unique<PackedModule>(std::move(module_)) : nullptr; }

 private:
  bool measures() const { return ctx_ == nullptr; }

  // Null when measuring.
  Result<std::unique_ptr<kernels::PackedMatrix>> prepack(const TensorView& tensor, std::span<const int32_t> order = {}) {
    if (measures()) {
      measured_bytes_ += kernels::packed_float_bytes(tensor.rows(), tensor.cols(), tensor.dtype);
      return std::unique_ptr<kernels::PackedMatrix>();
    }
    const kernels::WeightRows rows{tensor, order};
    return ctx_->session.prepack(*ctx_, {.rows = {&rows, 1}, .format = tensor.dtype});
  }

  std::vector<float> values_of(const TensorView& tensor) const {
    return measures() ? std::vector<float>(tensor.rows() * tensor.cols()) : floats_of(tensor);
  }

  Status check_frozen_copies() {
    if (measures() || !target_.base_row) return {};
    int64_t begin = 0;
    for (const auto& member : target_.members) {
      const auto found = model_.frozen_copies().find(member.name);
      if (found != model_.frozen_copies().end()) {
        CHORAL_RETURN_IF_ERROR(check_frozen_copy(ctx_->kernel.pool, target_, member.name, begin, found->second.view));
      }
      begin += member.out;
    }
    return {};
  }

  Status pack_norm() {
    const auto take = [this](const auto& replaced, std::vector<float>& out) {
      const auto found = replaced.find(target_.name);
      if (found == replaced.end()) return;
      out = values_of(found->second.view);
      touched_ = true;
    };
    take(model_.replaced_weights(), module_.norm_weight);
    take(model_.replaced_biases(), module_.norm_bias);
    if (target_.stored_less != 0) {
      for (float& w : module_.norm_weight) w += target_.stored_less;
    }
    return {};
  }

  Status pack_embedding() {
    const auto& replaced = model_.replaced_weights();
    const auto found = replaced.find(target_.name);
    if (found != replaced.end() && !is_the_base(target_.name, found->second.view, 0)) {
      CHORAL_TRY(module_.table, prepack(found->second.view));
      touched_ = true;
    }
    CHORAL_RETURN_IF_ERROR(pack_token_rows());
    CHORAL_RETURN_IF_ERROR(pack_own_rows());
    const LoRALayerWeights* layer = model_.get_lora(target_.name);
    if (layer == nullptr) return {};
    if (measures()) {
      measured_bytes_ += layer->lora_a.size_bytes();
    } else {
      CHORAL_TRY(module_.token_middles, transposed(layer->lora_a.view));
    }
    module_.token_scale = layer->scaling;
    // The middle is a row of token_middles, not a product: A is one column that nobody reads.
    no_a_.resize(layer->rank);
    const TensorView a{std::as_bytes(std::span(no_a_)).data(), DType::kF32, {layer->rank, 1}, kCpuDevice};
    slices_.push_back({.out_begin = 0, .a = a, .b = layer->lora_b.view, .scale = 1.0F});
    return lay_out_delta();
  }

  Status pack_linear() {
    int64_t begin = 0;
    for (const auto& member : target_.members) {
      if (const LoRALayerWeights* layer = model_.get_lora(member.name)) {
        add_slice(begin, *layer);
        if (layer->is_dora()) {
          if (measures()) {
            put(factor_, 1.0F, begin, values_of(layer->magnitude.view));
          } else {
            CHORAL_TRY(const auto factors, dora_factors(ctx_->kernel.pool, ctx_->kernel.level, target_, begin, *layer));
            put(factor_, 1.0F, begin, factors);
          }
        }
        if (!layer->bias.empty()) {
          auto bias = values_of(layer->bias.view);
          for (size_t j = 0; j < bias.size(); ++j) {
            bias[j] *= layer->scaling * (factor_.empty() ? 1.0F : factor_[static_cast<size_t>(begin) + j]);
          }
          put(offset_, 0.0F, begin, bias);
        }
      }
      CHORAL_RETURN_IF_ERROR(pack_replacement(member, begin));
      begin += member.out;
    }
    return slices_.empty() && offset_.empty() ? Status() : lay_out_delta();
  }

  // Projections that a file adapts together have one A, and what it wrote as one B: they are one slice.
  void add_slice(int64_t begin, const LoRALayerWeights& layer) {
    TensorView b = layer.lora_b.view;
    if (target_.kind == TargetKind::kHead) b.shape = {target_.out(), b.cols()};  // the adapter's own tokens are own_rows
    if (layer.shares_lora_a && !slices_.empty()) {
      auto& last = slices_.back();
      const bool follows = last.out_begin + last.b.rows() == begin && last.b.data + last.b.size_bytes() == b.data;
      if (follows && last.a.data == layer.lora_a.view.data) {
        last.b.shape = {last.b.rows() + b.rows(), b.cols()};
        return;
      }
    }
    slices_.push_back({begin, in_order(layer.lora_a.view), b, layer.scaling});
  }

  // The columns of a matrix as the layer's x has them.
  TensorView in_order(const TensorView& from) {
    if (target_.in_order.empty() || measures()) return from;
    CHORAL_CHECK(from.cols() == std::ssize(target_.in_order), "a file's matrix was checked against its target");
    auto& to = ordered_.emplace_back(static_cast<size_t>(from.size_bytes()));
    const auto element = static_cast<size_t>(row_bytes(from.dtype, 1));
    for (int64_t row = 0, at = 0; row < from.rows(); ++row) {
      for (const int32_t column : target_.in_order) {
        std::memcpy(to.data() + at, from.row(row) + static_cast<size_t>(column) * element, element);
        at += static_cast<int64_t>(element);
      }
    }
    TensorView view = from;
    view.data = to.data();
    return view;
  }

  Status pack_replacement(const TargetMember& member, int64_t begin) {
    const auto weight = model_.replaced_weights().find(member.name);
    const auto bias = model_.replaced_biases().find(member.name);
    std::vector<float> bias_change;
    if (bias != model_.replaced_biases().end()) {
      bias_change = values_of(bias->second.view);
      const auto base = target_.base_bias();
      if (base.empty()) return unsupported("{}: the adapter brings a bias, the base has none there", member.name);
      for (size_t j = 0; j < bias_change.size(); ++j) bias_change[j] -= base[static_cast<size_t>(begin) + j];
    }
    if (weight == model_.replaced_weights().end() || is_the_base(member.name, weight->second.view, begin)) {
      if (!bias_change.empty()) put(offset_, 0.0F, begin, bias_change);
      return {};
    }
    CHORAL_TRY(auto matrix, prepack(in_order(weight->second.view)));
    module_.replaced.push_back({begin, std::move(matrix), std::move(bias_change)});
    touched_ = true;
    return {};
  }

  Status pack_token_rows() {
    const TrainableTokens* tokens = model_.trainable_tokens_of(target_);
    if (tokens == nullptr) return {};
    const auto& ids = tokens->token_ids;
    std::vector<int32_t> order;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < vocabulary()) order.push_back(static_cast<int32_t>(i));
    }
    if (order.empty()) return {};
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return ids[a] < ids[b]; });
    for (const int32_t i : order) module_.token_ids.push_back(ids[i]);
    TensorView rows = tokens->rows.view;
    if (measures()) rows.shape = {std::ssize(order), rows.cols()};
    CHORAL_TRY(module_.token_rows, prepack(rows, order));
    touched_ = true;
    return {};
  }

  Status pack_own_rows() {
    const int64_t count = count_own_rows(model_, target_);
    if (count == 0) return {};
    touched_ = true;
    if (measures()) {
      measured_bytes_ += kernels::packed_float_bytes(count, target_.in, DType::kF32);
      return {};
    }
    CHORAL_TRY(const Tensor rows, make_own_rows(ctx_->kernel.pool, model_, target_));
    CHORAL_TRY(module_.own_rows, prepack(rows.view()));
    module_.own_begin = static_cast<int32_t>(vocabulary());
    return {};
  }

  int64_t vocabulary() const { return target_.out(); }

  // Whether a layer that its file holds for its new rows' sake has the base's weight, value for value; `first_row` is where it
  // begins in the target. When measuring it is taken to be so. Of a layer that is divided over processes each looks at the
  // outputs that are its own. An embedding's rows are everybody's, so all would have to find the same: there it is taken not to
  // be so.
  bool is_the_base(const std::string& name, const TensorView& weight, int64_t first_row) const {
    if (!model_.may_be_the_base(name) || !target_.base_row) return false;
    if (!target_.elsewhere.empty() && target_.kind == TargetKind::kEmbedding) return false;
    if (measures()) return true;
    constexpr int64_t kRowsPerChunk = 256;
    std::atomic<bool> same = true;
    ctx_->kernel.pool.parallel_for(weight.rows(), kRowsPerChunk, [&](int64_t begin, int64_t end, int) {
      std::vector<float> own(weight.cols()), base(own.size());
      for (int64_t r = begin; r < end && same; ++r) {
        if (!target_.has_row(first_row + r)) continue;
        kernels::dequantise_row(weight.dtype, weight.row(r), weight.cols(), own.data());
        if (!target_.base_row(first_row + r, base).ok() || own != base) same = false;
      }
    });
    return same;
  }

  Status lay_out_delta() {
    auto delta = kernels::LoRAMatrix::lay_out(delta_source(), format_);
    if (!delta.ok()) return std::move(delta).status().while_(target_.name);
    module_.delta = std::move(*delta);
    touched_ = true;
    return {};
  }

  kernels::LoRAMatrixSource delta_source() const {
    const bool embedding = target_.kind == TargetKind::kEmbedding;
    return {.in = embedding ? 1 : target_.in,
            .out = embedding ? target_.in : target_.out(),
            .slices = slices_,
            .output_factor = factor_,
            .offset = offset_};
  }

  // values at [begin, …) of a vector over all outputs, which is `neutral` elsewhere.
  void put(std::vector<float>& all, float neutral, int64_t begin, std::span<const float> values) const {
    if (all.empty()) all.assign(target_.out(), neutral);
    for (size_t j = 0; j < values.size(); ++j) {
      float& at = all[static_cast<size_t>(begin) + j];
      at = neutral == 0.0F ? at + values[j] : values[j];
    }
  }

  // [rows, cols] of 2- or 4-byte elements -> [cols, rows]
  static Result<Tensor> transposed(const TensorView& tensor) {
    CHORAL_TRY(Tensor out, Tensor::allocate(tensor.dtype, {tensor.cols(), tensor.rows()}));
    const auto size = static_cast<size_t>(row_bytes(tensor.dtype, 1));
    std::byte* to = out.data();
    for (int64_t c = 0; c < tensor.cols(); ++c) {
      for (int64_t r = 0; r < tensor.rows(); ++r, to += size)
        std::memcpy(to, tensor.row(r) + static_cast<size_t>(c) * size, size);
    }
    return out;
  }

  const platform::Context* ctx_;
  const LoRAModel& model_;
  const LoRATarget& target_;
  kernels::LoRAFormat format_;
  PackedModule module_;
  bool touched_ = false;
  int64_t measured_bytes_ = 0;  // of what was not made
  // The delta's source, between the steps. no_a_ is an embedding's A.
  std::vector<kernels::LoRASliceSource> slices_;
  std::vector<std::vector<std::byte>> ordered_;  // what in_order() made
  std::vector<float> factor_, offset_, no_a_;
};

}  // namespace

int64_t PackedModule::size_bytes() const {
  int64_t total = delta ? delta->size_bytes() : 0;
  for (const auto& part : replaced)
    total +=
        (part.matrix != nullptr ? part.matrix->size_bytes() : 0) + static_cast<int64_t>(part.bias_change.size() * sizeof(float));
  total += static_cast<int64_t>((norm_weight.size() + norm_bias.size()) * sizeof(float) + token_ids.size() * sizeof(int32_t));
  if (token_middles.view().data != nullptr) total += token_middles.view().size_bytes();
  if (table != nullptr) total += table->size_bytes();
  for (const auto* rows : {&token_rows, &own_rows}) {
    if (*rows != nullptr) total += (*rows)->size_bytes();
  }
  return total;
}

void PackedAdapter::put(size_t index, std::unique_ptr<const PackedModule> module) {
  auto& page = pages_[index / kPageTargets];
  if (page == nullptr) page = std::make_unique<Page>();
  (*page)[index % kPageTargets] = std::move(module);
}

void PackedAdapter::prefetch_module(int index) const {
  const PackedModule* next = static_cast<size_t>(index) < targets_ ? module(index) : nullptr;
  if (next == nullptr) return;
  const auto* module = reinterpret_cast<const std::byte*>(next);
  for (size_t at = 0; at < sizeof(PackedModule); at += kCacheLineBytes) __builtin_prefetch(module + at);
}

Result<int64_t> PackedAdapter::packed_bytes(const LoRAModel& model, std::span<const LoRATarget> targets,
                                            const LoRAConfig& config) {
  int64_t total = 0;
  for (const auto& target : targets) {
    ModulePacker packer(nullptr, model, target, panel_format(config.lora_dtype));
    CHORAL_RETURN_IF_ERROR(packer.prepare());
    total += packer.size_bytes();
  }
  return total;
}

Result<std::shared_ptr<const PackedAdapter>> PackedAdapter::pack(const platform::Context& ctx, const LoRAModel& model,
                                                                 std::span<const LoRATarget> targets, const LoRAConfig& config,
                                                                 std::optional<AdapterSource> source, AlignedBuffer memory) {
  std::shared_ptr<PackedAdapter> adapter(new PackedAdapter());
  adapter->source_ = std::move(source);
  ThreadPool& pool = ctx.kernel.pool;
  adapter->digest_ = model.digest(pool);
  adapter->rank_ = model.rank();
  adapter->invocation_tokens_.assign(model.alora_invocation_tokens().begin(), model.alora_invocation_tokens().end());
  adapter->own_tokens_ = model.extra_vocab_size();
  std::vector<ModulePacker> packers;
  packers.reserve(targets.size());
  std::vector<int64_t> places;  // where each one's panels begin
  int64_t panel_bytes = 0;
  for (const auto& target : targets) {
    auto& packer = packers.emplace_back(&ctx, model, target, panel_format(config.lora_dtype));
    CHORAL_RETURN_IF_ERROR(packer.prepare());
    places.push_back(panel_bytes);
    panel_bytes += packer.panel_bytes();
  }
  adapter->panels_ = std::move(memory);
  if (static_cast<int64_t>(adapter->panels_.size_bytes()) != panel_bytes) {
    CHORAL_TRY(adapter->panels_, AlignedBuffer::allocate(panel_bytes));
  }
  std::vector<Status> filled(packers.size());
  pool.parallel_for(std::ssize(packers), 1, [&](int64_t begin, int64_t end, int) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      filled[i] = packers[i].fill(adapter->panels_.data() + places[i]);
    }
  });
  for (auto& status : filled) CHORAL_RETURN_IF_ERROR(std::move(status));
  adapter->targets_ = packers.size();
  adapter->pages_.resize((packers.size() + kPageTargets - 1) / kPageTargets);
  for (size_t i = 0; i < packers.size(); ++i) {
    auto module = packers[i].take();
    if (module == nullptr) continue;
    adapter->size_bytes_ += module->size_bytes();
    adapter->replaces_ = adapter->replaces_ || !module->replaced.empty() || !module->norm_weight.empty() ||
                         !module->norm_bias.empty() || module->table != nullptr || module->token_rows != nullptr ||
                         module->own_rows != nullptr;
    adapter->put(i, std::move(module));
  }
  return std::shared_ptr<const PackedAdapter>(std::move(adapter));
}

}  // namespace choral::lora
