#include "adapter_catalogue.h"

#include <filesystem>

#include "base/log.h"
#include "base/printable.h"
#include "base/sha256.h"
#include "engine/adapters/file_facts.h"
#include "io/mapped_file.h"
#include "lora/peft/adapters_in_root.h"
#include "output_file.h"
#include "serve/adapters/adapter_uploads.h"
#include "serve/catalogue/catalogue_folder.h"
#include "tools/adapter_check.h"

namespace choral::apps {
namespace {

namespace fs = std::filesystem;

// Those that may be fetched: files of PyTorch's are served where they lie, and nowhere else.
Result<std::map<std::string, serve::CataloguedFile, std::less<>>> files_of(const std::string& folder) {
  std::map<std::string, serve::CataloguedFile, std::less<>> files;
  std::vector<serve::SentFile> sent;
  for (const auto& facts : engine::look_at_adapter(folder)) {
    CHORAL_TRY(const auto file, io::MappedFile::open(fs::path(folder) / facts.name));
    const auto bytes = file->bytes();
    files[facts.name] = {.bytes = std::ssize(bytes), .sha256 = to_hex(sha256(bytes))};
    sent.push_back({.name = facts.name, .bytes = std::ssize(bytes)});
  }
  if (!serve::check_adapter_files(sent).ok()) files.clear();
  return files;
}

Result<serve::Catalogue> catalogue_of(const AdapterCatalogueFlags& flags) {
  if (flags.engine.options.model.empty())
    return invalid_argument("--model is needed: a digest is that of an adapter on its model");
  CHORAL_TRY(const auto options, engine_options(flags.engine));
  CHORAL_TRY(const auto checker, tools::AdapterChecker::make(options));
  CHORAL_TRY(const auto found, lora::adapters_in_root(flags.folder));
  serve::Catalogue catalogue;
  for (const auto& [name, path] : found) {
    const auto report = checker->check(path);
    if (!report.usable())
      return Status(report.code, fmt::format("adapter '{}': {}; nothing was written", printable(name), report.problems.front()));
    if (!report.digest) return internal_error("adapter '{}' has no digest", printable(name));
    serve::CataloguedAdapter adapter{.digest = to_hex(*report.digest), .path = name};
    CHORAL_TRY(adapter.files, files_of(path).while_(fmt::format("adapter '{}'", printable(name))));
    catalogue.adapters.emplace(name, std::move(adapter));
  }
  return catalogue;
}

// What servers put there lies apart, under names of its own, and stays; of what the map had beside it only what is there does.
void keep_others(const std::string& folder, const serve::Catalogue& before, serve::Catalogue& now) {
  for (const auto& [name, adapter] : before.adapters) {
    std::error_code error;
    const bool is_apart = adapter.path != name && fs::is_directory(fs::path(folder) / adapter.path, error);
    if (!is_apart) continue;
    if (now.adapters.contains(name))
      say("choral: '{}' stays {}: the catalogue had it there before; unload it, or delete the entry, to have the folder's\n",
          terminal_line(name), terminal_line(adapter.path));
    now.adapters.insert_or_assign(name, adapter);
  }
}

}  // namespace

Status write_adapter_catalogue(const AdapterCatalogueFlags& flags) {
  CHORAL_TRY(auto now, catalogue_of(flags));
  serve::CatalogueFolder folder(flags.folder);
  CHORAL_RETURN_IF_ERROR(folder.rewrite([&](serve::Catalogue& catalogue) -> Result<bool> {
    keep_others(flags.folder, catalogue, now);
    std::error_code unknown;
    const bool is_other = catalogue.adapters != now.adapters || !fs::exists(fs::path(flags.folder) / folder.kFileName, unknown);
    catalogue = std::move(now);
    now = catalogue;
    return is_other;
  }));
  return flags.quiet ? Status()
                     : print_out(fmt::format("{}/{}: {} adapters\n", flags.folder, folder.kFileName, now.adapters.size()));
}

}  // namespace choral::apps
