#include "platform/platform_choice.h"

#include <dlfcn.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>

#include "base/nearest_name.h"
#include "base/printable.h"
#include "platform/plugin/plugin_platform.h"

namespace choral::platform {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// PREFIX of the PREFIX/lib/… or PREFIX/bin/… that this code was loaded from; empty when it can't be told.
fs::path installation_prefix() {
  Dl_info info;
  link_map* map = nullptr;
  const auto* here = reinterpret_cast<const void*>(&installation_prefix);
  if (dladdr1(here, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 || map == nullptr) return {};
  // Of the program's own code the loader knows no more than what it was called, which may be a name that was found by PATH.
  const bool is_program = map->l_name == nullptr || *map->l_name == '\0';
  std::error_code failed;
  const fs::path file = fs::weakly_canonical(is_program ? "/proc/self/exe" : map->l_name, failed);
  return failed ? fs::path() : file.parent_path().parent_path();
}

// Plug-in files of the folders, the first of each name, in the folders' order and by name within one.
std::vector<fs::path> plugin_files(const PluginSearch& search) {
  std::vector<fs::path> files;
  std::set<std::string> seen;
  for (const auto& folder : search.folders) {
    std::vector<fs::path> here;
    std::error_code failed;
    for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
      const auto name = plugin_name_of(entry->path());
      if (!name.empty() && (search.only.empty() || name == search.only)) here.push_back(entry->path());
    }
    std::sort(here.begin(), here.end());
    for (auto& file : here) {
      if (seen.insert(plugin_name_of(file)).second) files.push_back(std::move(file));
    }
  }
  return files;
}

Candidate examine(const fs::path& file, const PluginSearch& search, uint8_t kind) {
  Candidate candidate{.name = plugin_name_of(file), .path = file.string()};
  const bool allowed = std::find(search.allowed.begin(), search.allowed.end(), candidate.name) != search.allowed.end();
  if (search.restricted && !allowed) {
    candidate.status = permission_denied("CHORAL_PLUGINS does not list it, so it was not loaded");
    return candidate;
  }
  auto plugin = open_plugin(file);
  if (!plugin.ok()) {
    candidate.status = std::move(plugin).status();
    return candidate;
  }
  auto probe = probe_plugin(**plugin);
  if (!probe.ok()) {
    candidate.status = std::move(probe).status();
    return candidate;
  }
  candidate.score = probe->score;
  if (probe->device_count <= 0) {
    candidate.status = unavailable("{}", probe->reason);
    return candidate;
  }
  candidate.platforms = make_plugin_platforms(*plugin, *probe, kind);
  candidate.description = candidate.platforms.front()->description();
  return candidate;
}

std::string line_of(const Candidate& c) {
  return c.status.ok() ? fmt::format("{}: usable, score {} ({})", c.name, c.score, c.description)
                       : fmt::format("{}: {}", c.name, c.status.message());
}

std::string list_of(const std::vector<Candidate>& candidates) {
  std::string text;
  for (const auto& candidate : candidates) text += "\n  " + line_of(candidate);
  return text;
}

std::string_view name_of(std::string_view device) { return device.substr(0, device.find(':')); }

// The device that a rank at `place` gets, whose first one has device `first`.
Result<std::shared_ptr<const Platform>> device_at(const Candidate& candidate, size_t first, int place) {
  if (candidate.path.empty()) return candidate.platforms.front();
  const size_t number = first + static_cast<size_t>(place);
  if (number < candidate.platforms.size()) return candidate.platforms[number];
  return unavailable(
      "rank {} would have device {}:{}, and {} has {}: each rank of --tensor-parallel-size has a device of its own; --device cpu "
      "divides the model over the CPU's cores",
      place, candidate.name, number, candidate.name,
      candidate.platforms.size() == 1 ? "one device" : fmt::format("{} devices", candidate.platforms.size()));
}

// NAME or NAME:NUMBER of a usable candidate.
Result<PlatformChoice> choose_numbered(std::string_view device, const Candidate& candidate, int place) {
  if (device == candidate.name) {
    CHORAL_TRY(auto first, device_at(candidate, 0, place));
    return PlatformChoice{std::move(first), "named by --device", {}};
  }
  const std::string_view text = device.substr(candidate.name.size() + 1);
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const size_t count = candidate.platforms.size();
  if (error != std::errc() || end != text.data() + text.size() || number >= count) {
    return invalid_argument("device {}: after {}: comes the number of one of its devices: {}", printable(device), candidate.name,
                            count == 1 ? "0, the only one" : fmt::format("0 to {}", count - 1));
  }
  CHORAL_TRY(auto numbered, device_at(candidate, number, place));
  return PlatformChoice{std::move(numbered), fmt::format("number {} of {}, named by --device", number, count), {}};
}

Result<PlatformChoice> choose_named(std::string_view device, const std::vector<Candidate>& candidates, int place) {
  const std::string_view name = name_of(device);
  std::vector<std::string> names;
  for (const auto& candidate : candidates) {
    if (candidate.name != name) {
      names.push_back(candidate.name);
      continue;
    }
    if (!candidate.status.ok()) return Status(candidate.status).while_(fmt::format("device {} can't be used", name));
    return choose_numbered(device, candidate, place);
  }
  const std::string near = nearest_name(name, names);
  return invalid_argument("no device is named '{}'{}; there are:{}", printable(name),
                          near.empty() ? "" : ", did you mean " + near + "?", list_of(candidates));
}

}  // namespace

