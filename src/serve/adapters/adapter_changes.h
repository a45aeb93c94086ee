// What clients change of adapters while the server runs: in the engine and in the record that outlasts it, both or neither told
// of as done. Changes of one name happen one after another, so that engine and record never differ in which came last; those of
// different names go side by side. Thread-safe; calls wait for loads and for the disk.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "choral/llm.h"
#include "serve/adapters/adapter_uploads.h"
#include "serve/adapters/name_turns.h"
#include "serve/adapters/registered_adapters.h"
#include "serve/catalogue/catalogue_folder.h"

namespace choral::serve {

class AdapterChanges {
 public:
  // All outlive this. `registered` and `uploads`: null when nothing is to outlast the server. `catalogue`: the fleet's, into
  // which changes go instead of into `registered`; null: they are this server's own.
  AdapterChanges(LLM& llm, RegisteredAdapters* registered, AdapterUploads* uploads = nullptr,
                 CatalogueFolder* catalogue = nullptr)
      : llm_(llm), registered_(registered), uploads_(uploads), catalogue_(catalogue) {}

  // LLM::load_adapter's errors, and the record's. Gives what the name stands for then.
  Result<AdapterInfo> load(const AdapterSpec& spec, bool replace, std::optional<int> expected_generation);
  Status unload(const std::string& name, std::optional<int> expected_generation);
  Result<AdapterInfo> pin(const std::string& name, bool pinned);
  // The folder `path` is gone, or the catalogue names it no more: so is the name, if it still stands for what was read there, or
  // was found at all, and nobody registered it, which only a client takes back. True: it is.
  Result<bool> forget_folder(const std::string& name, std::string_view path);

  int waiting() const { return turns_.waiting(); }  // changes that wait for another one of the same name

 private:
  AdapterInfo present(const std::string& name) const;
  Result<AdapterInfo> load_for_all(AdapterSpec spec, bool replace, std::optional<int> expected_generation);
  Status unload_for_all(const std::string& name, std::optional<int> expected_generation);
  bool is_catalogued(std::string_view name) const;
  // It is registered no more, and what a client sent for it is deleted.
  Status unregister(const std::string& name);
  // Where it was registered from; empty: it is not.
  Result<std::string> registered_path(std::string_view name);
  // Of what stands for the name, and of its earlier generations.
  std::set<std::string> places_of(const std::string& name) const;
  void drop_left(const std::string& name, std::set<std::string> before);
  // What a client sent goes with the last name that stands for it. Where it cannot go now, it does at the next start.
  void drop_upload(const std::string& path);

  LLM& llm_;
  RegisteredAdapters* const registered_;
  AdapterUploads* const uploads_;
  CatalogueFolder* const catalogue_;
  NameTurns turns_;
};

}  // namespace choral::serve
