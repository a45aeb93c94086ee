#include "engine/adapters/adapter_registry.h"

#include <algorithm>

#include "base/unix_clock.h"
#include "engine/adapters/adapter_layers.h"
#include "engine/sampling_check.h"
#include "lora/peft/adapter_name.h"

namespace choral::engine {
namespace {

// Packed adapters that the engine thread did not take in yet may fill this share of the budget, and be one of each loader thread
// beyond it.
constexpr int64_t kHandoverShare = 4;

}  // namespace

Result<std::shared_ptr<AdapterRegistry>> AdapterRegistry::make(CpuLevel level, std::span<const lora::LoRATarget> targets,
                                                               Config config) {
  AdapterLoader::Config loader{level, targets, config.load, config.tokenizer, config.budget_bytes};
  std::shared_ptr<AdapterRegistry> made(new AdapterRegistry(targets, std::move(config)));
  CHORAL_TRY(made->loader_, AdapterLoader::make(*made, std::move(loader)));
  return made;
}

AdapterRegistry::~AdapterRegistry() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  taken_.notify_all();
  if (loader_ == nullptr) return;
  const auto left = loader_->stop();
  const std::lock_guard lock(mutex_);
  for (const auto& job : left) {
    if (job.answer != nullptr) give(*job.answer, unavailable("the engine is shutting down"));
  }
}

void AdapterRegistry::set_wake(std::function<void()> wake) {
  ends_->set_wake(wake);
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

Status AdapterRegistry::check_generation(std::string_view name, int expected) const {
  const auto found = names_.find(name);
  const int generation = found == names_.end() ? 0 : found->second.version->info->get(&AdapterInfo::generation);
  if (generation == expected) return {};
  return already_exists("adapter '{}' is at generation {}, not {}", name, generation, expected);
}

bool AdapterRegistry::is_taken(std::string_view name) const {
  const auto found = names_.find(name);
  return found != names_.end() && !found->second.failed;
}

Status AdapterRegistry::may_take(std::string_view name, bool replace, std::optional<int> expected_generation) const {
  if (expected_generation) return check_generation(name, *expected_generation);
  if (replace || !is_taken(name)) return {};
  return already_exists("adapter '{}' is loaded; unload it first or ask to replace it", name);
}

Status AdapterRegistry::load(const AdapterSpec& spec, bool replace, std::optional<int> expected_generation) {
  CHORAL_RETURN_IF_ERROR(lora::check_adapter_name(spec.name));
  if (spec.bytes != nullptr && !spec.path.empty())
    return invalid_argument("adapter '{}' has a path and bytes; give one of them", spec.name);
  std::unique_lock lock(mutex_);
  CHORAL_RETURN_IF_ERROR(may_take(spec.name, replace, expected_generation));
  auto version = make_version(spec);
  if (spec.bytes == nullptr) CHORAL_RETURN_IF_ERROR(version->request.validate());
  Answer answer;
  loader_->add({version, &answer});
  answered_.wait(lock, [&] { return answer.given; });
  if (!answer.status.ok()) return answer.status;
  if (spec.pinned) {
    CHORAL_RETURN_IF_ERROR(wait_for_pin(lock, {.version = version, .pinned = true, .failures_before = version->failed_reads}));
  }
  lock.unlock();
  const std::lock_guard order(order_);
  lock.lock();
  Name gone{.version = version};                                    // the older one, or the new one that finds its name taken
  Status free = may_take(spec.name, replace, expected_generation);  // others may have loaded it meanwhile
  if (free.ok()) {
    const std::string digest = version->digest;
    lock.unlock();
    if (spec.last_generation > 0) counted_.go_on_from(spec.name, spec.last_generation, spec.last_digest);
    const auto generation = generations().number_of(spec.name, digest);
    lock.lock();
    free = generation.status();
    if (generation.ok()) version->info->change([&](AdapterInfo& info) { info.generation = *generation; });
  }
  if (free.ok()) {
    Name& name = names_[spec.name];
    if (name.from_root) --root_names_;
    gone = std::exchange(name, {.version = version, .pinned = spec.pinned, .last_use = ++clock_});
    name.earlier = std::move(gone.earlier);
    if (gone.version != nullptr) keep_generation(spec.name, gone.version, version->digest, gone.earlier);
    board_.put(spec.name, version->info);
  }
  unpin_soon(gone);
  return free;
}

Status AdapterRegistry::unload(std::string_view name, std::optional<int> expected_generation) {
  CHORAL_RETURN_IF_ERROR(lora::check_adapter_name(name));
  std::vector<Name> gone;
  {
    const std::lock_guard order(order_);
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(name);
    if (found != names_.end()) {
      if (expected_generation) CHORAL_RETURN_IF_ERROR(check_generation(name, *expected_generation));
      forget(found, gone);
      unpin_soon(gone.front());
    }
  }
  return gone.empty() ? unknown_name(name) : Status();
}

std::shared_ptr<AdapterVersion> AdapterRegistry::make_version(const AdapterSpec& spec, std::string place) {
  return std::make_shared<AdapterVersion>(VersionId{next_id_++}, spec, std::move(place), ends_);
}

void AdapterRegistry::unpin_soon(const Name& gone) {
  if (gone.version == nullptr || !gone.version->info->get(&AdapterInfo::pinned)) return;
  pins_.push_back({gone.version, false});
  if (wake_) wake_();
}

Status AdapterRegistry::pin(std::string_view name, bool pinned) {
  CHORAL_TRY(auto use, find(name));
  std::unique_lock lock(mutex_);
  if (const auto found = names_.find(name); found != names_.end() && !pinned) {
    found->second.pinned = false;
    if (found->second.version != use.version) pins_.push_back({found->second.version, false});  // the other may never come
  }
  return wait_for_pin(
      lock, {.version = std::move(use.version), .pinned = pinned, .failures_before = use.failures_before, .of_name = true});
}

Status AdapterRegistry::wait_for_pin(std::unique_lock<std::mutex>& lock, PinWish wish) {
  if (!wake_) return unavailable("the engine is shutting down");
  Answer answer;
  wish.answer = &answer;
  pins_.push_back(std::move(wish));
  wake_();
  answered_.wait(lock, [&] { return answer.given; });
  return answer.status;
}

void AdapterRegistry::answer_pin(const PinWish& wish, const Status& status) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(wish.version->request.lora_name);
  if (wish.of_name && found != names_.end() && pass_on(wish, found->second)) return;
  const bool pinned = wish.pinned && status.ok();
  const bool unloaded = wish.of_name && found == names_.end() && status.ok();
  if (found != names_.end() && found->second.version == wish.version) found->second.pinned = pinned;
  const bool refused = found != names_.end() && found->second.refused.has_value();  // whose reason stays
  wish.version->info->change([&](AdapterInfo& info) {
    info.pinned = pinned;
    if (wish.pinned && !(status.ok() && refused)) info.error = status.ok() ? "" : status.to_string();
  });
  if (wish.answer == nullptr) return;
  give(*wish.answer, unloaded ? not_found("adapter '{}' was unloaded meanwhile", wish.version->request.lora_name) : status);
}

