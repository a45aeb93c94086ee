#include "engine/adapter_registry.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/nearest_name.h"
#include "lora/adapter_name.h"
#include "lora/peft_helper.h"

namespace choral::engine {
namespace {

// The engine's threads keep every core busy, so one loader would share one core with one of them, and each step would wait for
// that one. Two share two cores: the load is done in half the time and the step loses no more.
constexpr int kLoaderThreads = 2;
constexpr size_t kMaxHints = 10'000;  // entries of the root looked at for a name like the unknown one
constexpr int kMostReads = 3;         // of files that change while they are read

Status unknown(std::string_view name, std::span<const std::string> known, std::string_view remedy) {
  const auto near = nearest_name(name, known);
  return not_found("no adapter is named '{}'{}; {}", name, near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near),
                   remedy);
}

Result<std::shared_ptr<const lora::PackedAdapter>> load_files(const platform::Context& ctx, const AdapterSpec& spec,
                                                              std::span<const lora::LoRATarget> targets,
                                                              const lora::LoRALoadOptions& options, std::string& kind) {
  auto packed = [&]() -> Result<std::shared_ptr<const lora::PackedAdapter>> {
    CHORAL_TRY(const auto helper, lora::PEFTHelper::from_local_dir(spec.path));
    kind = helper.kind();
    CHORAL_RETURN_IF_ERROR(helper.validate_legal(options.config));
    CHORAL_TRY(const auto model, lora::LoRAModel::from_local_checkpoint(spec.path, helper, targets, options));
    return lora::PackedAdapter::pack(ctx, model, targets, options.config);
  }();
  if (!packed.ok()) return std::move(packed).status().while_(fmt::format("adapter '{}' ({})", spec.name, spec.path));
  return packed;
}

}  // namespace

AdapterRegistry::AdapterRegistry(CpuLevel level, std::span<const lora::LoRATarget> targets, Config config)
    : level_(level), targets_(targets), config_(std::move(config)), loader_([this] { run_loader(); }) {}

AdapterRegistry::~AdapterRegistry() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  loader_.join();
}

void AdapterRegistry::set_wake(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
  if (wake_) return;
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
  CHORAL_RETURN_IF_ERROR(lora::check_adapter_name(spec.name));
  if (spec.path.empty()) return invalid_argument("adapter '{}': the path is empty; name its directory", spec.name);
  std::unique_lock lock(mutex_);
  if (!replace && names_.contains(spec.name)) {
    return already_exists("adapter '{}' is loaded; unload it first or ask to replace it", spec.name);
  }
  auto version = std::make_shared<AdapterVersion>(next_id_++, spec);
  Answer answer;
  jobs_.push_back({version, &answer});
  work_.notify_one();
  answered_.wait(lock, [&] { return answer.given; });
  if (!answer.status.ok()) return answer.status;
  if (spec.pinned) {
    if (Status pinned = wait_for_pin(lock, version, true); !pinned.ok()) {
      lock.unlock();
      retire({.version = std::move(version)});
      return pinned;
    }
  }
  Name gone{.version = version};  // the older one, or the new one that finds its name taken
  const bool taken = !replace && names_.contains(spec.name);
  if (!taken) {
    count_generation(*version);
    Name& name = names_[spec.name];
    if (name.from_root) --root_names_;
    gone = std::exchange(name, {.version = version, .last_use = ++clock_});
  }
  version = nullptr;
  if (gone.version != nullptr && gone.version->info.pinned) pins_.push_back({gone.version, false});
  lock.unlock();
  retire(std::move(gone));
  if (taken) return already_exists("adapter '{}' was loaded meanwhile", spec.name);
  return {};
}

Status AdapterRegistry::unload(std::string_view name) {
  CHORAL_RETURN_IF_ERROR(lora::check_adapter_name(name));
  Name gone;
  {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(name);
    if (found != names_.end()) {
      gone = std::move(found->second);
      names_.erase(found);
      if (gone.from_root) --root_names_;
      if (gone.version->info.pinned) pins_.push_back({gone.version, false});
    }
  }
  if (gone.version == nullptr) return unknown_name(name);
  retire(std::move(gone));
  return {};
}

