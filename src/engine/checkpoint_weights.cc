#include "engine/checkpoint_weights.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace choral::engine {
namespace {

// 4 KiB of a tensor, from its first byte to its last: a model is told from others before it is read.
constexpr size_t kSampleBytes = 1024, kSamples = 4;

void add_samples(std::span<const std::byte> bytes, Sha256& hash) {
  if (bytes.size() <= kSampleBytes * kSamples) return hash.update(bytes);
  const size_t last = bytes.size() - kSampleBytes;
  for (size_t i = 0; i < kSamples; ++i) hash.update(bytes.subspan(last / (kSamples - 1) * i, kSampleBytes));
}

void add_tensor(const TensorView& tensor, Sha256& hash) {
  add_samples({tensor.data, static_cast<size_t>(tensor.size_bytes())}, hash);
}

Sha256Digest digest_of(const std::string& name, const io::SourceTensor& tensor) {
  Sha256 hash;
  const std::string told = fmt::format("{} {} {}\n", name, dtype_name(tensor.view.dtype), tensor.view.shape.to_string());
  hash.update(std::as_bytes(std::span(told)));
  if (tensor.parts.empty()) add_tensor(tensor.view, hash);
  for (const auto& part : tensor.parts) add_tensor(part.view, hash);
  return hash.finish();
}

}  // namespace

Result<io::SourceTensor> CheckpointWeights::take_any_of(const std::string& name, std::span<const Shape> shapes) {
  CHORAL_TRY(auto tensor, checkpoint_->find(name));
  if (std::find(shapes.begin(), shapes.end(), tensor.view.shape) == shapes.end()) {
    std::vector<std::string> wanted;
    for (const Shape& shape : shapes) wanted.push_back(shape.to_string());
    return corrupt("{}: tensor {} has shape {}, but the model's configuration needs {}", checkpoint_->description(), name,
                   tensor.view.shape.to_string(), fmt::join(wanted, " or "));
  }
  if (!taken_.contains(name)) taken_.emplace(name, digest_of(name, tensor));
  return tensor;
}

std::string CheckpointWeights::digest() const {
  Sha256 hash;
  for (const auto& [name, digest] : taken_) hash.update(std::as_bytes(std::span(digest)));
  return to_hex(hash.finish());
}

std::vector<std::string> CheckpointWeights::untaken() const {
  std::vector<std::string> names;
  for (const auto& name : checkpoint_->names()) {
    const auto begins = [&name](const std::string& beginning) { return name.starts_with(beginning); };
    if (!taken_.contains(name) && std::none_of(ignored_.begin(), ignored_.end(), begins)) names.push_back(name);
  }
  return names;
}

}  // namespace choral::engine
