#include "platform/plugin/plugin_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/thread.h"
#include "platform/plugin/plugin_host.h"

namespace choral::platform {
namespace {

constexpr int64_t kMaxEntries = 4096;
constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMaxTextBytes = 1024;

Result<std::string> read_text(const char* text, size_t limit, std::string_view what) {
  if (text == nullptr) return corrupt("{} is null", what);
  const size_t size = strnlen(text, limit + 1);
  if (size > limit) return corrupt("{} is longer than {} bytes", what, limit);
  return plugin_text(text, limit + 1);
}

bool is_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), fits);
}

Status expect_count(int64_t count, const void* first, std::string_view what) {
  if (count < 0 || count > kMaxEntries) return corrupt("{} says {} entries; 0 to {} are possible", what, count, kMaxEntries);
  if (count > 0 && first == nullptr) return corrupt("{} says {} entries and has none", what, count);
  return {};
}

// `least` bytes: what the first minor version of it had.
template <class Struct>
Status expect_struct(const Struct* given, size_t least, std::string_view what) {
  if (given == nullptr) return corrupt("{} is null", what);
  const auto& header = given->header;
  if (header.abi_major != CHORAL_ABI_MAJOR) {
    return unsupported(
        "{} speaks version {}.{} of the plug-in interface, this host {}.{}; build it against this host's choral/plugin.h", what,
        header.abi_major, header.abi_minor, CHORAL_ABI_MAJOR, CHORAL_ABI_MINOR);
  }
  if (header.struct_size < least) {
    return corrupt("{} has {} bytes, but version {}.0 has {}; was it built against a damaged header?", what, header.struct_size,
                   CHORAL_ABI_MAJOR, least);
  }
  return {};
}

Status expect_functions(std::initializer_list<std::pair<bool, std::string_view>> functions, std::string_view what) {
  for (const auto& [given, name] : functions) {
    if (!given) return corrupt("{}.{} is null; every device needs it", what, name);
  }
  return {};
}

Status read_memory(PluginLibrary& plugin) {
  CHORAL_RETURN_IF_ERROR(expect_struct(plugin.api.memory, sizeof(choral_memory_api), "choral_memory_api"));
  plugin.memory = negotiated(*plugin.api.memory);
  const auto& m = plugin.memory;
  return expect_functions({{m.allocate != nullptr, "allocate"},
                           {m.release != nullptr, "release"},
                           {m.copy != nullptr, "copy"},
                           {m.stream_create != nullptr, "stream_create"},
                           {m.stream_destroy != nullptr, "stream_destroy"},
                           {m.stream_synchronize != nullptr, "stream_synchronize"}},
                          "choral_memory_api");
}

Status read_weights(PluginLibrary& plugin) {
  if (plugin.api.weights == nullptr) return {};
  CHORAL_RETURN_IF_ERROR(expect_struct(plugin.api.weights, sizeof(choral_weight_api), "choral_weight_api"));
  plugin.weights = negotiated(*plugin.api.weights);
  plugin.has_weights = true;
  return expect_functions({{plugin.weights.prepack != nullptr, "prepack"},
                           {plugin.weights.release != nullptr, "release"},
                           {plugin.weights.read_row != nullptr, "read_row"}},
                          "choral_weight_api");
}

Status read_fused_names(PluginLibrary& plugin) {
  CHORAL_RETURN_IF_ERROR(expect_count(plugin.api.fused_op_count, plugin.api.fused_op_names, "fused_op_names"));
  for (int64_t i = 0; i < plugin.api.fused_op_count; ++i) {
    CHORAL_TRY(auto name, read_text(plugin.api.fused_op_names[i], kMaxNameBytes, "a fused operator's name"));
    plugin.fused_op_names.push_back(std::move(name));
  }
  if (!plugin.fused_op_names.empty() && plugin.api.load_fused_ops == nullptr) {
    return corrupt("it names fused operators, but load_fused_ops is null");
  }
  return {};
}

Status read_workers(PluginLibrary& plugin) {
  const auto* first = plugin.api.workers;
  CHORAL_RETURN_IF_ERROR(expect_count(plugin.api.worker_count, first, "workers"));
  for (int64_t i = 0; i < plugin.api.worker_count; ++i) {
    if (i == 0) CHORAL_RETURN_IF_ERROR(expect_struct(first, sizeof(choral_worker_class), "choral_worker_class"));
    const auto worker = element(first, i);
    CHORAL_RETURN_IF_ERROR(read_text(worker.name, kMaxNameBytes, "a worker class's name").status());
    plugin.workers.push_back(worker);
  }
  return {};
}

Status read_patches(PluginLibrary& plugin) {
  const auto* first = plugin.api.patches;
  CHORAL_RETURN_IF_ERROR(expect_count(plugin.api.patch_count, first, "patches"));
  for (int64_t i = 0; i < plugin.api.patch_count; ++i) {
    if (i == 0) CHORAL_RETURN_IF_ERROR(expect_struct(first, sizeof(choral_patch), "choral_patch"));
    const auto patch = element(first, i);
    Patch read;
    CHORAL_TRY(read.name, read_text(patch.name, kMaxNameBytes, "a patch's name"));
    CHORAL_TRY(read.registry, read_text(patch.registry, kMaxNameBytes, "a patch's registry"));
    CHORAL_TRY(read.key, read_text(patch.key, kMaxNameBytes, "a patch's key"));
    CHORAL_TRY(read.value, read_text(patch.value, kMaxNameBytes, "a patch's value"));
    CHORAL_TRY(read.reason, read_text(patch.reason, kMaxTextBytes, "a patch's reason"));
    plugin.patches.push_back(std::move(read));
  }
  return {};
}

