// Gemma 4's decoder, whose layers differ from each other: those with a window and those without have heads of their own sizes;
// the last ones look at the keys and values of an earlier layer; each gets a part of a second embedding, and is scaled as a
// whole.
//   h += norm(attention(norm(h)));   h += norm(m);   h += norm(P·(act(G·h) ∘ e));   h *= scale
//   m = mlp(norm(h)), or norm(mlp(norm(h))) + norm(experts(norm(h))), where the router has a row of h of its own
//   e = (norm(M·h₀/√hidden) + √width·table[token]) / √2, the layer's part of it; h₀: what the layers begin with
#pragma once

#include <optional>
#include <vector>

#include "models/decoder.h"

namespace choral::models {

// The heads of layers of one kind.
struct Gemma4Heads {
  int64_t head_dim = 0;
  int64_t kv_heads = 0;
};

struct Gemma4Spec {
  DecoderSpec decoder;           // sizes, windows, rotary of both kinds, experts; its head_dim and kv_heads are no layer's
  Gemma4Heads windowed, full;    // of layers with a window, and without
  int64_t kv_layers = 0;         // the first so many have keys and values; those behind them look at the last of their kind
  bool keys_are_values = false;  // in layers without a window
  bool wide_shared_mlp = false;  // layers without keys have an MLP of twice the width
  int64_t per_layer_width = 0;   // of a layer's part of the second embedding; 0: there is none
};

Result<std::unique_ptr<Model>> make_gemma4_model(Gemma4Spec spec, const ModelOptions& options);

}  // namespace choral::models
