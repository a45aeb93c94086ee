// Which version a name stands for: looked up by requests, changed by what the loader read.
#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "base/printable.h"
#include "engine/adapters/adapter_registry.h"
#include "lora/peft/adapter_name.h"

namespace choral::engine {
namespace {

constexpr size_t kMaxEagerJobs = 8;
constexpr size_t kForgottenShare = 8;  // so much of the root's names goes at once, that it is seldom looked for

void log_refused(const std::string& name, const Status& why) {
  CHORAL_LOG(kWarn, "the changed files of adapter '{}' cannot be used, what they held before stays in use: {}", name,
             why.message());
}

// Bad files are not read again; a shortage, a failing disk, or files that somebody was writing, say nothing of the next try.
bool is_of_files(const Status& failure) {
  return failure.code() != Code::kResourceExhausted && failure.code() != Code::kUnavailable && failure.code() != Code::kInternal;
}

// What is told of a name, whatever it holds, and what is counted of one content.
void keep_history(const AdapterInfo& before, AdapterInfo& info) {
  info.errors += before.errors;
  info.last_use_unix_s = std::max(info.last_use_unix_s, before.last_use_unix_s);
}
void keep_counts(const AdapterInfo& before, AdapterInfo& info) {
  info.requests += before.requests;
  info.loads += before.loads;
}

}  // namespace

Result<VersionUse> AdapterRegistry::find(std::string_view name) {
  CHORAL_RETURN_IF_ERROR(lora::check_adapter_name(name));
  if (auto generation = find_generation(name)) return *std::move(generation);
  for (;;) {
    const Folders folders = this->folders();
    const auto place = place_of(name, folders);
    if (!place) {
      CHORAL_RETURN_IF_ERROR(discover(name, folders));
      continue;
    }
    const AdapterFacts facts = look_at_adapter(place->wanted);
    bool failed = false;
    {
      const std::lock_guard lock(mutex_);
      const auto found = names_.find(name);
      if (found == names_.end() || found->second.version->place != place->known) continue;  // unloaded or replaced meanwhile
      failed = found->second.failed;
      if (const auto version = choose(found->second, facts)) return use_of(version, failed);
    }
    if (failed) {
      CHORAL_RETURN_IF_ERROR(discover(name, folders));
    } else {
      renew(name, *place, folders, facts);
    }
  }
}

// `failed`: its first read, which a request waited for; the next one is answered by the failure that there was.
VersionUse AdapterRegistry::use_of(const std::shared_ptr<AdapterVersion>& version, bool failed) const {
  const int64_t most =
      version->was_read() ? version->info->get(&AdapterInfo::own_tokens) : config_.load.config.lora_extra_vocab_size;
  return {version, 1.0F, version->failed_reads - (failed ? 1 : 0), version->own, most};
}

// Nothing: the name is not known, or no more: where there are places, a name that was found and lies at none of them is
// forgotten, and so is one that was to be read elsewhere and was not yet.
std::optional<AdapterRegistry::Place> AdapterRegistry::place_of(std::string_view name, const Folders& folders) {
  std::vector<Name> gone;  // they die after the lock
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(name);
  if (found == names_.end()) return std::nullopt;
  Name& known = found->second;
  const AdapterVersion& version = *known.version;
  if (folders == nullptr) return Place{version.place, version.place, known.from_root};
  const auto placed = folders->find(name);
  if (placed != folders->end() && placed->second == version.place) follow_places(known);
  if (!known.from_root) return Place{version.place, version.place, false};
  const bool moved = placed != folders->end() && version.place != placed->second;
  if (placed == folders->end() || (moved && !version.was_read() && !known.failed)) {
    unpin_soon(known);
    forget(found, gone);
    return std::nullopt;
  }
  if (known.coming != nullptr && known.coming->place != placed->second) known.coming = nullptr;  // its requests have it
  return Place{version.place, placed->second, true};
}

// It was loaded by name from where it lies now: from now on it goes where its name's place goes.
void AdapterRegistry::follow_places(Name& name) {
  if (name.from_root) return;
  name.from_root = true;
  ++root_names_;
  name.version->info->change([](AdapterInfo& info) { info.is_found = true; });
}

Result<std::optional<std::filesystem::path>> AdapterRegistry::folder_of(std::string_view name, const Folders& folders) const {
  if (folders == nullptr && !config_.root.empty()) return lora::adapter_in_root(config_.root, name);
  if (folders == nullptr) return std::optional<std::filesystem::path>();
  const auto placed = folders->find(name);
  return placed == folders->end() ? std::nullopt : std::optional<std::filesystem::path>(placed->second);
}

// Its files were never read, but its first request wants to be. Where they are bad, the load says why.
void AdapterRegistry::look_for_own_tokens(VersionUse& use) {
  auto own = read_own_tokenizer(use.version->source, own_tokenizers_);
  const std::lock_guard lock(mutex_);
  auto& known = use.version->own;
  if (known == nullptr) known = own.ok() ? std::move(*own) : std::make_shared<const OwnTokenizer>();
  use.own = known;
}

bool AdapterRegistry::has_tokens_of(const VersionUse& use) const {
  const std::lock_guard lock(mutex_);
  const auto& own = use.version->own;
  return own == use.own || own == nullptr || use.own == nullptr || own->tokens == use.own->tokens;
}

// The version that files with these facts call for; null when nobody has read them yet.
std::shared_ptr<AdapterVersion> AdapterRegistry::choose(Name& name, const AdapterFacts& facts) {
  name.last_use = ++clock_;
  const auto& version = name.coming != nullptr ? name.coming : name.version;
  if (name.failed) return !facts.empty() && name.refused == facts ? version : nullptr;
  if (!version->was_read()) {
    version->awaited = facts;
    return version;
  }
  if (version->facts == facts) {
    // What was refused is gone, and the old files are back.
    if (name.refused) version->info->change([](AdapterInfo& info) { info.error.clear(); });
    name.refused.reset();
    return version;
  }
  return name.refused == facts ? version : nullptr;
}

// A folder of the root gets its name: for the first time, or because its files are no more those that could not be read.
Status AdapterRegistry::discover(std::string_view name, const Folders& folders) {
  CHORAL_TRY(const auto folder, folder_of(name, folders));
  std::vector<Name> gone;  // they die after the lock
  {
    const std::lock_guard lock(mutex_);
    const std::string key(name);
    const auto found = names_.find(key);
    if (found != names_.end() && !found->second.failed) return {};  // somebody was first
    std::optional<AdapterInfo> before;
    if (found != names_.end()) {
      before = found->second.version->info->get();
      forget(found, gone);
    }
    if (folder) {
      if (root_names_ >= config_.max_root_names) forget_idle_names(gone);
      auto version = make_version({key, folder->string()}, folders == nullptr ? config_.root + "/" + key : folder->string());
      version->info->change([](AdapterInfo& info) { info.is_found = true; });
      if (before) {
        version->info->change([&](AdapterInfo& info) {
          keep_history(*before, info);
          keep_counts(*before, info);
        });
      }
      load_soon(version);
      board_.put(key, version->info);
      names_[key] = {.version = std::move(version), .from_root = true, .last_use = ++clock_};
      ++root_names_;
    }
  }
  return folder ? Status() : unknown_name(name);
}

// Somebody is about to want it, and the engine would ask only when its step is done. Under a flood of names it decides alone.
void AdapterRegistry::load_soon(const std::shared_ptr<AdapterVersion>& version) {
  if (loader_->queued() >= kMaxEagerJobs) return;
  loader_->add({version});
  version->loading = true;
  version->info->change([](AdapterInfo& info) { info.state = AdapterState::kLoading; });
}

// The files that the name is to stand for are not those that were read, nor those that were refused.
void AdapterRegistry::renew(std::string_view name, const Place& place, const Folders& folders, const AdapterFacts& facts) {
  std::string path = place.wanted;
  Status refused;
  if (place.from_root) {
    const auto folder = folder_of(name, folders);  // a link may lead elsewhere now
    if (!folder.ok()) {
      refused = folder.status();
    } else if (!*folder) {
      refused = not_found("{} is gone", place.wanted);
    } else {
      path = (*folder)->string();
    }
  }
  std::unique_lock lock(mutex_);
  const auto found = names_.find(name);
  if (found == names_.end() || found->second.version->place != place.known || choose(found->second, facts) != nullptr) return;
  Name& changed = found->second;
  if (refused.ok()) {
    auto coming = make_version({found->first, path}, place.wanted);
    coming->info->change([&](AdapterInfo& info) { info.is_found = place.from_root; });
    coming->older = changed.version;
    load_soon(coming);
    changed.coming = std::move(coming);
    return;
  }
  changed.refused = facts;
  changed.version->info->change([&](AdapterInfo& info) {
    info.error = refused.to_string();
    ++info.errors;
  });
  lock.unlock();
  log_refused(std::string(name), refused);
}

// The generation of what was read, where its name is to stand for it and did not before; else 0.
Result<int> AdapterRegistry::number_read(const AdapterLoader::Job& job, const AdapterRead& read, bool last) {
  if (!read.packed.ok() || !read.whole || job.answer != nullptr) return 0;
  const AdapterVersion& version = *job.version;
  const std::string digest = to_hex((*read.packed)->digest());
  {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(version.request.lora_name);
    if (found == names_.end() || version.digest == digest) return 0;
    if (found->second.coming != job.version && found->second.version != job.version) return 0;
    if (!last && version.awaited && *version.awaited != read.facts) return 0;  // they are read again
  }
  return generations().number_of(version.request.lora_name, digest);
}

bool AdapterRegistry::take_read(AdapterLoader::Job& job, AdapterRead read, bool last) {
  AdapterVersion& version = *job.version;
  const std::string key = version.request.lora_name;
  const std::lock_guard order(order_);
  const auto generation = number_read(job, read, last);
  if (!generation.ok()) read.packed = Status(generation.status()).while_(fmt::format("adapter '{}'", key));
  std::unique_lock lock(mutex_);
  const bool outdated = version.awaited && *version.awaited != read.facts;
  version.awaited.reset();
  if (!last && (!read.whole || outdated)) return false;
  if (!read.whole) {
    read.packed =
        unavailable("adapter '{}' ({}): its files change while they are read; write them elsewhere, then move the folder", key,
                    version.request.lora_path);
  }
  if (job.answer != nullptr) give(*job.answer, read.packed.ok() ? Status() : read.packed.status());
  if (job.answer != nullptr && !read.packed.ok()) return true;  // the name was never given
  version.info->change([](AdapterInfo& info) { ++info.loads; });
  const auto found = names_.find(key);
  Name* name = found != names_.end() ? &found->second : nullptr;
  const bool comes = name != nullptr && name->coming == job.version;
  const bool stands = name != nullptr && name->version == job.version;
  Status refused;
  std::vector<std::string> notes;
  Versions gone;  // they die after the lock
  if (read.packed.ok()) {
    if (version.info->get(&AdapterInfo::notes).empty()) notes = read.described.notes;
    take(std::move(job.version), std::move(read), name, comes, stands, *generation, gone);
  } else {
    const Status& why = read.packed.status();
    if (comes) {
      name->coming = nullptr;
      if (generation.ok() && is_of_files(why)) name->refused = std::move(read.facts);
      name->version->info->change([&](AdapterInfo& info) {
        if (info.error != why.to_string()) refused = why;
        info.error = why.to_string();
        ++info.errors;
      });
    } else if (stands && version.was_read()) {
      version.info->change([](AdapterInfo& info) { ++info.errors; });
    } else if (stands) {
      keep_failure(*name, generation.ok() ? read.facts : AdapterFacts{}, why);
    }
    ++version.failed_reads;
    loaded_.push_back({std::move(job.version), std::move(read.packed)});
  }
  if (wake_) wake_();
  lock.unlock();
  if (!refused.ok()) log_refused(key, refused);
  for (const auto& note : notes) CHORAL_LOG(kWarn, "adapter '{}': {}", printable(key), note);
  return true;
}

// `version` was read: for the first time, or again. What it held before it holds for good; other contents are another version's.
void AdapterRegistry::take(std::shared_ptr<AdapterVersion> version, AdapterRead read, Name* name, bool comes, bool stands,
                           int generation, Versions& gone_versions) {
  const std::string digest = to_hex((*read.packed)->digest());
  const bool other = version->was_read() && version->digest != digest;
  if (other) {
    Status gone = unavailable("adapter '{}' is gone, and {} changed since this request came; load it again",
                              version->request.lora_name, version->request.lora_path);
    ++version->failed_reads;
    loaded_.push_back({version, std::move(gone)});
    if (!stands || name->coming != nullptr) return;  // its name means something else by now
    version = make_version({version->request.lora_name, version->request.lora_path}, version->place);
    version->info->change([&](AdapterInfo& info) {
      info.loads = 1;
      info.is_found = name->from_root;
    });
  }
  version->own = std::move(read.own);
  version->digest = digest;
  version->info->change([&](AdapterInfo& info) {
    info.kind = std::move(read.described.kind);
    info.notes = std::move(read.described.notes);
    info.digest = digest;
    info.rank = static_cast<int>((*read.packed)->rank());
    info.own_tokens = static_cast<int>((*read.packed)->own_tokens());
    info.size_bytes = (*read.packed)->size_bytes();
    if (generation > 0) info.generation = generation;
  });
  loaded_bytes_ += (*read.packed)->size_bytes();
  version->facts = std::move(read.facts);
  if (comes || other) {
    promote(*name, version, gone_versions);
  } else if (stands) {
    if (name->refused) version->info->change([](AdapterInfo& info) { info.error.clear(); });
    name->refused.reset();
    name->failed = false;
  }
  loaded_.push_back({std::move(version), std::move(read.packed), read.seconds});
}

// The older version is held by `version` or by what loaded_ has of it, until the engine has taken this in.
void AdapterRegistry::promote(Name& name, std::shared_ptr<AdapterVersion> version, Versions& gone) {
  const AdapterInfo older = name.version->info->get();
  version->info->change([&](AdapterInfo& info) {
    keep_history(older, info);
    if (older.digest == info.digest) keep_counts(older, info);  // the files were written anew with what they held
  });
  board_.put(older.name, version->info);
  if (name.pinned) {
    pins_.push_back({name.version, false});
    pins_.push_back({version, true});
  }
  std::swap(name.version, version);
  name.coming = nullptr;
  name.refused.reset();
  keep_generation(older.name, std::move(version), name.version->digest, gone);
}

// From now on the name is only told. A shortage is forgotten by the next request, which looks anew.
void AdapterRegistry::keep_failure(Name& name, const AdapterFacts& facts, const Status& why) {
  if (is_of_files(why)) name.refused = facts;
  name.failed = true;
  name.version->info->change([&](AdapterInfo& info) {
    info.state = AdapterState::kFailed;
    info.error = why.to_string();
    ++info.errors;
  });
}

void AdapterRegistry::forget(Names::iterator name, std::vector<Name>& gone) {
  if (name->second.from_root) --root_names_;
  board_.erase(name->first);
  gone.push_back(std::move(name->second));
  names_.erase(name);
}

// Of the root's names those unused longest that nobody needs.
void AdapterRegistry::forget_idle_names(std::vector<Name>& gone) {
  std::vector<Names::iterator> idle;
  for (auto it = names_.begin(); it != names_.end(); ++it) {
    const Name& name = it->second;
    if (name.from_root && name.coming == nullptr && name.version.use_count() == 1 &&
        !name.version->info->get(&AdapterInfo::pinned))
      idle.push_back(it);
  }
  const size_t count = std::min(idle.size(), std::max<size_t>(1, config_.max_root_names / kForgottenShare));
  std::nth_element(idle.begin(), idle.begin() + static_cast<ptrdiff_t>(count), idle.end(),
                   [](auto a, auto b) { return a->second.last_use < b->second.last_use; });
  for (size_t i = 0; i < count; ++i) forget(idle[i], gone);
}

std::shared_ptr<AdapterVersion> AdapterRegistry::present(const AdapterVersion& version) const {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(version.request.lora_name);
  if (found == names_.end()) return nullptr;
  return found->second.coming != nullptr ? found->second.coming : found->second.version;
}

}  // namespace choral::engine
