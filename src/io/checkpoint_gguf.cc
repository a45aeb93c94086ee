#include <algorithm>

#include "base/printable.h"
#include "io/checkpoint_sources.h"
#include "io/gguf.h"
#include "io/gguf_names.h"

namespace choral::io {
namespace {

class GgufCheckpoint : public Checkpoint {
 public:
  GgufCheckpoint(std::shared_ptr<const GgufFile> file, GgufArchitecture architecture)
      : file_(std::move(file)), architecture_(architecture) {}

  Status index_names();
  Result<SourceTensor> find(std::string_view name) const override;
  bool contains(std::string_view name) const override { return source(name) != nullptr; }
  void release(std::string_view name) const override {
    const Source* from = source(name);
    if (from == nullptr) return;
    // Experts are read one after the other.
    if (from->expert != kWhole && from->expert + 1 != from->tensor->shape[0]) return;
    if (from->half == Half::kFirst) return;
    file_->release(from->tensor->name);
    if (from->second != nullptr) file_->release(from->second->name);
  }
  Status check_unchanged() const override { return file_->check_unchanged(); }
  std::vector<FileIdentity> identity() const override {
    std::vector<FileIdentity> all;
    for (const auto& part : file_->parts()) {
      if (!add_identity(*part, all)) return {};
    }
    return all;
  }
  std::string description() const override {
    return fmt::format("GGUF v{}, {}, {} tensors, {:.1f} MiB", file_->version(), architecture_.name, names_.size(),
                       static_cast<double>(total_bytes_) / (1 << 20));
  }

 private:
  enum class Half { kBoth, kFirst, kSecond };  // of an expert's rows
  // What a name stands for: a tensor, or one expert's part of a tensor of all of them, or half of that; or two that are joined.
  struct Source {
    const GgufTensor* tensor = nullptr;
    int64_t expert = kWhole;
    const GgufTensor* second = nullptr;
    const GgufJoint* joint = nullptr;
    Half half = Half::kBoth;
    auto operator<=>(const Source&) const = default;
  };
  static constexpr int64_t kWhole = -1;
  using NamedSources = std::vector<std::pair<std::string, Source>>;

  // Under `name`, or under that of each expert where it has a star for the number.
  Status add(std::string name, const Source& source, NamedSources& all) const;
  Status add_joint(const GgufTensor& tensor, const GgufJointNames& names, NamedSources& all) const;
  bool fit(const GgufJoint& joint, const Shape& first, const Shape& second) const;
  Result<TensorView> view_of(const GgufTensor& tensor, int64_t expert) const;
  Result<SourceTensor> find_joint(const Source& source) const;

  const Source* source(std::string_view name) const {
    const auto at = std::lower_bound(names_.begin(), names_.end(), name);
    return at != names_.end() && *at == name ? &sources_[at - names_.begin()] : nullptr;
  }
  Result<std::vector<int32_t>> row_order(const GgufTensor& tensor, int64_t heads) const;
  Status find_of_delta_net(std::string_view name, SourceTensor& out) const;

