#include "io/checkpoint_writer.h"

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/printable.h"
#include "base/system_error.h"

namespace choral::io {

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::create(const std::filesystem::path& folder,
                                                                   std::vector<TensorToCome> tensors, int64_t max_shard_bytes) {
  std::set<std::string_view> seen;
  for (const auto& tensor : tensors) {
    if (!seen.insert(tensor.name).second) return invalid_argument("tensor {} stands twice", printable(tensor.name));
  }
  std::unique_ptr<CheckpointWriter> writer(new CheckpointWriter);
  writer->folder_ = folder;
  writer->tensors_ = std::move(tensors);
  writer->plan(max_shard_bytes);
  return writer;
}

void CheckpointWriter::plan(int64_t max_shard_bytes) {
  int64_t in_shard = 0;
  shards_.push_back({});
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const int64_t size = tensors_[i].size_bytes();
    if (in_shard > 0 && in_shard + size > max_shard_bytes) {
      shards_.push_back({{}, i, i});
      in_shard = 0;
    }
    shards_.back().end = i + 1;
    in_shard += size;
    total_bytes_ += size;
  }
  for (size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].name =
        shards_.size() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards_.size());
  }
}

Status CheckpointWriter::append(std::span<const std::byte> data) {
  CHORAL_CHECK(next_ < tensors_.size() && std::ssize(data) == tensors_[next_].size_bytes(), "the next tensor, whole");
  const Shard& shard = shards_[shard_];
  if (file_ == nullptr) {
    const auto own = std::span(tensors_).subspan(shard.begin, shard.end - shard.begin);
    CHORAL_TRY(file_, SafetensorsWriter::create(folder_ / shard.name, own, {{"format", "pt"}}));
  }
  CHORAL_RETURN_IF_ERROR(file_->append(data));
  if (++next_ < shard.end) return {};
  CHORAL_RETURN_IF_ERROR(file_->finish());
  file_.reset();
  ++shard_;
  return {};
}

Status CheckpointWriter::finish() {
  CHORAL_CHECK(next_ == tensors_.size(), "every tensor was given");
  return shards_.size() == 1 ? Status() : write_index();
}

Status CheckpointWriter::write_index() const {
  nlohmann::ordered_json index{{"metadata", {{"total_size", total_bytes_}}}, {"weight_map", nlohmann::ordered_json::object()}};
  for (const Shard& shard : shards_) {
    for (size_t i = shard.begin; i < shard.end; ++i) index["weight_map"][tensors_[i].name] = shard.name;
  }
  const auto path = folder_ / "model.safetensors.index.json";
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << index.dump(2) << '\n';  // the names were written into the shards' headers, so they are UTF-8
  file.close();
  return file ? Status() : system_error(errno, "cannot write " + path.string());
}

}  // namespace choral::io
