// The contents of adapters' files. Equal contents are one, whatever names lead to them. A content is known by its digest when
// files were read and by its id from then on, whether its weights are in memory or not. It ends with the last version that holds
// it, which says so (VersionEnds); review() looks between two steps. Engine thread only.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/sha256.h"
#include "engine/adapters/adapter_version.h"
#include "lora/adapter_ids.h"
#include "lora/store/packed_adapter.h"

namespace choral::engine {

// Its size, and whether it is in memory, pinned or held, is in sched::AdapterMemory under its id.
struct AdapterContent {
  lora::AdapterId id;
  Sha256Digest digest{};
  bool replaces = false;                   // PackedAdapter::replaces()
  int64_t own_tokens = 0;                  // PackedAdapter::own_tokens()
  std::vector<int32_t> invocation_tokens;  // PackedAdapter::invocation_tokens()

  std::shared_ptr<const lora::PackedAdapter> packed = nullptr;  // while it is in memory
  std::vector<std::weak_ptr<AdapterVersion>> versions = {};     // that hold it
  const std::shared_ptr<ContentPlace> place = std::make_shared<ContentPlace>();

  // VersionEnds' own.
  bool is_told_of = false;
  std::shared_ptr<AdapterContent> told_of_next = nullptr;

  // By one of its names.
  bool is_pinned() const;
};

class AdapterContents {
 public:
  std::shared_ptr<AdapterContent> find(const Sha256Digest& digest) const;  // null: not known
  // Of files with a digest that is not known. The weights themselves are not taken.
  std::shared_ptr<AdapterContent> add(const lora::PackedAdapter& packed);
  AdapterContent& at(lora::AdapterId id) const { return *contents_.at(id); }
  size_t size() const { return contents_.size(); }

  // When versions of it ended: its `versions` are those that live. False: it has none, and is forgotten.
  bool review(AdapterContent& content);

 private:
  std::map<lora::AdapterId, std::shared_ptr<AdapterContent>> contents_;
  std::map<Sha256Digest, lora::AdapterId> by_digest_;
  int32_t next_id_ = 1;  // none is used twice
};

}  // namespace choral::engine