  std::shared_ptr<const GgufFile> file_;
  GgufArchitecture architecture_;
  int64_t query_heads_ = 0, key_heads_ = 0;                              // where rows are interleaved
  int64_t net_key_heads_ = 0, net_value_heads_ = 0, net_value_dim_ = 0;  // where there are delta nets
  std::vector<Source> sources_;                                          // beside names_
};

Status GgufCheckpoint::index_names() {
  const ConfigMap& metadata = file_->metadata();
  const std::string prefix = std::string(architecture_.name) + ".attention.head_count";
  if (architecture_.interleaved_qk) {
    CHORAL_TRY(query_heads_, metadata.get_int(prefix, kPositive));
    CHORAL_TRY(key_heads_, gguf_key_heads(metadata, architecture_, query_heads_));
  }

  if (architecture_.delta_nets) {
    const std::string ssm = std::string(architecture_.name) + ".ssm.";
    constexpr IntRange kHeads{1, 1 << 16};
    CHORAL_TRY(net_key_heads_, metadata.get_int(ssm + "group_count", kHeads));
    CHORAL_TRY(net_value_heads_, metadata.get_int(ssm + "time_step_rank", kHeads));
    CHORAL_TRY(const int64_t inner, metadata.get_int(ssm + "inner_size", {1, int64_t{1} << 24}));
    if (net_value_heads_ % net_key_heads_ != 0 || inner % net_value_heads_ != 0) {
      return corrupt("{}time_step_rank ({}) is no multiple of group_count ({}), or inner_size ({}) none of it",
                     metadata.path_of(ssm), net_value_heads_, net_key_heads_, inner);
    }
    net_value_dim_ = inner / net_value_heads_;
  }

  NamedSources all;
  for (const auto& tensor : file_->tensors()) {
    total_bytes_ += tensor.size_bytes;
    if (const auto joint = gguf_joint_names(architecture_, tensor.name)) {
      CHORAL_RETURN_IF_ERROR(add_joint(tensor, *joint, all));
    } else if (const auto halves = gguf_halves(architecture_, tensor.name)) {
      CHORAL_RETURN_IF_ERROR(add(halves->first, {.tensor = &tensor, .half = Half::kFirst}, all));
      CHORAL_RETURN_IF_ERROR(add(halves->second, {.tensor = &tensor, .half = Half::kSecond}, all));
    } else {
      CHORAL_RETURN_IF_ERROR(add(hf_tensor_name(architecture_, tensor.name), {&tensor}, all));
    }
  }
  std::sort(all.begin(), all.end());
  for (auto& [name, from] : all) {
    if (!names_.empty() && names_.back() == name) {
      return corrupt("{}: two tensors are '{}' by their Hugging Face name", file_->path(), printable(name));
    }
    names_.push_back(std::move(name));
    sources_.push_back(from);
  }
  return {};
}

Status GgufCheckpoint::add(std::string name, const Source& source, NamedSources& all) const {
  constexpr int64_t kMostExperts = 4096;
  const GgufTensor& tensor = *source.tensor;
  const size_t star = name.find('*');
  if (star == std::string::npos || name == tensor.name) {
    all.emplace_back(std::move(name), source);
    return {};
  }
  const bool bias = tensor.name.ends_with(".bias");
  if (tensor.shape.rank() != (bias ? 2 : 3) || tensor.shape[0] > kMostExperts) {
    return corrupt("{}: '{}' has shape {}; [experts, rows{}] is wanted, of at most {} experts", file_->path(),
                   printable(tensor.name), tensor.shape.to_string(), bias ? "" : ", columns", kMostExperts);
  }
  if (source.half != Half::kBoth && tensor.shape[1] % 2 != 0) {
    return corrupt("{}: '{}' has shape {}; an expert's rows are its gate's and as many of its up", file_->path(),
                   printable(tensor.name), tensor.shape.to_string());
  }
  for (int64_t e = 0; e < tensor.shape[0]; ++e) {
    Source of_expert = source;
    of_expert.expert = e;
    all.emplace_back(std::string(name).replace(star, 1, std::to_string(e)), of_expert);
  }
  return {};
}

Status GgufCheckpoint::add_joint(const GgufTensor& tensor, const GgufJointNames& names, NamedSources& all) const {
  if (file_->contains(gguf_tensor_name(architecture_, names.hf))) return {};  // some files have the whole beside its parts
  const auto tensors = file_->tensors();
  const auto find = [&](const std::string& name) {
    return std::find_if(tensors.begin(), tensors.end(), [&](const GgufTensor& other) { return other.name == name; });
  };
  const std::string& partner = tensor.name == names.first ? names.second : names.first;
  const auto other = find(partner);
  if (other == tensors.end()) {
    return corrupt("{} has '{}', but not '{}', the other part of {}", file_->path(), printable(tensor.name), printable(partner),
                   printable(names.hf));
  }
  if (tensor.name != names.first) return {};
  const Shape &a = tensor.shape, &b = other->shape;
  if (!fit(*names.joint, a, b)) {
    return corrupt("{}: '{}' of shape {} and '{}' of shape {} are no parts of one matrix", file_->path(), printable(tensor.name),
                   a.to_string(), printable(other->name), b.to_string());
  }
  return add(names.hf, {&tensor, kWhole, &*other, names.joint}, all);
}

bool GgufCheckpoint::fit(const GgufJoint& joint, const Shape& a, const Shape& b) const {
  switch (joint.turn) {
    case GgufJoint::Turn::kLatentHead: return a.rank() == 3 && b.rank() == 3 && a[0] == b[0] && a[1] == b[2];
    case GgufJoint::Turn::kDeltaHead: {
      const int64_t values = net_value_heads_ * net_value_dim_;
      return a.rank() == 2 && b.rank() == 2 && a[1] == b[1] && b[0] == values && a[0] > values &&
             (a[0] - values) % (2 * net_key_heads_) == 0;
    }
    default: return a == b;
  }
}

Result<std::vector<int32_t>> GgufCheckpoint::row_order(const GgufTensor& tensor, int64_t heads) const {
  const int64_t rows = tensor.shape[0];
  if (rows > INT32_MAX || rows % (2 * heads) != 0) {
    return corrupt("{}: '{}' has {} rows, which is no even number for each of {} heads", file_->path(), printable(tensor.name),
                   rows, heads);
  }
  return half_split_order(rows, heads);
}

Result<TensorView> GgufCheckpoint::view_of(const GgufTensor& tensor, int64_t expert) const {
  CHORAL_TRY(TensorView view, file_->find(tensor.name));
  if (expert == kWhole) return view;
  view.shape = Shape(tensor.shape.dims().subspan(1));
  view.data += expert * view.size_bytes();
  return view;
}

Result<SourceTensor> GgufCheckpoint::find_joint(const Source& source) const {
  CHORAL_TRY(const TensorView first, view_of(*source.tensor, source.expert));
  CHORAL_TRY(const TensorView second, view_of(*source.second, source.expert));
  const GgufJoint::Turn turn = source.joint->turn;
  const bool turned = turn == GgufJoint::Turn::kLatentHead;
  const bool kept = first.dtype == second.dtype && !(turned && facts(first.dtype).is_block);
  for (const TensorView& view : {first, second}) {
    const auto& f = facts(view.dtype);
    if (f.is_floating || (f.is_block && view.shape.rank() > 1)) continue;
    return unsupported("{}: '{}' is stored as {}; a float type{} is read", file_->path(), printable(source.tensor->name), f.name,
                       view.shape.rank() > 1 ? " or blocks" : "");
  }
  SourceTensor out{.view = first, .row_order = {}};
  if (!kept) out.view.dtype = DType::kF32;
  if (turned) {
    const int64_t heads = first.shape[0], keys = first.shape[2], values = second.shape[1];
    out.view.shape = {heads * (keys + values), first.shape[1]};
    out.parts = {{first, keys, /*transposed=*/true}, {second, values}};
    return out;
  }
  const int64_t rows = first.shape[0] + second.shape[0];
  out.view.shape = first.shape.rank() == 1 ? Shape{rows} : Shape{rows, first.shape[1]};
  if (turn == GgufJoint::Turn::kDeltaHead) {
    const int64_t values = second.shape[0], keys = (first.shape[0] - values) / 2;
    const auto part = [&](int64_t begin, int64_t count) {
      TensorView view = first;
      view.data = first.row(begin);
      view.shape = {count, first.shape[1]};
      return RowsInTurn{view, count / net_key_heads_};
    };
    out.parts = {part(0, keys), part(keys, keys), part(2 * keys, values), {second, values / net_key_heads_}};
  } else {
    const int64_t each = turn == GgufJoint::Turn::kAll ? first.shape[0] : 1;
    out.parts = {{first, each}, {second, each}};
  }
  return out;
}

// What a file of delta nets has in another order or form; the columns of out_proj stay as they are (the configuration says so).
Status GgufCheckpoint::find_of_delta_net(std::string_view name, SourceTensor& out) const {
  constexpr std::string_view kNet = ".linear_attn.";
  Shape& shape = out.view.shape;
  if (name.ends_with(".shared_expert_gate.weight") && shape.rank() == 1) shape = {1, shape[0]};
  const size_t at = name.find(kNet);
  if (at == std::string_view::npos) return {};
  const std::string_view part = name.substr(at + kNet.size());
  const auto is = [part](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), part) != names.end();
  };
  int64_t dim = 0;
  if (is({"in_proj_qkv.weight", "in_proj_z.weight", "conv1d.weight"})) dim = net_value_dim_;
  if (is({"in_proj_a.weight", "in_proj_b.weight", "A", "dt_bias"})) dim = 1;
  if (part == "conv1d.weight" && shape.rank() == 2) shape = {shape[0], 1, shape[1]};
  if (dim == 0 || !architecture_.tiled_value_heads) return {};
  const int64_t rows = shape.rank() == 0 ? 0 : shape[0];
  if (rows > INT32_MAX || rows < net_value_heads_ * dim) {
    return corrupt("{}: '{}' has {} rows, too few for {} value heads of {}", file_->path(), printable(name), rows,
                   net_value_heads_, dim);
  }
  out.row_order = tiled_heads_order(rows, net_key_heads_, net_value_heads_, dim);
  return {};
}

