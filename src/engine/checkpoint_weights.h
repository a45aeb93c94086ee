// A checkpoint as a source of weights. It checks every shape and remembers what was taken, so that tensors that were never taken
// can be named.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "quant/weight_source.h"

namespace choral::engine {

class CheckpointWeights : public quant::WeightSource {
 public:
  CheckpointWeights(std::shared_ptr<const io::Checkpoint> checkpoint, const quant::WeightRequest& request)
      : checkpoint_(std::move(checkpoint)), request_(request) {}

  bool contains(const std::string& name) const override { return checkpoint_->contains(name); }
  Result<io::SourceTensor> take_any_of(const std::string& name, std::span<const Shape> shapes) override;
  void release(const std::string& name) override { checkpoint_->release(name); }
  const quant::WeightRequest& request() const override { return request_; }
  Status check_unchanged() const override { return checkpoint_->check_unchanged(); }
  void ignore(const std::string& beginning) override { ignored_.push_back(beginning); }
  std::shared_ptr<const io::Checkpoint> checkpoint() const override { return checkpoint_; }

  // What was taken, by name.
  const std::map<std::string, Sha256Digest>& taken() const { return taken_; }
  // What another source of the same checkpoint gave counts as given by this one. False: it is another tensor there.
  bool add_taken(const std::string& name, const Sha256Digest& digest) {
    return taken_.try_emplace(name, digest).first->second == digest;
  }
  // Tensors of the file that no layer took or ignored; sorted.
  std::vector<std::string> untaken() const;
  // SHA-256 in hex over the tensors that were taken: their names, types, shapes, and bytes from all over each, which are all of a
  // small one's. Another model has another; one that differs in single numbers alone may have the same.
  std::string digest() const override;

 private:
  std::shared_ptr<const io::Checkpoint> checkpoint_;
  quant::WeightRequest request_;
  std::map<std::string, Sha256Digest> taken_;  // by name, the digest of each
  std::vector<std::string> ignored_;           // beginnings of names
};

}  // namespace choral::engine
