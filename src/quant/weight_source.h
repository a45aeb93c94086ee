// Where layers pull their stored tensors from: a checkpoint, or random weights for a bench. The source checks shapes and
// remembers what was taken, so that a tensor nobody asked for can be named after loading.
// Used by one thread while a model loads.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "io/checkpoint.h"
#include "kernels/gemm/pack_spec.h"

namespace choral::quant {

// What the user wants of the weights' type (--dtype).
struct WeightRequest {
  bool as_stored = true;            // auto: each tensor keeps its own type
  DType convert_to = DType::kBF16;  // else every weight, vectors included, is rounded to this
  // How weights meet x where the checkpoint leaves it open (--activations).
  kernels::Activations activations = kernels::Activations::kFull;
};

class PackedLayers;

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual bool contains(const std::string& name) const = 0;
  // The tensor, whose shape must be one of `shapes`; an error names file, tensor, all shapes. The view lives until release().
  virtual Result<io::SourceTensor> take_any_of(const std::string& name, std::span<const Shape> shapes) = 0;
  Result<io::SourceTensor> take(const std::string& name, const Shape& shape) { return take_any_of(name, {&shape, 1}); }
  // The tensor was packed: its pages may go.
  virtual void release(const std::string& name) = 0;
  virtual const WeightRequest& request() const = 0;
  // An error when what was taken is not what the source held at first: a file that was written to meanwhile.
  virtual Status check_unchanged() const { return {}; }
  // Tensors whose names begin so have no part in the model, though they lie among its layers': nobody takes them.
  virtual void ignore(const std::string& /*beginning*/) {}
  // SHA-256 in hex of what was taken, by samples of it; empty of a source without files.
  virtual std::string digest() const { return {}; }
  // What views point into, for who reads them after loading and keeps this; null: they end with the source.
  virtual std::shared_ptr<const io::Checkpoint> checkpoint() const { return nullptr; }

  // Layers that are kept over the load (packed_layers.h), which lives as long as this; null: each is packed, and none kept.
  void set_packed_layers(PackedLayers* layers) { packed_layers_ = layers; }
  PackedLayers* packed_layers() const { return packed_layers_; }

  // A whole vector (norm weight, bias) as float, rounded as the request says, plus `plus`: take, read, release.
  // [shape's elements], which the source may have as `rows` of a matrix.
  Status read_vector(const std::string& name, std::span<float> out, float plus = 0, int64_t rows = 1);

 private:
  PackedLayers* packed_layers_ = nullptr;
};

// The elements of `tensor` in packed row order as float, rounded as the request says, plus `plus`.
void read_vector(const io::SourceTensor& tensor, const WeightRequest& request, std::span<float> out, float plus = 0);

}  // namespace choral::quant
