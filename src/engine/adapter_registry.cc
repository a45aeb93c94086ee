#include "engine/adapter_registry.h"

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "base/nearest_name.h"
#include "base/out_of_memory.h"
#include "base/printable.h"
#include "base/thread.h"
#include "engine/sampling_check.h"
#include "lora/packed_adapter_loader.h"

namespace choral::engine {
namespace {

constexpr size_t kMaxNameBytes = 256;
// The engine's threads keep every core busy, so one loader would share one core with one of them, and each step would wait for
// that one. Two share two cores: the load is done in half the time and the step loses no more.
constexpr int kLoaderThreads = 2;
constexpr size_t kMaxEagerJobs = 8;
// Packed adapters that the engine thread did not take in yet may fill this share of the budget, or be one of each loader.
constexpr int64_t kHandoverShare = 4;
constexpr size_t kMaxHints = 10'000;  // entries of the root looked at for a name like the unknown one

Status check_name(std::string_view name) {
  if (name.empty()) return invalid_argument("an adapter needs a name");
  if (name.size() > kMaxNameBytes) return invalid_argument("an adapter's name has at most {} bytes", kMaxNameBytes);
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return invalid_argument("adapter name with a control character");
  }
  return {};
}

// NAME inside `root`, or nothing: no name leads out of it, not even over a link.
std::optional<std::filesystem::path> inside_root(const std::string& root, std::string_view name) {
  namespace fs = std::filesystem;
  if (root.empty() || name.empty() || name.front() == '/') return std::nullopt;
  for (const auto& part : fs::path(name)) {
    if (part == ".." || part == "." || part.empty()) return std::nullopt;
  }
  std::error_code error;
  const fs::path base = fs::canonical(root, error);
  if (error) return std::nullopt;
  const fs::path found = fs::canonical(base / name, error);
  if (error) return std::nullopt;
  const auto [end, rest] = std::mismatch(base.begin(), base.end(), found.begin(), found.end());
  if (end != base.end() || rest == found.end()) return std::nullopt;
  return found;
}

Status unknown(std::string_view name, std::span<const std::string> known, std::string_view remedy) {
  const auto near = nearest_name(name, known);
  return not_found("no adapter is named '{}'{}; {}", name, near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near),
                   remedy);
}

bool is_dora(const AdapterSpec& spec) {
  const auto config = lora::PEFTHelper::from_local_dir(spec.path);
  return config.ok() && config->use_dora;
}

}  // namespace

Result<std::shared_ptr<AdapterRegistry>> AdapterRegistry::make(CpuLevel level, std::span<const lora::LoRATarget> targets,
                                                               Config config) {
  std::shared_ptr<AdapterRegistry> made(new AdapterRegistry(level, targets, std::move(config)));
  for (Loader* loader : {&made->loader_, &made->dora_loader_}) CHORAL_RETURN_IF_ERROR(made->start(*loader));
  return made;
}

Status AdapterRegistry::start(Loader& loader) {
  CHORAL_TRY(loader.pool, ThreadPool::make(std::min(kLoaderThreads, ThreadPool::default_size())));
  CHORAL_TRY(loader.session, platform::cpu_platform().open(*loader.pool, {}));
  CHORAL_TRY(loader.thread, start_thread("a thread that loads adapters", [this, &loader] { run(loader); }));
  return {};
}

AdapterRegistry::~AdapterRegistry() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  taken_.notify_all();
  for (Loader* loader : {&loader_, &dora_loader_}) loader->work.notify_all();
  for (Loader* loader : {&loader_, &dora_loader_}) {
    if (loader->thread.joinable()) loader->thread.join();
  }
  const std::lock_guard lock(mutex_);
  for (const Loader* loader : {&loader_, &dora_loader_}) {
    for (const auto& job : loader->jobs) {
      if (job.answer != nullptr) give(*job.answer, unavailable("the engine is shutting down"));
    }
  }
}

void AdapterRegistry::set_wake(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
  if (wake_) return;
  taken_.notify_all();
  for (const auto& wish : pins_) {
    if (wish.answer != nullptr) give(*wish.answer, unavailable("the engine is shutting down"));
  }
  pins_.clear();
}

void AdapterRegistry::give(Answer& answer, Status status) {
  answer = {std::move(status), true};
  answered_.notify_all();
}

