// One content of one adapter name. A name whose files change, or that is replaced, gets a new version. A request keeps the
// version it came for by holding a pointer (the rule: adapter_registry.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/typed_id.h"
#include "choral/llm.h"
#include "engine/adapters/adapter_names.h"
#include "engine/adapters/file_facts.h"
#include "engine/adapters/own_tokenizer.h"
#include "lora/lora_request.h"
#include "lora/peft/adapter_source.h"

namespace choral::engine {

struct AdapterContent;  // engine/adapters/adapter_contents.h

using VersionId = TypedId<struct VersionIdTag>;  // of one registry, in the order in which they were made

// Counts the versions of a registry that ended, and tells the engine which contents they had: these may have no version now. A
// version ends with its last holder, which may be a caller whose request was refused, or a name. Thread-safe.
class VersionEnds {
 public:
  ~VersionEnds();
  uint64_t count() const { return count_.load(); }
  // Null: it had none.
  void add(std::shared_ptr<AdapterContent> content);
  // One of those told of since it was taken last; null: there is none.
  std::shared_ptr<AdapterContent> take();
  // Called by add(), from any thread. Empty: no more calls.
  void set_wake(std::function<void()> wake);

 private:
  std::atomic<uint64_t> count_{0};
  std::mutex mutex_;
  std::shared_ptr<AdapterContent> contents_;  // each knows the next: an end needs no memory
  std::function<void()> wake_;
};

struct AdapterVersion {
  // `version_place`: where its files are looked at, if not at the spec's path. `told_of_end`: null for nobody.
  AdapterVersion(VersionId id, const AdapterSpec& spec, std::string version_place = "",
                 std::shared_ptr<VersionEnds> told_of_end = nullptr)
      : request{.lora_name = spec.name, .lora_int_id = id.value(), .lora_path = spec.path},
        source(source_of(spec)),
        place(version_place.empty() ? spec.path : std::move(version_place)),
        ends(std::move(told_of_end)) {
    info->change([&](AdapterInfo& told) {
      told.name = spec.name;
      told.path = spec.path;
      told.id = id.value();
    });
  }
  ~AdapterVersion() {
    if (ends != nullptr) ends->add(std::move(content));
  }
  AdapterVersion(const AdapterVersion&) = delete;
  AdapterVersion& operator=(const AdapterVersion&) = delete;

  static lora::AdapterSource source_of(const AdapterSpec& spec);

  const lora::LoRARequest request;   // of a name found in the root: its path without links
  const lora::AdapterSource source;  // that path, or bytes
  const std::string place;           // the path with links; empty of bytes, which never change
  const std::shared_ptr<VersionEnds> ends;
  const std::shared_ptr<ShownInfo> info = std::make_shared<ShownInfo>(AdapterInfo{});  // has a lock of its own

  // Guarded by the registry. Its content is fixed when its files are read for the first time, and the digest set with it.
  std::shared_ptr<const OwnTokenizer> own;  // as last read; null: not read yet
  AdapterFacts facts;                       // of the files as last read
  std::optional<AdapterFacts> awaited;      // what a request saw of them before they were read: older ones must not answer it
  std::string digest;                       // the info's
  bool was_read() const { return !digest.empty(); }
  int64_t failed_reads = 0;  // that the engine thread is, or will be, told of

  // The engine thread's: what the files held, once loaded; then it stays, whether its weights are in memory or not.
  std::shared_ptr<AdapterContent> content;
  std::shared_ptr<AdapterVersion> older;  // its name's version until this one is loaded, which answers when it cannot be
  bool pinned = false;                    // its content stays in memory for it
  bool loading = false;  // the loader was asked and did not answer yet; the registry sets it before anybody else has this
  Status failure;        // why it could not be had when it was tried last
  int64_t failures = 0;  // the failed reads that it was told of
};

// One adapter of a request.
struct VersionUse {
  std::shared_ptr<AdapterVersion> version;
  float scale = 1.0F;
  int64_t failures_before = 0;                        // failed reads until the request came: a new request is a new try
  std::shared_ptr<const OwnTokenizer> own = nullptr;  // what the request is read with
  int64_t most_own_tokens = 0;                        // that it may name: until the files are read, as many as are allowed
  bool is_exact = false;                              // this content, and no other that the name has

  bool failed() const { return version->failures > failures_before && !version->failure.ok(); }
};

}  // namespace choral::engine
