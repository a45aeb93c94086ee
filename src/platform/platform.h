// A kind of device, as it stands in the machine: its name, how well it fits, what it does to a configuration, and how it is
// opened. Immutable and thread-safe. The CPU is always there; others come from plug-ins (plugin_platform.h). platform_choice.h
// decides.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/patch.h"
#include "platform/scheme_overrides.h"
#include "platform/session.h"

namespace choral::platform {

// What the user asked for, before anything is built. A platform may change it, or refuse it with a reason.
struct PlatformConfig {
  int threads = 1;
  int max_num_seqs = 0;
  int max_num_batched_tokens = 0;
  int max_model_len = 0;     // 0: the model's
  std::string architecture;  // "LlamaForCausalLM"
  std::string dtype = "auto";
  std::string quantization = "auto";  // as --quantization spells it, or a scheme of scheme_overrides()
  std::string kv_cache_dtype = "auto";
  std::string worker_cls = "auto";  // "worker", or a name of worker_classes()
  std::string scheduler = "fcfs";
  std::string attention_backend = "auto";  // auto | device | host
  std::string custom_ops = "all";          // as --custom-ops spells it
  bool strict = false;                     // an operator that falls back is an error
  std::vector<Patch> op_patches = {};      // of registry "op": for open()
};

class Platform {
 public:
  virtual ~Platform() = default;
  virtual std::string_view name() const = 0;  // "cpu"
  virtual Device device() const = 0;
  virtual std::string description() const = 0;  // for people: what stands behind the name
  virtual Status check_and_update_config(PlatformConfig&) const { return {}; }
  // Worker classes that it brings, by name.
  virtual std::vector<std::string> worker_classes() const { return {}; }
  virtual std::vector<Patch> patches() const { return {}; }
  // Quantisation schemes that it brings.
  virtual SchemeOverrides scheme_overrides() const { return {}; }
  // `pool` is the worker's and outlives the session.
  virtual Result<std::unique_ptr<Session>> open(ThreadPool& pool, const PlatformConfig& config) const = 0;
};

const Platform& cpu_platform();

}  // namespace choral::platform
