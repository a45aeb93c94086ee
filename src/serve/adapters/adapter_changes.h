// What clients change of adapters while the server runs: in the engine and in the record that outlasts it, both or neither told
// of as done. Changes of one name happen one after another, so that engine and record never differ in which came last; those of
// different names go side by side. Thread-safe; calls wait for loads and for the disk.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "choral/llm.h"
#include "serve/adapters/name_turns.h"
#include "serve/adapters/registered_adapters.h"

namespace choral::serve {

class AdapterChanges {
 public:
  // Both outlive this. `registered`: null when nothing is to outlast the server.
  AdapterChanges(LLM& llm, RegisteredAdapters* registered) : llm_(llm), registered_(registered) {}

  // LLM::load_adapter's errors, and the record's. Gives what the name stands for then.
  Result<AdapterInfo> load(const AdapterSpec& spec, bool replace, std::optional<int> expected_generation);
  Status unload(const std::string& name, std::optional<int> expected_generation);
  Result<AdapterInfo> pin(const std::string& name, bool pinned);
  // The folder `path` is gone: so is the name, if it still stands for what was read there and nobody registered it, which only a
  // client takes back. True: it is.
  Result<bool> forget_folder(const std::string& name, std::string_view path);

  int waiting() const { return turns_.waiting(); }  // changes that wait for another one of the same name

 private:
  AdapterInfo present(const std::string& name) const;

  LLM& llm_;
  RegisteredAdapters* const registered_;
  NameTurns turns_;
};

}  // namespace choral::serve