Status AdapterRegistry::load(const AdapterSpec& spec, bool replace) {
  CHORAL_RETURN_IF_ERROR(check_name(spec.name));
  if (spec.path.empty()) return invalid_argument("adapter '{}': the path is empty; name its directory", spec.name);
  std::unique_lock lock(mutex_);
  if (!replace && names_.contains(spec.name)) {
    return already_exists("adapter '{}' is loaded; unload it first or ask to replace it", spec.name);
  }
  auto version = std::make_shared<AdapterVersion>(next_id_++, spec, ++generations_[spec.name], /*version_from_root=*/false);
  Answer answer;
  loader_.jobs.push_back({version, &answer});
  loader_.work.notify_one();
  answered_.wait(lock, [&] { return answer.given; });
  if (!answer.status.ok()) return answer.status;
  if (spec.pinned) {
    if (Status pinned = wait_for_pin(lock, version, true); !pinned.ok()) {
      lock.unlock();
      retire(std::move(version));
      return pinned;
    }
  }
  const bool taken = !replace && names_.contains(spec.name);
  if (!taken) names_[spec.name].swap(version);
  if (version != nullptr && version->info.pinned) pins_.push_back({version, false});
  lock.unlock();
  retire(std::move(version));  // the older one, or the new one that found its name taken
  if (taken) return already_exists("adapter '{}' was loaded meanwhile", spec.name);
  return {};
}

Status AdapterRegistry::unload(std::string_view name) {
  std::shared_ptr<AdapterVersion> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(name);
    if (found != names_.end()) {
      gone = std::move(found->second);
      names_.erase(found);
      if (gone->info.pinned) pins_.push_back({gone, false});
    }
  }
  if (gone == nullptr) return unknown_name(name);
  retire(std::move(gone));
  return {};
}

// The engine looks for versions that are gone, so this one goes first.
void AdapterRegistry::retire(std::shared_ptr<AdapterVersion> version) {
  version = nullptr;
  ++retirements_;
  const std::lock_guard lock(mutex_);
  if (wake_) wake_();
}

Status AdapterRegistry::pin(std::string_view name, bool pinned) {
  CHORAL_TRY(auto version, find_or_discover(name));
  std::unique_lock lock(mutex_);
  return wait_for_pin(lock, std::move(version), pinned);
}

Status AdapterRegistry::wait_for_pin(std::unique_lock<std::mutex>& lock, std::shared_ptr<AdapterVersion> version, bool pinned) {
  if (!wake_) return unavailable("the engine is shutting down");
  Answer answer;
  pins_.push_back({std::move(version), pinned, &answer});
  wake_();
  answered_.wait(lock, [&] { return answer.given; });
  return answer.status;
}

void AdapterRegistry::answer_pin(const PinWish& wish, const Status& status) {
  const std::lock_guard lock(mutex_);
  AdapterInfo& info = wish.version->info;
  info.pinned = wish.pinned && status.ok();
  if (wish.pinned) info.error = status.ok() ? "" : status.to_string();
  if (wish.answer != nullptr) give(*wish.answer, status);
}

std::vector<AdapterInfo> AdapterRegistry::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<AdapterInfo> all;
  for (const auto& [name, version] : names_) all.push_back(version->info);
  return all;
}

Result<std::vector<VersionUse>> AdapterRegistry::resolve(std::span<const AdapterUse> uses) {
  if (uses.size() > lora::kMaxVoiceTerms) {
    return invalid_argument("{} adapters in one request; at most {} can act together", uses.size(), lora::kMaxVoiceTerms);
  }
  std::vector<VersionUse> found;
  for (const auto& use : uses) {
    CHORAL_RETURN_IF_ERROR(check_adapter_scale(use));
    CHORAL_TRY(auto version, find_or_discover(use.name));
    update(*version, [](AdapterInfo& info) { ++info.requests; });
    found.push_back({std::move(version), use.scale});
  }
  return found;
}

Result<std::shared_ptr<AdapterVersion>> AdapterRegistry::find_or_discover(std::string_view name) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(name);
    if (found != names_.end()) return found->second;
  }
  const auto path = inside_root(config_.root, name);
  if (!path) return unknown_name(name);
  const std::string key(name);
  const std::lock_guard lock(mutex_);
  auto& version = names_[key];  // somebody may have been first
  if (version == nullptr) {
    version = std::make_shared<AdapterVersion>(next_id_++, AdapterSpec{key, path->string()}, ++generations_[key],
                                               /*version_from_root=*/true);
    // Somebody is about to want it, and the engine would ask only when its step is done. Under a flood of names it decides alone.
    if (loader_.jobs.size() + dora_loader_.jobs.size() < kMaxEagerJobs) {
      version->loading = true;
      version->info.state = AdapterState::kLoading;
      loader_.jobs.push_back({version});
      loader_.work.notify_one();
    }
  }
  return version;
}