Result<std::shared_ptr<const PluginLibrary>> read_plugin(const std::filesystem::path& path, const choral_plugin* given) {
  if (given == nullptr) return unsupported("its choral_plugin_query found this host unsuitable and gave null");
  CHORAL_RETURN_IF_ERROR(expect_struct(given, sizeof(choral_plugin), "choral_plugin"));
  auto plugin = std::make_shared<PluginLibrary>();
  plugin->path = path;
  plugin->api = negotiated(*given);
  CHORAL_TRY(plugin->name, read_text(plugin->api.name, kMaxNameBytes, "its name"));
  CHORAL_TRY(plugin->version, read_text(plugin->api.version, kMaxNameBytes, "its version"));
  CHORAL_TRY(plugin->description, read_text(plugin->api.description, kMaxTextBytes, "its description"));
  if (!is_name(plugin->name))
    return corrupt("its name '{}' has other characters than letters, digits, '_' and '-'", plugin->name);
  if (plugin->name == "cpu" || plugin->name == "auto") return invalid_argument("the name '{}' is taken", plugin->name);
  if (plugin->name != plugin_name_of(path)) {
    return invalid_argument("it calls itself '{}'; the file must then be libchoral_plugin_{}.so", plugin->name, plugin->name);
  }
  CHORAL_RETURN_IF_ERROR(expect_functions({{plugin->api.probe != nullptr, "probe"},
                                           {plugin->api.open_device != nullptr, "open_device"},
                                           {plugin->api.close_device != nullptr, "close_device"}},
                                          "choral_plugin"));
  CHORAL_RETURN_IF_ERROR(read_memory(*plugin));
  CHORAL_RETURN_IF_ERROR(read_weights(*plugin));
  CHORAL_TRY(plugin->ops, read_ops(plugin->api.ops, plugin->api.op_count, "ops"));
  CHORAL_TRY(plugin->custom_ops, read_ops(plugin->api.custom_ops, plugin->api.custom_op_count, "custom_ops"));
  CHORAL_RETURN_IF_ERROR(read_fused_names(*plugin));
  CHORAL_RETURN_IF_ERROR(read_workers(*plugin));
  CHORAL_RETURN_IF_ERROR(read_patches(*plugin));
  return std::shared_ptr<const PluginLibrary>(std::move(plugin));
}

// Says on the log, every few seconds, what is being waited for: a plug-in that takes long to load must not look like a hang.
class SlowNotice {
 public:
  explicit SlowNotice(std::string what) : what_(std::move(what)) {
    auto thread = start_thread("a thread that watches the clock", [this] { watch(); });
    if (thread.ok()) thread_ = std::move(*thread);  // else nothing is said
  }
  ~SlowNotice() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void watch() {
    const double begin = now_s();
    double next = begin + 2;
    while (!done_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (now_s() < next) continue;
      next += 5;
      CHORAL_LOG(kWarn, "still waiting for {}, {:.0f} s so far", what_, now_s() - begin);
    }
  }
  std::string what_;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

Result<std::shared_ptr<const PluginLibrary>> open_library(const std::filesystem::path& path) {
  const SlowNotice notice("the plug-in " + printable(path.string()));
  // Never closed: see the header.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return unsupported("it can't be loaded: {}", printable(dlerror()));
  auto* query = reinterpret_cast<choral_plugin_query_fn>(dlsym(library, CHORAL_PLUGIN_QUERY));
  if (query == nullptr) return corrupt("it exports no {}, so it is no plug-in of Choral", CHORAL_PLUGIN_QUERY);
  const std::lock_guard one_at_a_time(plugin_opening());
  return read_plugin(path, query(&plugin_host()));
}

}  // namespace

std::mutex& plugin_opening() {
  static std::mutex mutex;
  return mutex;
}

Result<std::vector<choral_op>> read_ops(const choral_op* first, int64_t count, std::string_view what) {
  CHORAL_RETURN_IF_ERROR(expect_count(count, first, what));
  std::vector<choral_op> ops;
  for (int64_t i = 0; i < count; ++i) {
    if (i == 0) CHORAL_RETURN_IF_ERROR(expect_struct(first, sizeof(choral_op), "choral_op"));
    ops.push_back(element(first, i));
    CHORAL_TRY(const auto name, read_text(ops.back().name, kMaxNameBytes, "an operator's name"));
    if (ops.back().run == nullptr) return corrupt("{}: '{}' has no function", what, name);
  }
  return ops;
}

std::string plugin_name_of(const std::filesystem::path& path) {
  constexpr std::string_view kBegin = "libchoral_plugin_", kEnd = ".so";
  const std::string file = path.filename().string();
  if (!file.starts_with(kBegin) || !file.ends_with(kEnd) || file.size() <= kBegin.size() + kEnd.size()) return "";
  return file.substr(kBegin.size(), file.size() - kBegin.size() - kEnd.size());
}

Result<std::shared_ptr<const PluginLibrary>> open_plugin(const std::filesystem::path& path) {
  return open_library(path).while_("plug-in " + printable(path.string()));
}

}  // namespace choral::platform
