// EXAONE 4: what attention and MLP give is normed, not what they take; each head of q and k is normed before the rotation. Where
// some layers have a window, the others do not turn q and k.
#include "base/printable.h"
#include "models/families.h"

namespace choral::models {
namespace {

// The pattern is a period, whose last layer has no window, or a word of L and G, which is repeated, but ends in G.
Result<std::vector<int64_t>> read_exaone_windows(const io::ConfigMap& config, int64_t layers, int64_t window) {
  if (config.contains("layer_types")) return read_layer_windows(config, layers, window);
  std::vector<int64_t> windows(layers, 0);
  if (window == 0) return windows;
  const io::ConfigValue* pattern = config.find("sliding_window_pattern");
  std::string word = pattern != nullptr && pattern->if_string() != nullptr ? *pattern->if_string() : "";
  const bool is_word = !word.empty();
  if (!is_word) {
    CHORAL_TRY(const int64_t period, config.get_int_or("sliding_window_pattern", 4, {1, 4096}));
    word = std::string(period - 1, 'L') + "G";
  }
  if (word.find_first_not_of("LG") != std::string::npos) {
    return unsupported("{} is '{}'; a number, or L and G, are known", config.path_of("sliding_window_pattern"), printable(word));
  }
  for (int64_t i = 0; i < layers; ++i) windows[i] = word[i % word.size()] == 'L' ? window : 0;
  if (is_word) windows.back() = 0;
  return windows;
}

}  // namespace

Result<std::unique_ptr<Model>> make_exaone4(const io::ConfigMap& config, const ModelOptions& options) {
  CHORAL_TRY(auto spec, read_decoder_spec(config, options));
  spec.pre_norms = false;
  spec.post_norms = true;
  spec.qk_norm = layers::QkNorm::kEachHead;
  CHORAL_TRY(const int64_t window, config.get_int_or("sliding_window", 0, io::kPositive));
  CHORAL_TRY(spec.sliding_window, read_exaone_windows(config, spec.layers, window));
  if (window > 0) {
    for (const int64_t of_layer : spec.sliding_window) spec.rotates.push_back(of_layer > 0);
  }
  return make_decoder(std::move(spec), options);
}

}  // namespace choral::models