Status AdapterRegistry::unknown_name(std::string_view name) const {
  std::vector<std::string> known;
  for (const auto& info : list()) known.push_back(info.name);
  if (config_.root.empty()) return unknown(name, known, "load it with --lora NAME=PATH");
  std::error_code error;
  std::filesystem::directory_iterator entry(config_.root, error), end;
  for (size_t i = 0; !error && entry != end && i < kMaxHints; ++i) {
    known.push_back(entry->path().filename().string());
    entry.increment(error);
  }
  return unknown(name, known, fmt::format("load it with --lora NAME=PATH or put it into {}", config_.root));
}

void AdapterRegistry::forget(const AdapterVersion& version) {
  std::shared_ptr<AdapterVersion> gone;  // dies after the lock
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(version.spec.name);
  if (found == names_.end() || found->second.get() != &version) return;
  gone = std::move(found->second);
  names_.erase(found);
}

void AdapterRegistry::request_load(std::shared_ptr<AdapterVersion> version) {
  {
    const std::lock_guard lock(mutex_);
    version->info.state = AdapterState::kLoading;
    loader_.jobs.push_back({std::move(version)});
  }
  loader_.work.notify_one();
}

void AdapterRegistry::take_loaded(std::vector<LoadedAdapter>& out) {
  const std::lock_guard lock(mutex_);
  for (auto& one : loaded_) out.push_back(std::move(one));
  loaded_.clear();
  loaded_bytes_ = 0;
  taken_.notify_all();
}

Status AdapterRegistry::wait_for_handover(int64_t bytes) {
  std::unique_lock lock(mutex_);
  const auto may_go_on = [&] {
    const bool fits = config_.budget_bytes == 0 || loaded_bytes_ + bytes <= config_.budget_bytes / kHandoverShare;
    return stop_ || !wake_ || loaded_bytes_ == 0 || fits;
  };
  taken_.wait(lock, may_go_on);
  return stop_ ? unavailable("the engine is shutting down") : Status();
}

void AdapterRegistry::take_pins(std::vector<PinWish>& out) {
  const std::lock_guard lock(mutex_);
  for (auto& one : pins_) out.push_back(std::move(one));
  pins_.clear();
}

void AdapterRegistry::run(Loader& loader) {
  const platform::Context ctx(*loader.session, *loader.pool, level_);
  lora::PackedAdapterLoader files(ctx, targets_, config_.load, config_.budget_bytes);
  std::unique_lock lock(mutex_);
  for (;;) {
    loader.work.wait(lock, [&] { return stop_ || !loader.jobs.empty(); });
    if (stop_) return;
    Job job = std::move(loader.jobs.front());
    loader.jobs.pop_front();
    lock.unlock();
    const AdapterSpec& spec = job.version->spec;
    if (&loader == &loader_ && is_dora(spec)) {
      lock.lock();
      dora_loader_.jobs.push_back(std::move(job));
      dora_loader_.work.notify_one();
      continue;
    }
    ctx.memory.reset();
    lora::AdapterDescription described;
    auto packed = or_out_of_memory("it cannot be loaded", [&] {
                    return files.load(spec.path, described, [&](int64_t bytes) { return wait_for_handover(bytes); });
                  }).while_(fmt::format("adapter '{}' ({})", spec.name, spec.path));
    lock.lock();
    const bool ok = packed.ok();
    if (job.answer != nullptr) give(*job.answer, ok ? Status() : packed.status());
    if (ok || job.answer == nullptr) {
      ++job.version->info.loads;
      auto& info = job.version->info;
      info.kind = std::move(described.kind);
      for (const auto& note : described.notes) {
        if (info.notes.empty()) CHORAL_LOG(kWarn, "adapter '{}': {}", printable(info.name), note);
      }
      info.notes = std::move(described.notes);
      if (ok) {
        info.digest = to_hex((*packed)->digest());
        info.rank = static_cast<int>((*packed)->rank());
        info.size_bytes = (*packed)->size_bytes();
        loaded_bytes_ += info.size_bytes;
      }
      loaded_.push_back({std::move(job.version), std::move(packed)});
      if (wake_) wake_();
    }
  }
}

}  // namespace choral::engine
