// One plug-in file: opened, asked for its description, and checked before anything of it is used. Every reason why a file is not
// usable becomes a Status that names the file. A library stays loaded for the life of the process (its threads and thread-locals
// may outlive every object of it), so opening one twice gives the same.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "choral/plugin.h"
#include "platform/patch.h"

namespace choral::platform {

// A plug-in's description as this host knows it: structs negotiated, texts bounded, tables copied.
struct PluginLibrary {
  std::filesystem::path path;
  std::string name, version, description;
  choral_plugin api;  // for its functions; texts and tables stand here instead
  choral_memory_api memory;
  choral_weight_api weights;
  bool has_weights = false;
  std::vector<choral_op> ops, custom_ops;
  std::vector<std::string> fused_op_names;
  std::vector<choral_worker_class> workers;
  std::vector<Patch> patches;
};

// A table of operators that the plug-in handed out: every entry has a name and a function.
Result<std::vector<choral_op>> read_ops(const choral_op* first, int64_t count, std::string_view what);

Result<std::shared_ptr<const PluginLibrary>> open_plugin(const std::filesystem::path& path);
// Held while a plug-in's query, probe or open_device runs: engines may be opened by several threads.
std::mutex& plugin_opening();

// "libchoral_plugin_NAME.so" -> NAME, empty for other files. Known without running any of its code.
std::string plugin_name_of(const std::filesystem::path& path);

}  // namespace choral::platform
