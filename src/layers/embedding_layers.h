// Dense layers that make an embedding of what was pooled of a text's hidden states; of most models there are none. Engine thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/linear.h"

namespace choral::layers {

class EmbeddingLayers {
 public:
  struct Spec {
    std::string prefix;
    int64_t in = 0, out = 0;
    bool bias = false;
    bool is_tanh = false;  // its activation; false: none
  };
  // One behind the other.
  EmbeddingLayers(Builder& builder, const std::vector<Spec>& specs);

  // Of what is pooled of a model whose states are `hidden` wide.
  int64_t size(int64_t hidden) const { return layers_.empty() ? hidden : layers_.back().linear->out_features(); }
  // `values` is on the host, before and after.
  void apply(const platform::Context& ctx, std::vector<float>& values) const;

 private:
  struct Layer {
    std::unique_ptr<LinearBase> linear;
    bool is_tanh;
  };
  std::vector<Layer> layers_;
};

}  // namespace choral::layers
