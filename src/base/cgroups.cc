#include "base/cgroups.h"

#include <algorithm>
#include <optional>

namespace choral {
namespace {

constexpr size_t kLongestPath = 4096;
constexpr int kMostLevels = 64;

std::string_view take_until(std::string_view& rest, char end) {
  const std::string_view piece = rest.substr(0, rest.find(end));
  rest.remove_prefix(std::min(rest.size(), piece.size() + 1));
  return piece;
}

bool is_listed(std::string_view list, std::string_view wanted) {
  while (!list.empty()) {
    if (take_until(list, ',') == wanted) return true;
  }
  return false;
}

// A path of mountinfo, which writes blanks and backslashes as \ooo.
std::string unescaped(std::string_view path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    const auto digit = [&](size_t at) { return at < path.size() && path[at] >= '0' && path[at] <= '7' ? path[at] - '0' : -1; };
    if (path[i] == '\\' && digit(i + 1) >= 0 && digit(i + 2) >= 0 && digit(i + 3) >= 0) {
      out += static_cast<char>(digit(i + 1) * 64 + digit(i + 2) * 8 + digit(i + 3));
      i += 3;
    } else {
      out += path[i];
    }
  }
  return out;
}

// A hierarchy as it is mounted: the group `root` and those in it stand below `folder`.
struct Mount {
  std::string root, folder;
  bool found = false;
};

// "31 23 0:28 /root /folder rw,relatime shared:9 - cgroup cgroup rw,memory"
void read_mount(std::string_view line, std::string_view controller, Mount& v1, Mount& v2) {
  const size_t middle = line.find(" - ");
  if (middle == line.npos) return;
  std::string_view kind = line.substr(middle + 3), place = line.substr(0, middle);
  const std::string_view type = take_until(kind, ' ');
  if (type != "cgroup" && type != "cgroup2") return;
  take_until(kind, ' ');
  if (type == "cgroup" && !is_listed(kind, controller)) return;
  for (int i = 0; i < 3; ++i) take_until(place, ' ');
  const std::string_view root = take_until(place, ' '), folder = take_until(place, ' ');
  Mount& mount = type == "cgroup" ? v1 : v2;
  if (mount.found || root.size() > kLongestPath || !folder.starts_with('/') || folder.size() > kLongestPath) return;
  mount = {unescaped(root), unescaped(folder), true};
}

// The process's group of the hierarchy, as /proc/self/cgroup says it: lines "4:memory:/path" and "0::/path".
std::optional<std::string> group_path(std::string_view text, std::string_view controller, int version) {
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    take_until(line, ':');
    const std::string_view controllers = take_until(line, ':');
    const bool is_it = version == 2 ? controllers.empty() : is_listed(controllers, controller);
    if (is_it && line.starts_with('/') && line.size() <= kLongestPath) return std::string(line);
  }
  return std::nullopt;
}

// Where the group stands below the mount. A group outside of what is mounted, or of another name space, is not seen: what is
// mounted is then the best that is known.
std::string below_mount(const std::string& group, const std::string& root) {
  if (group.find("/..") != group.npos) return "";
  const std::string_view top = root == "/" ? std::string_view() : std::string_view(root);
  if (!group.starts_with(top)) return "";
  const std::string below = group.substr(top.size());
  if (below.empty() || below == "/") return "";
  return below.front() == '/' ? below : "";
}

void add_groups(const Mount& mount, const std::string& group, int version, std::vector<Cgroup>& out) {
  std::string below = below_mount(group, mount.root);
  for (int level = 0; level < kMostLevels && !below.empty(); ++level) {
    out.push_back({mount.folder + below, below, version});
    below.resize(below.rfind('/'));
  }
  out.push_back({mount.folder, "/", version});
}

}  // namespace

std::vector<Cgroup> cgroups_of(const SystemFiles& files, std::string_view controller) {
  Mount v1, v2;
  const std::string mounts = files.text("/proc/self/mountinfo"), groups = files.text("/proc/self/cgroup");
  for (std::string_view rest = mounts; !rest.empty();) read_mount(take_until(rest, '\n'), controller, v1, v2);
  std::vector<Cgroup> out;
  if (v2.found) add_groups(v2, group_path(groups, controller, 2).value_or("/"), 2, out);
  if (v1.found) add_groups(v1, group_path(groups, controller, 1).value_or("/"), 1, out);
  return out;
}

}  // namespace choral
