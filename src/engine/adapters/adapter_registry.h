// All adapters of an engine by name. Loader threads read, check and pack their files beside the engine's loop (adapter_loader.h).
// The engine thread takes the result and alone decides what stays in memory (adapter_residency.h).
// A name stands for what its files hold. resolve() and pin() look at the files (stat only). When they are not those of the name's
// version, a new version is loaded beside the engine and takes the name once it is read. Files that cannot be read leave the name
// as it was, and are not tried again until they change. A request keeps its version while that is in memory or can be read again
// unchanged; otherwise a waiting request goes over to the name's present version. docs/adapters.md states it for users.
// Thread-safe; no call but load() and pin() waits. The engine thread waits for the lock too, so no file is looked at, and not all
// names are gone through, under it. Lists of names and hints are made beside it (adapter_names.h, adapter_hints.h).
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/adapters/adapter_hints.h"
#include "engine/adapters/adapter_loader.h"
#include "engine/adapters/adapter_names.h"
#include "engine/adapters/adapter_version.h"
#include "engine/adapters/counted_generations.h"
#include "lora/lora_config.h"

namespace choral::engine {

// What the loader made of a version's files.
struct LoadedAdapter {
  std::shared_ptr<AdapterVersion> version;
  Result<std::shared_ptr<const lora::PackedAdapter>> packed;
  double seconds = 0;  // AdapterRead's
};

class AdapterRegistry : private AdapterLoader::Client {
 public:
  struct Config {
    lora::LoRALoadOptions load;                                  // its config, and what is known of the model
    std::shared_ptr<const text::Tokenizer> tokenizer = nullptr;  // the base's; null: it has none
    std::string root;                                            // where names that were not given are looked for; empty: nowhere
    std::shared_ptr<const AdapterPlaces> places = nullptr;       // which may know better; null: nobody does
    int64_t budget_bytes = 0;                                    // for packed adapters, AdapterResidency's; 0: no limit
    size_t max_root_names = 10'000;                              // known at a time; those unused longest are forgotten
    std::shared_ptr<AdapterGenerations> generations = nullptr;   // null: counted here
    int generations_alive = 1;                                   // of a name; more: the earlier ones go by NAME@GENERATION
  };
  // The loader has threads and scratch of its own, and packs at `level`. `targets` outlive this.
  static Result<std::shared_ptr<AdapterRegistry>> make(CpuLevel level, std::span<const lora::LoRATarget> targets, Config config);
  ~AdapterRegistry() override;

  // --- callers ---
  // Reads, checks and packs the files, pins them if the spec says so, then puts them under the name. A name that exists is
  // replaced, or already_exists; with `expected_generation` so is one at another generation (LLM::load_adapter). A name whose
  // load or pin fails keeps what it had.
  Status load(const AdapterSpec& spec, bool replace, std::optional<int> expected_generation = {});
  Status unload(std::string_view name, std::optional<int> expected_generation = {});
  // Waits for the engine thread, which may have to load it; says why it cannot stay in memory.
  Status pin(std::string_view name, bool pinned);
  // Sorted by name. With names of the root whose files could not be read when a request wanted them: until one does when they
  // have changed or are gone.
  std::vector<AdapterInfo> list() const;
  AdapterNames names() const { return board_.names(); }               // of list()
  std::optional<AdapterInfo> find_info(std::string_view name) const;  // of list(); none: there is no such name
  // What the name's files, or bytes, change in the model. Reads them on the caller's thread.
  Result<std::vector<AdapterLayer>> layers(std::string_view name);
  const AdapterHints& hints() const { return hints_; }
  // The version of each name that its files call for, which may be one that is still to be loaded. Unknown names are errors that
  // tell the nearest.
  Result<std::vector<VersionUse>> resolve(std::span<const AdapterUse> uses);
  // The same for what is no request: it counts as no use of them.
  Result<std::vector<VersionUse>> look_up(std::span<const AdapterUse> uses);

  // --- the engine thread ---
  // Called, from any thread, when take_loaded() or take_pins() has something new, or a version ended. Empty: the engine ends, and
  // nobody waits for it any more.
  void set_wake(std::function<void()> wake);
  // Asks for the files again (or for the first time); the answer comes by take_loaded().
  void request_load(std::shared_ptr<AdapterVersion> version);
  void take_loaded(std::vector<LoadedAdapter>& out);  // appends
  using Answer = AdapterLoader::Answer;
  // To keep a version in memory, or no longer; each is answered once.
  struct PinWish {
    std::shared_ptr<AdapterVersion> version;
    bool pinned = false;
    Answer* answer = nullptr;     // null: no caller waits
    int64_t failures_before = 0;  // as VersionUse
    bool of_name = false;         // granted to what the name stands for by then, whichever version it was asked for
    bool tried = false;           // the engine's: a load was waited for
  };
  void take_pins(std::vector<PinWish>& out);  // appends
  void answer_pin(const PinWish& wish, const Status& status);
  template <class Change>
  void update(AdapterVersion& version, Change change) {
    version.info->change(change);
  }
  // A request that named it came or ended.
  void note_use(AdapterVersion& version, bool is_new);
  // Versions that ended so far: whoever held one last, a name, a request, or a caller whose request was refused.
  uint64_t ended_versions() const { return ends_->count(); }
  // A content that one of them had; null: there is none that was not taken.
  std::shared_ptr<AdapterContent> take_ended_content() { return ends_->take(); }
  // The version that its name stands for now, maybe itself or one that is still to be loaded; null: the name is gone.
  std::shared_ptr<AdapterVersion> present(const AdapterVersion& version) const;
  // Whether the version's files add the tokens that the request was read with.
  bool has_tokens_of(const VersionUse& use) const;