// What a file of Mamba-2 layers has in another shape: vectors as matrices of one column or of a row for each group, and the
// convolution as a matrix.
void reshape_of_mamba2(std::string_view name, SourceTensor& out) {
  Shape& shape = out.view.shape;
  if (name.find(".mamba.") == std::string_view::npos || shape.rank() != 2) return;
  if (name.ends_with(".conv1d.weight")) shape = {shape[0], 1, shape[1]};
  if (name.ends_with(".A") || name.ends_with(".D") || name.ends_with(".norm.weight")) shape = {shape[0] * shape[1]};
}

Result<SourceTensor> GgufCheckpoint::find(std::string_view name) const {
  const Source* from = source(name);
  if (from == nullptr) return missing(name, file_->path());
  if (from->second != nullptr) return find_joint(*from);
  const GgufTensor* tensor = from->tensor;
  SourceTensor out;
  CHORAL_TRY(out.view, view_of(*tensor, from->expert));
  if (from->half != Half::kBoth) {
    const int64_t rows = out.view.shape[0] / 2;
    if (from->half == Half::kSecond) out.view.data = out.view.row(rows);
    out.view.shape = {rows, out.view.shape[1]};
  }
  out.added = gguf_added(architecture_, name);
  if (out.view.shape.rank() == 1 && is_one_row_in_gguf(name)) out.view.shape = {1, out.view.shape[0]};
  if (architecture_.delta_nets) CHORAL_RETURN_IF_ERROR(find_of_delta_net(name, out));
  if (architecture_.mamba2) reshape_of_mamba2(name, out);
  if (!architecture_.interleaved_qk) return out;
  const bool is_query = name.find(".self_attn.q_proj.") != std::string_view::npos;
  const bool is_key = name.find(".self_attn.k_proj.") != std::string_view::npos;
  if (is_query || is_key) {
    CHORAL_TRY(out.row_order, row_order(*tensor, is_query ? query_heads_ : key_heads_));
  }
  return out;
}

}  // namespace

Result<std::shared_ptr<const Checkpoint>> open_gguf_checkpoint(std::shared_ptr<const GgufFile> file) {
  CHORAL_TRY(const GgufArchitecture architecture, gguf_architecture(*file));
  auto checkpoint = std::make_shared<GgufCheckpoint>(std::move(file), architecture);
  CHORAL_RETURN_IF_ERROR(checkpoint->index_names());
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

}  // namespace choral::io
