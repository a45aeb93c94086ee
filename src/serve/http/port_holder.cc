#include "serve/http/port_holder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "base/printable.h"

namespace choral::serve {
namespace {

namespace fs = std::filesystem;

// "socket:[12345]" of the sockets that listen on the port, as links of /proc/PID/fd name them.
std::vector<std::string> listening_sockets(int port) {
  std::vector<std::string> found;
  const std::string wanted = fmt::format(":{:04X}", port);
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream in(table);
    for (std::string line; std::getline(in, line);) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
      constexpr const char* kListen = "0A";
      if (fields && state == kListen && local.ends_with(wanted)) found.push_back(fmt::format("socket:[{}]", inode));
    }
  }
  return found;
}

bool holds_one_of(const fs::path& process, const std::vector<std::string>& sockets) {
  std::error_code error;  // other users' processes cannot be looked into
  for (fs::directory_iterator at(process / "fd", error), end; !error && at != end; at.increment(error)) {
    std::error_code unreadable;
    const std::string target = fs::read_symlink(at->path(), unreadable).string();
    if (!unreadable && std::find(sockets.begin(), sockets.end(), target) != sockets.end()) return true;
  }
  return false;
}

}  // namespace

std::string port_holder(int port) {
  const std::vector<std::string> sockets = listening_sockets(port);
  if (sockets.empty()) return "";
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string number = at->path().filename().string();
    if (number.empty() || !std::all_of(number.begin(), number.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      continue;
    if (!holds_one_of(at->path(), sockets)) continue;
    std::ifstream in(at->path() / "comm");
    std::string name;
    std::getline(in, name);
    return fmt::format("{} (process {})", name.empty() ? "a program" : printable(name, 40), number);
  }
  return "";
}

}  // namespace choral::serve