 private:
  struct Name {
    std::shared_ptr<AdapterVersion> version = nullptr;
    std::shared_ptr<AdapterVersion> coming = nullptr;    // of changed files; takes the name once it is read
    std::optional<AdapterFacts> refused = std::nullopt;  // files that could not be read: not tried again while they are the same
    bool failed = false;                                 // of the root and never read: free for others, until then only told
    bool from_root = false;                              // the name was not given: it was found in the root
    bool pinned = false;                                 // goes over to the version that takes the name
    uint64_t last_use = 0;
    std::vector<std::shared_ptr<AdapterVersion>> earlier = {};  // that can still be asked for, oldest first
  };
  using Names = std::map<std::string, Name, std::less<>>;
  using Versions = std::vector<std::shared_ptr<AdapterVersion>>;
  AdapterRegistry(std::span<const lora::LoRATarget> targets, Config config)
      : config_(std::move(config)), own_tokenizers_{config_.tokenizer, targets, config_.load}, hints_(config_.root) {}
  // The engine thread took so much of what is packed that `packed_bytes` more are not too many.
  Status admit(int64_t packed_bytes) override;
  bool take_read(AdapterLoader::Job& job, AdapterRead read, bool last) override;
  // These take the lock themselves.
  Result<int> number_read(const AdapterLoader::Job& job, const AdapterRead& read, bool last);
  Result<VersionUse> find(std::string_view name);
  std::optional<VersionUse> find_generation(std::string_view name);
  void look_for_own_tokens(VersionUse& use);
  using Folders = std::shared_ptr<const AdapterPlaces::Folders>;
  Folders folders() const { return config_.places == nullptr ? nullptr : config_.places->now(); }
  Result<std::optional<std::filesystem::path>> folder_of(std::string_view name, const Folders& folders) const;
  Status discover(std::string_view name, const Folders& folders);
  // Where the name's files are, and that it is one that was found.
  struct Place {
    std::string known;   // its version's
    std::string wanted;  // as it should be by now
    bool from_root = false;
  };
  std::optional<Place> place_of(std::string_view name, const Folders& folders);
  void renew(std::string_view name, const Place& place, const Folders& folders, const AdapterFacts& facts);
  Status unknown_name(std::string_view name);
  Status wait_for_pin(std::unique_lock<std::mutex>& lock, PinWish wish);
  // These are called under the lock.
  void give(Answer& answer, Status status);
  bool is_taken(std::string_view name) const;
  Status check_generation(std::string_view name, int expected) const;
  Status may_take(std::string_view name, bool replace, std::optional<int> expected_generation) const;
  std::shared_ptr<AdapterVersion> make_version(const AdapterSpec& spec, std::string place = "");
  void unpin_soon(const Name& gone);
  VersionUse use_of(const std::shared_ptr<AdapterVersion>& version, bool failed) const;
  // The name stands for another content from now on. What leaves in its place goes to `gone`, to die after the lock.
  void keep_generation(const std::string& name, std::shared_ptr<AdapterVersion> version, std::string_view digest_now,
                       Versions& gone);
  void show_earlier(AdapterInfo& info) const;
  bool pass_on(const PinWish& wish, const Name& name);
  std::shared_ptr<AdapterVersion> choose(Name& name, const AdapterFacts& facts);
  void follow_places(Name& name);
  void load_soon(const std::shared_ptr<AdapterVersion>& version);
  void take(std::shared_ptr<AdapterVersion> version, AdapterRead read, Name* name, bool comes, bool stands, int generation,
            Versions& gone);
  void promote(Name& name, std::shared_ptr<AdapterVersion> version, Versions& gone);
  AdapterGenerations& generations() { return config_.generations != nullptr ? *config_.generations : counted_; }
  // These two move them to `gone`, to die after the lock.
  void forget(Names::iterator name, std::vector<Name>& gone);
  void forget_idle_names(std::vector<Name>& gone);
  static void keep_failure(Name& name, const AdapterFacts& facts, const Status& why);

  Config config_;
  OwnTokenizerSource own_tokenizers_;
  AdapterHints hints_;
  AdapterNameBoard board_;  // told of each change of names_

  // Held, before the lock, while a name comes to stand for another content: its generation is kept first, which may wait for a
  // disk, and what is kept and what is told are in one order. The engine thread never takes it.
  std::mutex order_;
  mutable std::mutex mutex_;          // guards all below
  std::condition_variable taken_;     // loaded_ is empty, or is not taken any more
  std::condition_variable answered_;  // a load() or pin() is done
  std::function<void()> wake_;
  Names names_;
  size_t root_names_ = 0;  // of them, from the root
  uint64_t clock_ = 0;     // of last_use
  CountedGenerations counted_;
  std::vector<LoadedAdapter> loaded_;
  int64_t loaded_bytes_ = 0;  // of the packed ones among them
  std::vector<PinWish> pins_;
  const std::shared_ptr<VersionEnds> ends_ = std::make_shared<VersionEnds>();  // versions may outlive this
  int32_t next_id_ = 1;
  bool stop_ = false;
  std::unique_ptr<AdapterLoader> loader_;
};

}  // namespace choral::engine
