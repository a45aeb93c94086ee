// What the first rank tells the others, as the bytes of a message: a Command, and what belongs to it.
#pragma once

#include <string>
#include <vector>

#include "base/sha256.h"
#include "engine/ranks/step_bytes.h"
#include "lora/adapter_ids.h"

namespace choral::engine {

enum class RankCommand : uint8_t {
  kAddRequest,      // NewRequest; answered by a Status
  kDropRequest,     // its id
  kStep,            // StepInput
  kPrepareAdapter,  // FarVoices, whose files are read beside the steps; answered by whether each is read, a byte each
  kAddAdapter,      // FarVoice; answered by a Status
  kRemoveAdapter,   // its key
  kEnd,             // the program ends
};

// An adapter of a voice, for a process that reads it itself.
struct FarTerm {
  std::string path;
  Sha256Digest digest{};
  bool replaces = false;
  float factor = 1.0F;
};
struct FarVoice {
  lora::AdapterKey key = {};
  std::vector<FarTerm> terms;
};

void fields(auto& io, RecordOf<FarTerm> auto& r) { io(r.path, r.digest, r.replaces, r.factor); }
void fields(auto& io, RecordOf<FarVoice> auto& r) { io(r.key, r.terms); }

}  // namespace choral::engine