// The engine looks for versions that are gone, so they go first.
void AdapterRegistry::retire(Name gone) {
  gone = {};
  ++retirements_;
  const std::lock_guard lock(mutex_);
  if (wake_) wake_();
}

Status AdapterRegistry::pin(std::string_view name, bool pinned) {
  CHORAL_TRY(auto version, find(name));
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
  for (const auto& [key, name] : names_) all.push_back(name.version->info);
  return all;
}

Result<std::vector<VersionUse>> AdapterRegistry::resolve(std::span<const AdapterUse> uses) {
  if (uses.size() > lora::kMaxVoiceTerms) {
    return invalid_argument("{} adapters in one request; at most {} can act together", uses.size(), lora::kMaxVoiceTerms);
  }
  std::vector<VersionUse> found;
  for (const auto& use : uses) {
    CHORAL_TRY(auto version, find(use.name));
    if (!std::isfinite(use.scale)) return invalid_argument("adapter '{}': its scale must be a finite number", use.name);
    update(*version, [](AdapterInfo& info) { ++info.requests; });
    found.push_back({std::move(version), use.scale});
  }
  return found;
}

Status AdapterRegistry::unknown_name(std::string_view name) const {
  std::vector<std::string> known;
  for (const auto& info : list()) known.push_back(info.name);
  if (config_.root.empty()) return unknown(name, known, "load it with --lora NAME=PATH");
  std::error_code error;
  std::filesystem::directory_iterator entry(config_.root, error), end;
  for (size_t i = 0; !error && entry != end && i < kMaxHints; ++i) {
    if (std::string hint = entry->path().filename().string(); hint != name && lora::check_adapter_name(hint).ok()) {
      known.push_back(std::move(hint));
    }
    entry.increment(error);
  }
  return unknown(name, known, fmt::format("load it with --lora NAME=PATH or put it into {}", config_.root));
}

void AdapterRegistry::request_load(std::shared_ptr<AdapterVersion> version) {
  {
    const std::lock_guard lock(mutex_);
    if (version->info.state == AdapterState::kFailed) version->info.error.clear();
    version->info.state = AdapterState::kLoading;
    jobs_.push_back({std::move(version)});
  }
  work_.notify_one();
}

void AdapterRegistry::take_loaded(std::vector<LoadedAdapter>& out) {
  const std::lock_guard lock(mutex_);
  for (auto& one : loaded_) out.push_back(std::move(one));
  loaded_.clear();
}

void AdapterRegistry::take_pins(std::vector<PinWish>& out) {
  const std::lock_guard lock(mutex_);
  for (auto& one : pins_) out.push_back(std::move(one));
  pins_.clear();
}

AdapterRegistry::Read AdapterRegistry::read(const platform::Context& ctx, const AdapterVersion& version) const {
  ctx.memory.reset();
  AdapterFacts facts = look_at_adapter(version.spec.path);
  wait_until_stamps_settle(facts);
  std::string kind;
  auto packed = load_files(ctx, version.spec, targets_, config_.load, kind);
  const bool whole = look_at_adapter(version.spec.path) == facts;
  return {std::move(packed), std::move(kind), std::move(facts), whole};
}

void AdapterRegistry::run_loader() {
  ThreadPool pool(std::min(kLoaderThreads, ThreadPool::default_size()));
  const auto session = platform::cpu_platform().open(pool, {});
  CHORAL_CHECK(session.ok(), session.status().message());
  const platform::Context ctx(**session, pool, level_);
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (stop_) break;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    for (int reads = 1; !finish(job, read(ctx, *job.version), reads == kMostReads);) ++reads;
    lock.lock();
  }
  for (auto& job : jobs_) {
    if (job.answer != nullptr) give(*job.answer, unavailable("the engine is shutting down"));
  }
}

}  // namespace choral::engine
