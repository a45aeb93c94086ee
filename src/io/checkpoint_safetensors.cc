#include <algorithm>
#include <map>

#include "base/printable.h"
#include "io/checkpoint_sources.h"
#include "io/config_map.h"
#include "io/safetensors.h"
#include "io/stacked_experts.h"
#include "io/text_half.h"

namespace choral::io {
namespace {

constexpr size_t kMaxShards = 4096;
constexpr size_t kMaxNames = 1'000'000;

// One file, or several that together hold each name once. What they have of all experts as one tensor is known by the names of
// each expert's part.
class SafetensorsCheckpoint : public Checkpoint {
 public:
  struct File {
    std::shared_ptr<const SafetensorsFile> file;
    std::string prefix = {};  // of the names of its tensors here
  };
  SafetensorsCheckpoint(std::vector<File> files, std::string where) : files_(std::move(files)), where_(std::move(where)) {}

  // kCorrupt when two files hold the same name.
  Status index_names();

  Result<SourceTensor> find(std::string_view name) const override {
    const Source* from = source(name);
    if (from == nullptr) return missing(name, where_);
    CHORAL_TRY(TensorView view, from->file->find(from->entry->name));
    if (from->expert == kWhole) return SourceTensor{view, {}};
    const bool turns = view.dtype == DType::kF32 || view.dtype == DType::kF16 || view.dtype == DType::kBF16;
    if (from->stack->transposed && !turns) {
      return unsupported("'{}' is stored as {}; float32, float16 and bfloat16 are read in this form",
                         printable(from->entry->name), dtype_name(view.dtype));
    }
    view.shape = from->stack->shape;
    view.data += (from->expert * from->stack->parts() + from->part) * view.size_bytes();
    return SourceTensor{.view = view, .row_order = {}, .transposed = from->stack->transposed};
  }
  bool contains(std::string_view name) const override { return source(name) != nullptr; }
  void release(std::string_view name) const override {
    const Source* from = source(name);
    if (from == nullptr) return;
    // Experts are read one after the other.
    const bool last =
        from->expert != kWhole && from->expert + 1 == from->stack->experts && from->part + 1 == from->stack->parts();
    if (from->expert == kWhole || last) from->file->release(from->entry->name);
  }
  Status check_unchanged() const override {
    for (const auto& [file, prefix] : files_) CHORAL_RETURN_IF_ERROR(file->file().check_unchanged());
    return {};
  }
  std::vector<FileIdentity> identity() const override {
    std::vector<FileIdentity> all;
    for (const auto& [file, prefix] : files_) {
      if (!add_identity(file->file(), all)) return {};
    }
    return all;
  }
  std::string description() const override {
    return fmt::format("safetensors, {} file{}, {} tensors, {:.1f} MiB", files_.size(), files_.size() == 1 ? "" : "s",
                       names_.size(), static_cast<double>(total_bytes_) / (1 << 20));
  }

 private:
  // What a name stands for: a tensor of a file, or one expert's part of it.
  struct Source {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
    std::shared_ptr<const StackedExperts> stack = nullptr;
    int64_t expert = kWhole, part = 0;
  };
  static constexpr int64_t kWhole = -1;

  const Source* source(std::string_view name) const {
    const auto at = std::lower_bound(names_.begin(), names_.end(), name);
    return at != names_.end() && *at == name ? &sources_[at - names_.begin()] : nullptr;
  }

  std::vector<File> files_;
  std::vector<Source> sources_;  // beside names_
  std::string where_;
};

Status SafetensorsCheckpoint::index_names() {
  std::vector<std::pair<std::string, Source>> all;
  const auto in_files = [&](std::string_view name) {
    return std::any_of(files_.begin(), files_.end(), [&](const File& one) { return one.file->contains(name); });
  };
  for (const auto& [file, prefix] : files_) {
    for (const auto& entry : file->entries()) {
      total_bytes_ += entry.end - entry.begin;
      if (!prefix.empty()) {
        all.emplace_back(prefix + entry.name, Source{file.get(), &entry});
        continue;
      }
      CHORAL_TRY(auto stacked, stacked_experts(entry.name, entry.shape, in_files).while_(file->file().path()));
      if (!stacked) {
        all.emplace_back(router_name(text_half_name(entry.name)), Source{file.get(), &entry});
        continue;
      }
      const auto stack = std::make_shared<const StackedExperts>(std::move(*stacked));
      if (all.size() + static_cast<size_t>(stack->experts * stack->parts()) > kMaxNames) {
        return too_large("{} holds more than {} tensors", where_, kMaxNames);
      }
      for (int64_t i = 0; i < stack->experts * stack->parts(); ++i) {
        const int64_t expert = i / stack->parts(), part = i % stack->parts();
        all.emplace_back(text_half_name(stack->name(expert, part)), Source{file.get(), &entry, stack, expert, part});
      }
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [name, from] : all) {
    if (!names_.empty() && names_.back() == name) {
      return corrupt("the tensor '{}' stands in {} and in {}", printable(name), sources_.back().file->file().path(),
                     from.file->file().path());
    }
    names_.push_back(std::move(name));
    sources_.push_back(std::move(from));
  }
  return {};
}

Result<std::shared_ptr<const Checkpoint>> make(std::vector<SafetensorsCheckpoint::File> files, const FilesBeside& beside,
                                               std::string where) {
  for (const auto& [prefix, path] : beside) {
    CHORAL_TRY(auto file, SafetensorsFile::open(path));
    files.push_back({std::move(file), prefix});
  }
  auto checkpoint = std::make_shared<SafetensorsCheckpoint>(std::move(files), std::move(where));
  CHORAL_RETURN_IF_ERROR(checkpoint->index_names());
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

// A shard stands beside its index: a plain name, no way out of the directory.
bool is_shard_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  };
  return name.size() <= 255 && name.ends_with(".safetensors") && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), allowed);
}

