// One content of one adapter name. Replacing a name makes a new version; requests keep the one they came for by holding a
// pointer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "choral/llm.h"

namespace choral::engine {

struct AdapterContent;  // engine/adapter_residency.h

struct AdapterVersion {
  AdapterVersion(int32_t version_id, AdapterSpec version_spec, int version_generation, bool version_from_root)
      : id(version_id), generation(version_generation), from_root(version_from_root), spec(std::move(version_spec)) {
    info.name = spec.name;
    info.path = spec.path;
    info.id = id;
    info.generation = generation;
  }

  const int32_t id;
  const int generation;
  const bool from_root;  // nobody gave this name: it was found in the root
  const AdapterSpec spec;

  AdapterInfo info;  // guarded by the registry

  // The engine thread's: what the files held, once loaded; then it stays, whether its weights are in memory or not.
  std::shared_ptr<AdapterContent> content;
  bool pinned = false;   // its content stays in memory for it
  bool loading = false;  // the loader was asked and did not answer yet; the registry sets it before anybody else has this
  Status failure;        // why it could not be had when it was tried last
  int64_t failures = 0;  // times so
};

// One adapter of a request.
struct VersionUse {
  std::shared_ptr<AdapterVersion> version;
  float scale = 1.0F;
  int64_t failures_before = 0;  // when the request came: a new request is a new try

  bool failed() const { return version->failures > failures_before && !version->failure.ok(); }
};

}  // namespace choral::engine
