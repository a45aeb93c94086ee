#include "lora/peft/adapters_in_root.h"

#include <algorithm>
#include <filesystem>

#include "base/system_error.h"
#include "lora/peft/peft_helper.h"

namespace choral::lora {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFound = 10'000;

bool holds_adapter(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "adapter_config.json", ignored) || gguf_adapter_path(folder).has_value();
}

Status look_into(const fs::path& folder, const std::string& prefix, std::vector<FoundAdapter>& found) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) return prefix.empty() ? system_error(error.value(), "--adapter-root: cannot read " + folder.string()) : Status();
  for (const fs::directory_iterator end; !error && entries != end; entries.increment(error)) {
    std::error_code ignored;
    const std::string name = entries->path().filename().string();
    if (name.starts_with('.') || !entries->is_directory(ignored)) continue;
    if (found.size() >= kMaxFound) return too_large("--adapter-root {}: more than {} adapters", folder.string(), kMaxFound);
    if (holds_adapter(entries->path())) {
      found.push_back({prefix + name, entries->path().string()});
    } else if (prefix.empty()) {
      CHORAL_RETURN_IF_ERROR(look_into(entries->path(), name + "/", found));
    }
  }
  return {};
}

}  // namespace

Result<std::vector<FoundAdapter>> adapters_in_root(const std::string& root) {
  std::vector<FoundAdapter> found;
  CHORAL_RETURN_IF_ERROR(look_into(root, "", found));
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return found;
}

}  // namespace choral::lora