// Names of one side that the other lacks, the first three in words.
class Difference {
 public:
  void add(std::string_view name) {
    if (count_++ < 3) shown_ += fmt::format("{}'{}'", shown_.empty() ? "" : ", ", printable(name));
  }
  bool empty() const { return count_ == 0; }
  std::string text() const { return count_ > 3 ? fmt::format("{} and {} more", shown_, count_ - 3) : shown_; }

 private:
  size_t count_ = 0;
  std::string shown_;
};

using ShardTensors = std::map<std::string, std::vector<std::string>, std::less<>>;  // shard -> its tensors by the index, sorted

Result<ShardTensors> read_index(const std::filesystem::path& index) {
  CHORAL_TRY(const ConfigMap root, ConfigMap::read_json_file(index));
  CHORAL_TRY(const ConfigMap weight_map, root.get_map("weight_map"));
  ShardTensors shards;
  for (const auto& member : weight_map.members()) {
    CHORAL_TRY(const std::string shard, weight_map.get_string(member.key));
    if (!is_shard_name(shard)) {
      return corrupt("{} is '{}'; a shard is a .safetensors file beside the index, of letters, digits, '.', '_' and '-'",
                     weight_map.path_of(member.key), printable(shard));
    }
    shards[shard].push_back(member.key);
    if (shards.size() > kMaxShards) return too_large("{} names more than {} shards", index.string(), kMaxShards);
  }
  if (shards.empty()) return corrupt("{}: weight_map names no tensor", index.string());
  for (auto& [shard, tensors] : shards) std::sort(tensors.begin(), tensors.end());
  return shards;
}

Status compare(const std::vector<std::string>& indexed, const SafetensorsFile& shard, const std::string& index) {
  Difference missing, extra;
  for (const auto& name : indexed) {
    if (!shard.contains(name)) missing.add(name);
  }
  for (const auto& entry : shard.entries()) {
    if (!std::binary_search(indexed.begin(), indexed.end(), entry.name)) extra.add(entry.name);
  }
  const std::string advice = "index and shards are not of one download; fetch the model again";
  if (!missing.empty())
    return corrupt("{} lacks {}, which {} places there; {}", shard.file().path(), missing.text(), index, advice);
  if (!extra.empty())
    return corrupt("{} holds {}, which {} does not place there; {}", shard.file().path(), extra.text(), index, advice);
  return {};
}

}  // namespace

Result<std::shared_ptr<const Checkpoint>> open_safetensors_checkpoint(const std::filesystem::path& path,
                                                                      const FilesBeside& beside) {
  CHORAL_TRY(auto file, SafetensorsFile::open(path));
  return make({{std::move(file)}}, beside, path.string());
}

Result<std::shared_ptr<const Checkpoint>> open_sharded_checkpoint(const std::filesystem::path& index, const FilesBeside& beside) {
  CHORAL_TRY(const ShardTensors shards, read_index(index));
  std::vector<SafetensorsCheckpoint::File> files;
  for (const auto& [shard, tensors] : shards) {
    CHORAL_TRY(auto file,
               SafetensorsFile::open(index.parent_path() / shard).while_(fmt::format("a shard of {}", index.string())));
    CHORAL_RETURN_IF_ERROR(compare(tensors, *file, index.string()));
    files.push_back({std::move(file)});
  }
  return make(std::move(files), beside, index.parent_path().string());
}

}  // namespace choral::io
