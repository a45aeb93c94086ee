// Linear layers as they were packed, beyond the load that packed them: kept for a later start, or found again instead of being
// packed. A layer is known by what it is made of (layer_key) and its place in the order of the layers, which is the same in every
// load of one model. Layers of matrices that cannot be kept (of devices) are packed each time.
// quant knows what a layer is; what becomes of it is its owner's (engine/packed_cache.h). Used by one thread while a model loads.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/section_file.h"
#include "quant/scheme.h"

namespace choral::quant {

class PackedLayers {
 public:
  // What an earlier load kept; `owner` keeps the sections. None: every layer is packed, and kept.
  PackedLayers() = default;
  PackedLayers(std::span<const io::Section> sections, std::shared_ptr<const void> owner)
      : found_(sections), owner_(std::move(owner)), is_found_(true) {}

  // The next layer, if it is this one, and fits. Sections that contradict themselves are fault(), and no further layer is taken.
  std::optional<PackedLayer> take(const std::string& key, const LinearShape& shape);
  // A layer that was packed. Its matrices live as long as sections() is used.
  void keep(const std::string& key, const PackedLayer& layer);

  bool is_found() const { return is_found_; }
  const Status& fault() const { return fault_; }
  int64_t taken_bytes() const { return taken_bytes_; }             // of matrices that were found
  std::span<const io::Section> sections() const { return kept_; }  // of all layers that were kept
  int64_t kept_bytes() const { return kept_bytes_; }

 private:
  Result<PackedLayer> read_next(const LinearShape& shape);

  std::span<const io::Section> found_;
  std::shared_ptr<const void> owner_;
  bool is_found_ = false;
  size_t next_ = 0;
  Status fault_;
  int64_t taken_bytes_ = 0;

  std::vector<io::Section> kept_;
  std::vector<std::unique_ptr<std::vector<float>>> biases_;  // that sections are views of
  int64_t kept_bytes_ = 0;
};

// All that decides a layer's bytes but the files and what is asked of all layers: its scheme, the tensors it is made of, its
// shape, and the rows that are held.
std::string layer_key(const LinearShape& shape, const std::string& scheme);

}  // namespace choral::quant
