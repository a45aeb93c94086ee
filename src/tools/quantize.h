// Writes a quantised checkpoint from a float one: what `choral quantize` does. The checkpoint answers to the bit as the float one
// does with --quantization of the same name. Weights come and go one at a time: memory holds one of them, and what it becomes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "choral/llm.h"

namespace choral::tools {

// What w8a8 finds its scales of activations on: the model reads it before it is quantised, for which it must fit into memory.
struct CalibrationText {
  std::string text = {};   // UTF-8; empty: none
  std::string name = {};   // for messages
  int window_tokens = 0;   // 0: 512, or the model's context where that is shorter
  int64_t max_tokens = 0;  // the first so many of the text; 0: all
};

struct QuantizeOptions {
  std::string model;                          // a folder, or a .safetensors file with its config.json beside it, or org/name
  std::string out;                            // a folder that is not there or is empty; of gguf a file that is not there
  std::string scheme;                         // "w8a8_dynamic": quant/written/written_scheme.h has all
  std::string format = "compressed-tensors";  // or "modelslim", "gguf"
  std::optional<CalibrationText> calibration = {};  // of scheme w8a8, which needs one
  std::vector<std::string> ignore = {};             // patterns of layers that stay float: regular expressions of whole names
  bool force = false;                               // `out` may hold a model, which is replaced
  int threads = 0;                                  // 0: one per physical core
  int64_t max_shard_bytes = 5'000'000'000;
  // Phases of a load, then "calibrate", all of these for w8a8 only; "write" with the tensor's name.
  std::function<void(const LoadProgress&)> on_progress = {};
};

struct QuantizeReport {
  int64_t quantised_layers = 0, float_layers = 0;  // linear ones
  int64_t bytes_before = 0, bytes_after = 0;       // of all tensors
  size_t weight_files = 0;
  int64_t calibration_tokens = 0;
};

class CheckpointQuantizer {
 public:
  // All that can be refused before a byte is written is refused here.
  static Result<std::unique_ptr<CheckpointQuantizer>> open(const QuantizeOptions& options);
  virtual ~CheckpointQuantizer() = default;

  // Once. `out` is there when this succeeds and as it was when it fails.
  virtual Result<QuantizeReport> write() = 0;
  // Any thread: the process is about to end.
  virtual void remove_partial() = 0;
};

}  // namespace choral::tools
