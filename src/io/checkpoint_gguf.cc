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
    if (from->expert == kWhole || from->expert + 1 == from->tensor->shape[0]) file_->release(from->tensor->name);
  }
  Status check_unchanged() const override { return file_->file().check_unchanged(); }
  std::string description() const override {
    return fmt::format("GGUF v{}, {}, {} tensors, {:.1f} MiB", file_->version(), architecture_.name, names_.size(),
                       static_cast<double>(total_bytes_) / (1 << 20));
  }

 private:
  // What a name stands for: a tensor, or one expert's part of a tensor of all of them.
  struct Source {
    const GgufTensor* tensor = nullptr;
    int64_t expert = kWhole;
    auto operator<=>(const Source&) const = default;
  };
  static constexpr int64_t kWhole = -1;

  const Source* source(std::string_view name) const {
    const auto at = std::lower_bound(names_.begin(), names_.end(), name);
    return at != names_.end() && *at == name ? &sources_[at - names_.begin()] : nullptr;
  }
  Result<std::vector<int32_t>> row_order(const GgufTensor& tensor, int64_t heads) const;

  std::shared_ptr<const GgufFile> file_;
  GgufArchitecture architecture_;
  int64_t query_heads_ = 0, key_heads_ = 0;
  std::vector<Source> sources_;  // beside names_
};

Status GgufCheckpoint::index_names() {
  const ConfigMap& metadata = file_->metadata();
  const std::string prefix = std::string(architecture_.name) + ".attention.head_count";
  CHORAL_TRY(query_heads_, metadata.get_int(prefix, kPositive));
  CHORAL_TRY(key_heads_, metadata.get_int_or(prefix + "_kv", query_heads_, kPositive));

  constexpr int64_t kMostExperts = 4096;
  std::vector<std::pair<std::string, Source>> all;
  for (const auto& tensor : file_->tensors()) {
    std::string name = hf_tensor_name(architecture_, tensor.name);
    total_bytes_ += tensor.size_bytes;
    const size_t star = name.find('*');
    if (star == std::string::npos || name == tensor.name) {
      all.emplace_back(std::move(name), Source{&tensor});
      continue;
    }
    if (tensor.shape.rank() != 3 || tensor.shape[0] > kMostExperts) {
      return corrupt("{}: '{}' has shape {}; that of at most {} experts is wanted: [experts, rows, columns]",
                     file_->file().path(), printable(tensor.name), tensor.shape.to_string(), kMostExperts);
    }
    for (int64_t e = 0; e < tensor.shape[0]; ++e) {
      all.emplace_back(std::string(name).replace(star, 1, std::to_string(e)), Source{&tensor, e});
    }
  }
  std::sort(all.begin(), all.end());
  for (auto& [name, from] : all) {
    if (!names_.empty() && names_.back() == name) {
      return corrupt("{}: two tensors are '{}' by their Hugging Face name", file_->file().path(), printable(name));
    }
    names_.push_back(std::move(name));
    sources_.push_back(from);
  }
  return {};
}

Result<std::vector<int32_t>> GgufCheckpoint::row_order(const GgufTensor& tensor, int64_t heads) const {
  const int64_t rows = tensor.shape[0];
  if (rows > INT32_MAX || rows % (2 * heads) != 0) {
    return corrupt("{}: '{}' has {} rows, which is no even number for each of {} heads", file_->file().path(),
                   printable(tensor.name), rows, heads);
  }
  return half_split_order(rows, heads);
}

Result<SourceTensor> GgufCheckpoint::find(std::string_view name) const {
  const Source* from = source(name);
  if (from == nullptr) return missing(name, file_->file().path());
  const GgufTensor* tensor = from->tensor;
  SourceTensor out;
  CHORAL_TRY(out.view, file_->find(tensor->name));
  if (from->expert != kWhole) {
    out.view.shape = {tensor->shape[1], tensor->shape[2]};
    out.view.data += from->expert * out.view.size_bytes();
  }
  out.added = gguf_added(architecture_, name);
  if (!architecture_.interleaved_qk) return out;
  const bool is_query = name.find(".self_attn.q_proj.") != std::string_view::npos;
  const bool is_key = name.find(".self_attn.k_proj.") != std::string_view::npos;
  if (is_query || is_key) {
    CHORAL_TRY(out.row_order, row_order(*tensor, is_query ? query_heads_ : key_heads_));
  }
  return out;
}

}  // namespace

Result<std::shared_ptr<const Checkpoint>> open_gguf_checkpoint(const std::filesystem::path& path) {
  CHORAL_TRY(auto file, GgufFile::open(path));
  CHORAL_TRY(const GgufArchitecture architecture, gguf_architecture(*file));
  auto checkpoint = std::make_shared<GgufCheckpoint>(std::move(file), architecture);
  CHORAL_RETURN_IF_ERROR(checkpoint->index_names());
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

}  // namespace choral::io