PluginSearch PluginSearch::from_environment() {
  PluginSearch search;
  if (const char* path = std::getenv("CHORAL_PLUGIN_PATH")) {
    for (auto& folder : split(path, ':')) search.folders.emplace_back(std::move(folder));
  }
  if (const auto prefix = installation_prefix(); !prefix.empty()) search.folders.push_back(prefix / "lib" / "choral" / "plugins");
  if (const char* allowed = std::getenv("CHORAL_PLUGINS")) {
    search.allowed = split(allowed, ',');
    search.restricted = true;
  }
  return search;
}

std::vector<Candidate> find_candidates(const PluginSearch& search) {
  std::vector<Candidate> candidates;
  uint8_t kind = 1;
  for (const auto& file : plugin_files(search)) candidates.push_back(examine(file, search, kind++));
  const auto& cpu = cpu_platform();
  candidates.push_back({.name = "cpu",
                        .description = cpu.description(),
                        .platforms = {std::shared_ptr<const Platform>(std::shared_ptr<const Platform>(), &cpu)}});
  return candidates;
}

Result<PlatformChoice> choose_platform(std::string_view device, const std::vector<Candidate>& candidates, int place) {
  if (device != "auto") return choose_named(device, candidates, place);
  const Candidate* best = nullptr;
  bool tied = false;
  for (const auto& candidate : candidates) {
    if (!candidate.status.ok() || candidate.path.empty()) continue;
    if (best != nullptr && candidate.score < best->score) continue;
    tied = best != nullptr && candidate.score == best->score;
    if (!tied) best = &candidate;
  }
  if (tied) return invalid_argument("several plug-ins fit equally well; name one with --device:{}", list_of(candidates));
  if (best == nullptr) best = &candidates.back();
  CHORAL_TRY(auto chosen, device_at(*best, 0, place));
  PlatformChoice choice{.platform = std::move(chosen),
                        .reason = best->path.empty() ? "no plug-in is usable" : "the plug-in with the highest score"};
  if (candidates.size() == 1) choice.reason = "no plug-in was found";
  for (const auto& candidate : candidates) {
    const bool excluded = candidate.status.code() == Code::kPermissionDenied;  // as the user wished
    if (&candidate != best && !candidate.path.empty() && !excluded) choice.passed.push_back(line_of(candidate));
  }
  return choice;
}

Result<PlatformChoice> choose_platform(std::string_view device, int place) {
  if (name_of(device) == "cpu") return choose_platform(device, find_candidates({}), place);
  auto search = PluginSearch::from_environment();
  if (device != "auto") {
    // Only the file of that name is loaded, unless there is none and the others have to be listed.
    auto named = search;
    named.only = name_of(device);
    const auto candidates = find_candidates(named);
    if (candidates.size() > 1) return choose_platform(device, candidates, place);
  }
  return choose_platform(device, find_candidates(search), place);
}

}  // namespace choral::platform
