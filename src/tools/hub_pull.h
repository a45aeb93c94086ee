// Fetches a model or an adapter from a hub that speaks Hugging Face's protocol, into the cache that huggingface_hub keeps: each
// client finds what the other fetched, goes on where it stopped, and waits for its locks. What the hub says is untrusted: names
// are checked before they become paths, sizes are limits, and every file is kept only if its hash is the one that the listing
// has. Blocks; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace choral::tools {

struct HubProgress {
  std::string_view doing;  // "model.safetensors", or what is waited for
  int64_t done_bytes = 0;
  int64_t all_bytes = 0;  // 0: not known yet
};

struct HubPullOptions {
  std::string name;                // org/name, or org/name@revision
  std::vector<std::string> files;  // of the repository, or the one GGUF file with this in its name; empty: what is read of it
  std::string endpoint;            // "https://host", without a slash at its end
  std::string token;               // for private and gated repositories; empty: none
  std::filesystem::path cache;     // "…/hub"
  std::function<void(const HubProgress&)> on_progress;
};

struct HubPulled {
  std::filesystem::path path;  // of the snapshot, or of its only file when that is GGUF
  std::string commit;
  size_t files = 0;
  int64_t all_bytes = 0;
  int64_t fetched_bytes = 0;  // the others were there
};

// HF_ENDPOINT, HF_TOKEN or the file that HF_TOKEN_PATH names, HF_HUB_CACHE or HF_HOME. An error under HF_HUB_OFFLINE.
Result<HubPullOptions> hub_options_of_environment();

Result<HubPulled> pull_from_hub(const HubPullOptions& options);

}  // namespace choral::tools
