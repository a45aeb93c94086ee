// What a server knows of adapters over its end: one small SQLite file, `adapter_registry`, in the state directory. The adapters
// that clients registered while it ran; the last generation of each name that ever stood for something, of --lora and the adapter
// root too, so that no number is given twice; and llama.cpp's number of each name. Every change is on the disk when its call
// returns, as a whole or not at all, whatever ends the process; a process that ended holds no lock. One server at a time has the
// directory. A file that is damaged or somebody else's is refused with what to do, never repaired or replaced unasked.
// Thread-safe; calls wait for the disk, so they belong on no thread that serves connections.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "choral/llm.h"

namespace choral::serve {

struct RegisteredAdapter {
  std::string name = {};
  std::string path = {};
  bool pinned = false;
  int64_t added_unix_s = 0;
  bool operator==(const RegisteredAdapter&) const = default;
};

struct NumberedName {
  std::string name = {};
  int32_t number = 0;
  bool operator==(const NumberedName&) const = default;
};

class RegisteredAdapters : public AdapterGenerations {
 public:
  static constexpr const char* kFileName = "adapter_registry";
  static constexpr int64_t kMaxAdapters = 100'000;  // and names: of those that are not registered the rest is forgotten

  // Makes the directory and the file where they are missing, for this user alone. unavailable: another server has it. corrupt,
  // unsupported: the file is not one that can be used, and stays as it is.
  static Result<std::unique_ptr<RegisteredAdapters>> open(const std::string& state_directory);

  virtual Result<std::vector<RegisteredAdapter>> all() = 0;  // sorted by name
  virtual Result<std::optional<RegisteredAdapter>> find(std::string_view name) = 0;
  // Adds it, or puts it in the place of what has its name.
  virtual Status put(const RegisteredAdapter& adapter) = 0;
  // These do nothing, and are fine, when there is no such name: adapters of the command line are not registered.
  virtual Status set_pinned(std::string_view name, bool pinned) = 0;
  virtual Status remove(std::string_view name) = 0;

  virtual Result<std::vector<NumberedName>> numbers() = 0;  // 0, 1, 2, …
  // The next ones, of names that have none, all together; kMaxAdapters in all.
  virtual Status put_numbers(std::span<const NumberedName> names) = 0;
};

}  // namespace choral::serve