// To the version that the name has instead of the wish's: one that took its place, or the one before it when it could not be
// read.
bool AdapterRegistry::pass_on(const PinWish& wish, const Name& name) {
  if (name.version == wish.version || name.coming == wish.version) return false;
  if (wish.pinned) pins_.push_back({wish.version, false});
  PinWish passed = wish;
  passed.version = name.version;
  passed.failures_before = name.version->failed_reads;
  passed.tried = false;
  pins_.push_back(std::move(passed));
  if (wake_) wake_();
  return true;
}

std::optional<AdapterInfo> AdapterRegistry::find_info(std::string_view name) const {
  std::shared_ptr<const ShownInfo> info;
  {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(name);
    if (found == names_.end()) return std::nullopt;
    info = found->second.version->info;
  }
  AdapterInfo found = info->get();
  if (config_.generations_alive > 1) show_earlier(found);
  return found;
}

Result<std::vector<VersionUse>> AdapterRegistry::resolve(std::span<const AdapterUse> uses) {
  CHORAL_TRY(auto found, look_up(uses));
  for (const auto& named : found) note_use(*named.version, /*is_new=*/true);
  return found;
}

Result<std::vector<VersionUse>> AdapterRegistry::look_up(std::span<const AdapterUse> uses) {
  if (uses.size() > lora::kMaxVoiceTerms) {
    return invalid_argument("{} adapters in one request; at most {} can act together", uses.size(), lora::kMaxVoiceTerms);
  }
  std::vector<VersionUse> found;
  for (const auto& use : uses) {
    CHORAL_RETURN_IF_ERROR(check_adapter_scale(use));
    CHORAL_TRY(VersionUse named, find(use.name));
    if (named.own == nullptr) look_for_own_tokens(named);
    named.scale = use.scale;
    found.push_back(std::move(named));
  }
  return found;
}

Result<std::vector<AdapterLayer>> AdapterRegistry::layers(std::string_view name) {
  CHORAL_TRY(const VersionUse use, find(name));
  return read_adapter_layers(use.version->source, own_tokenizers_.targets, config_.load);
}

void AdapterRegistry::note_use(AdapterVersion& version, bool is_new) {
  const double now = unix_s();
  version.info->change([&](AdapterInfo& info) {
    info.requests += is_new ? 1 : 0;
    info.last_use_unix_s = std::max(info.last_use_unix_s, now);
  });
}

Status AdapterRegistry::unknown_name(std::string_view name) {
  if (const auto [plain, generation] = lora::split_generation(name); generation && find_info(plain)) {
    return not_found(
        "adapter '{}' has no generation {} that can be asked for, or no more: --adapter-generations ({}) says how many are kept",
        plain, *generation, config_.generations_alive);
  }
  const std::string near = hints_.nearest(name, *names());
  return not_found("no adapter is named '{}'{}; load it first (load_adapter, --lora NAME=PATH){}", name,
                   near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near),
                   config_.root.empty() ? "" : fmt::format(" or put it into {}", config_.root));
}

void AdapterRegistry::request_load(std::shared_ptr<AdapterVersion> version) {
  version->info->change([](AdapterInfo& info) {
    if (info.state == AdapterState::kFailed) info.error.clear();
    info.state = AdapterState::kLoading;
  });
  loader_->add({std::move(version)});
}

void AdapterRegistry::take_loaded(std::vector<LoadedAdapter>& out) {
  const std::lock_guard lock(mutex_);
  out.reserve(out.size() + loaded_.size());  // all or none
  for (auto& one : loaded_) out.push_back(std::move(one));
  loaded_.clear();
  loaded_bytes_ = 0;
  taken_.notify_all();
}

Status AdapterRegistry::admit(int64_t packed_bytes) {
  std::unique_lock lock(mutex_);
  taken_.wait(lock, [&] {
    const bool fits = config_.budget_bytes == 0 || loaded_bytes_ + packed_bytes <= config_.budget_bytes / kHandoverShare;
    return stop_ || !wake_ || loaded_bytes_ == 0 || fits;
  });
  return stop_ ? unavailable("the engine is shutting down") : Status();
}

void AdapterRegistry::take_pins(std::vector<PinWish>& out) {
  const std::lock_guard lock(mutex_);
  out.reserve(out.size() + pins_.size());
  for (auto& one : pins_) out.push_back(std::move(one));
  pins_.clear();
}

}  // namespace choral::engine
