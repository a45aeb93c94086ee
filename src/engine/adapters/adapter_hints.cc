#include "engine/adapters/adapter_hints.h"

#include <sys/stat.h>

#include <filesystem>

#include "base/nearest_name.h"
#include "lora/peft/adapter_name.h"

namespace choral::engine {
namespace {

constexpr size_t kMaxHints = 10'000;  // entries of the root
constexpr double kSecond = 1;

int64_t changed_ns(const std::string& folder) {
  struct stat s {};
  if (stat(folder.c_str(), &s) != 0) return 0;
  return int64_t{s.st_mtim.tv_sec} * 1'000'000'000 + s.st_mtim.tv_nsec;
}

}  // namespace

bool HintBudget::take() {
  const double now = clock_();
  const std::lock_guard lock(mutex_);
  if (now - begin_s_ >= kSecond || taken_ == 0) {
    begin_s_ = now;
    taken_ = 0;
  }
  return ++taken_ <= kHintsPerSecond;
}

std::string AdapterHints::nearest(std::string_view name, const AdapterNameList& known) {
  if (!budget_.take()) return "";
  NearestName near(name);
  for (const auto& one : known) near.consider(one->name);
  if (const auto in_root = names_in_root()) {
    for (const auto& one : *in_root) {
      if (one != name) near.consider(one);  // it lies there, and cannot be had
    }
  }
  return near.best();
}

int64_t AdapterHints::root_listings() const {
  const std::lock_guard lock(mutex_);
  return root_listings_;
}

std::shared_ptr<const AdapterHints::Names> AdapterHints::names_in_root() {
  if (root_.empty()) return nullptr;
  const std::lock_guard lock(mutex_);
  const double now = clock_();
  if (in_root_ != nullptr && now - looked_s_ < kSecond) return in_root_;
  looked_s_ = now;
  const int64_t changed = changed_ns(root_);
  if (in_root_ != nullptr && changed == root_changed_ns_) return in_root_;
  auto names = std::make_shared<Names>();
  std::error_code error;
  std::filesystem::directory_iterator entry(root_, error), end;
  for (size_t i = 0; !error && entry != end && i < kMaxHints; ++i) {
    std::string found = entry->path().filename().string();
    if (lora::check_adapter_name(found).ok()) names->push_back(std::move(found));
    entry.increment(error);
  }
  in_root_ = std::move(names);
  root_changed_ns_ = changed;
  ++root_listings_;
  return in_root_;
}

}  // namespace choral::engine
