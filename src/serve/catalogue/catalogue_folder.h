// A catalogue in a folder that replicas share, on a network's file system too: `catalogue.json` in it is opened anew at each
// look, because that is when such a file system asks its server, where what it lists, or says of a path, may be a minute old. Who
// changes it writes a new file and renames it over the old one. Without that file there is no catalogue.
// A writer puts each content into a folder of its own with a name that nothing had before, so that no replica has an older idea
// of it, then names it in the map. Writers take turns by a lock of the file system, which ends with its process. What no name
// leads to any more is deleted by a later writer, once no replica can be on its way to it. Thread-safe; calls wait for the disk.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "serve/catalogue/catalogue.h"
#include "serve/catalogue/followed_catalogue.h"

namespace choral::serve {

class CatalogueFolder final : public FollowedCatalogue {
 public:
  static constexpr const char* kFileName = "catalogue.json";
  static constexpr const char* kContents = ".contents";  // its folder of contents, which is no adapter's
  static constexpr double kLookEveryS = 2;
  struct Limits {
    std::chrono::seconds kept{600};  // that a content stays when no name leads to it any more
    std::chrono::seconds lock_wait{20};
  };

  explicit CatalogueFolder(std::string root) : CatalogueFolder(std::move(root), Limits()) {}
  CatalogueFolder(std::string root, Limits limits) : root_(std::move(root)), limits_(limits) {}

  double look_every_s() const override { return kLookEveryS; }

  // --- who writes ---
  // Copies an adapter's files, a folder's or a GGUF file, and gives the place of the copy, which is safe on the disk.
  // unavailable: the files changed meanwhile.
  Result<std::string> take_in(const std::string& from);
  // `place`, take_in()'s, stands for the name from now on, in all replicas.
  Status put(const std::string& name, const std::string& digest, const std::string& place);
  // False: it has no such name.
  Result<bool> remove(std::string_view name);
  // Of a copy that no name stands for.
  void drop(const std::string& place);
  // Reads the map, an empty one where there is none, and replaces it by what `change` makes of it, unless that says false. Nobody
  // else writes meanwhile.
  Status rewrite(FunctionRef<Result<bool>(Catalogue&)> change);

 private:
  Status read() override;
  Result<std::optional<std::string>> text() const;  // nothing: there is no such file
  Result<std::shared_ptr<const View>> view_of(const Catalogue& catalogue) const;
  Status write(const Catalogue& catalogue);
  void delete_unnamed(const Catalogue& catalogue);
  std::filesystem::path contents() const { return std::filesystem::path(root_) / kContents; }

  const std::string root_;
  const Limits limits_;
  std::mutex reading_;     // guards the members below
  std::string read_text_;  // what was read last
  bool is_read_ = false;
};

}  // namespace choral::serve
