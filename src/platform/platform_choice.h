// Which device an engine uses: the one that was named; else the one plug-in with the highest score; else the CPU. Two plug-ins
// with the same highest score are an error that lists every candidate, since nobody should have to guess. Every candidate keeps
// the reason why it is or is not usable, a broken file included.
//
// Plug-ins are files libchoral_plugin_NAME.so in the folders of CHORAL_PLUGIN_PATH (colons between them), then in
// lib/choral/plugins beside the library or program. CHORAL_PLUGINS, when set, lists the names that may be loaded at all.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/platform.h"

namespace choral::platform {

struct Candidate {
  std::string name;
  std::string path = {};  // empty for the CPU
  int score = 0;
  Status status = {};                                           // fine: usable
  std::string description = {};                                 // of a usable one
  std::vector<std::shared_ptr<const Platform>> platforms = {};  // of its devices, by number
};

// Where plug-ins are looked for, and which may be loaded.
struct PluginSearch {
  std::vector<std::filesystem::path> folders;
  std::vector<std::string> allowed;  // empty: all
  bool restricted = false;           // `allowed` was given, even if it is empty
  std::string only = {};             // look at the plug-in of this name alone

  static PluginSearch from_environment();
};

// Loads and probes every plug-in; the CPU comes last.
std::vector<Candidate> find_candidates(const PluginSearch& search);

struct PlatformChoice {
  std::shared_ptr<const Platform> platform = {};
  std::string reason;                    // "named by --device", "the plug-in with the highest score", …
  std::vector<std::string> passed = {};  // what was found and not taken, one line each
};

// `device`: "auto", a name, or a name and the number of one of its devices, "cuda:1"; else it is the first. An unknown or
// unusable name is an error that lists the candidates with their reasons. `place`: of a rank of a divided model, which gets the
// device so many numbers behind that one; on the CPU all ranks are.
Result<PlatformChoice> choose_platform(std::string_view device, const std::vector<Candidate>& candidates, int place = 0);
// With the environment's search; plug-ins are not even looked for when the CPU was named.
Result<PlatformChoice> choose_platform(std::string_view device, int place = 0);

}  // namespace choral::platform
