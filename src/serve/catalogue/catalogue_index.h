// A catalogue behind a URL: an index, asked for every few seconds with the ETag it had, and files that lie beside it. They are
// fetched into a folder of the state directory, checked against the index's sizes and hashes, and only then stand for a name.
// What is here stays while the index or a file cannot be had, also over a restart. Contents that no name leads to any more are
// deleted a while later. The URL says where everything is: no entry of the index leads to another host. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "fetch/http_source.h"
#include "serve/catalogue/catalogue.h"
#include "serve/catalogue/followed_catalogue.h"

namespace choral::serve {

class CatalogueIndex final : public FollowedCatalogue {
 public:
  static constexpr const char* kFolderName = "adapter_catalogue";  // of the state directory
  static constexpr double kLookEveryS = 2;
  struct Options {
    std::string url = {};            // of the index; files are looked for from its folder on
    std::string token = {};          // that is sent with each request
    std::string token_file = {};     // or the file that holds it, which is read anew each time
    std::string ca_file = {};        // whom to trust; empty: as the system says
    int64_t most_bytes = 0;          // of all files that are kept
    std::chrono::seconds kept{600};  // that a content stays when no name leads to it any more
    std::function<std::chrono::steady_clock::time_point()> clock = std::chrono::steady_clock::now;
  };

  // Names what an earlier server fetched; asks for nothing yet.
  static Result<std::unique_ptr<CatalogueIndex>> open(const std::string& state_directory, Options options);

  double look_every_s() const override { return kLookEveryS; }
  void stop() override { source_->stop(); }

 private:
  CatalogueIndex(std::filesystem::path folder, Options options) : folder_(std::move(folder)), options_(std::move(options)) {}
  Status connect();
  Status read() override;
  Status read_kept();
  Status ask();
  // Fetches what is missing, names all that is here. The error of the first that cannot be had.
  Status follow();
  // Unless it failed a while ago: then the reason of that time. What fails again and again is tried less and less often.
  Status fetch_in_time(const CataloguedAdapter& adapter, const std::filesystem::path& place);
  Status fetch(const CataloguedAdapter& adapter, const std::filesystem::path& place);
  Status fetch_file(const std::string& path, const CataloguedFile& file, const std::filesystem::path& to);
  void delete_unnamed();
  std::filesystem::path place_of(const CataloguedAdapter& adapter) const;

  const std::filesystem::path folder_;
  const Options options_;
  std::string base_;        // of the URL: scheme and host
  std::string index_path_;  // behind it
  std::unique_ptr<fetch::HttpSource> source_;
  std::mutex reading_;  // guards the members below
  std::string etag_;
  Catalogue catalogue_;
  struct Failure {
    Status why;
    std::chrono::seconds pause{0};
    std::chrono::steady_clock::time_point next{};
  };
  std::map<std::string, Failure, std::less<>> failures_;                               // of the present index, by folder
  std::map<std::string, std::chrono::steady_clock::time_point, std::less<>> unnamed_;  // folders, since when
};

}  // namespace choral::serve
