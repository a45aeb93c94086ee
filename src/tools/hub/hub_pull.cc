#include "tools/hub_pull.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/ascii.h"
#include "fetch/http_source.h"
#include "io/hub_cache.h"
#include "io/mapped_file.h"
#include "tools/hub/listing.h"
#include "tools/hub/repository_cache.h"

namespace choral::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHub = "https://huggingface.co";
constexpr size_t kMostListingBytes = 16 << 20;
constexpr int kTries = 5;  // without a byte between them
constexpr int64_t kMostWaitSeconds = 600;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool is_true(std::string text) {
  text = lower(std::move(text));
  return text == "1" || text == "on" || text == "yes" || text == "true";
}

std::string file_path(const std::string& name, const std::string& commit, const std::string& file) {
  std::string path = fmt::format("/{}/resolve/{}", name, commit);
  for (size_t begin = 0; begin <= file.size();) {
    const size_t end = std::min(file.find('/', begin), file.size());
    path += "/" + fetch::HttpSource::quoted(std::string_view(file).substr(begin, end - begin));
    begin = end + 1;
  }
  return path;
}

// As huggingface_hub reads it: from a variable, else from the file that `hf auth login` writes.
Result<std::string> token_of_environment() {
  if (is_true(variable("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return std::string();
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (std::string token(trimmed(variable(name))); !token.empty()) return token;
  }
  fs::path file = variable("HF_TOKEN_PATH");
  if (file.empty() && !io::hub_home().empty()) file = io::hub_home() / "token";
  constexpr uint64_t kMostTokenBytes = 16 << 10;
  const auto text = file.empty() ? std::string() : io::read_whole_file(file, kMostTokenBytes);
  if (!text.ok() && text.status().code() == Code::kNotFound) return std::string();
  if (!text.ok()) return Status(text.status()).while_("reading the hub's token");
  return std::string(trimmed(*text));
}

class Pull {
 public:
  Pull(const HubPullOptions& options, io::HubName name, std::unique_ptr<fetch::HttpSource> source)
      : options_(options), name_(std::move(name)), cache_(options.cache, name_.repository), source_(std::move(source)) {}

  Result<HubPulled> run() {
    tell("asking the hub");
    const std::string path =
        fmt::format("/api/models/{}/revision/{}?blobs=true", name_.repository, fetch::HttpSource::quoted(name_.revision));
    std::string answer;
    CHORAL_RETURN_IF_ERROR(with_patience([&](bool&) -> Status {
      CHORAL_TRY(answer, source_->get_text(path, kMostListingBytes));
      return {};
    }));
    CHORAL_TRY(const HubListing listing, read_listing(answer));
    CHORAL_TRY(const auto files, wanted_files(listing, options_.files));
    CHORAL_RETURN_IF_ERROR(cache_.make_folders());
    pulled_ = {.path = cache_.snapshot(listing.commit), .commit = listing.commit, .files = files.size()};
    int64_t missing = 0;
    for (const auto& file : files) {
      pulled_.all_bytes += file.size_bytes;
      if (!cache_.has(file)) missing += file.size_bytes;
    }
    CHORAL_RETURN_IF_ERROR(cache_.check_room(missing));
    for (const auto& file : files) CHORAL_RETURN_IF_ERROR(get(listing.commit, file).while_(file.name));
    if (name_.revision != listing.commit) CHORAL_RETURN_IF_ERROR(cache_.set_ref(name_.revision, listing.commit));
    if (files.size() == 1 && files.front().name.ends_with(".gguf")) pulled_.path /= files.front().name;
    return pulled_;
  }

 private:
  void tell(std::string_view doing) const {
    if (options_.on_progress) options_.on_progress({doing, done_bytes_, pulled_.all_bytes});
  }

  // Again while it may go well, from where it stopped, and after as long as the hub asks for. `once` says whether it came further
  // than before.
  Status with_patience(FunctionRef<Status(bool& moved)> once) {
    for (int tries = 1;; ++tries) {
      bool moved = false;
      Status status = once(moved);
      if (moved) tries = 1;
      if (status.code() != Code::kUnavailable || tries >= kTries) return status;
      const int64_t wait_s = source_->wait_s();
      if (wait_s > kMostWaitSeconds)
        return unavailable("{}; the hub asks to wait {} s: what came so far is kept, pull again then", status.message(), wait_s);
      if (wait_s > 0) tell(fmt::format("the hub asks to wait {} s", wait_s));
      std::this_thread::sleep_for(
          std::max(std::chrono::milliseconds(250) * (1 << tries), std::chrono::milliseconds(1000 * wait_s)));
    }
  }

  Status get(const std::string& commit, const HubFile& file) {
    const int64_t before = done_bytes_;
    const std::string path = file_path(name_.repository, commit, file.name);
    const auto fetch = [&](RepositoryCache::Partial& partial) {
      int64_t furthest = partial.size_bytes();  // a server without ranges begins anew each time
      return with_patience([&](bool& moved) {
        const auto begin = [&](int64_t first) { return first == partial.size_bytes() ? Status() : partial.cut(first); };
        const auto take = [&](std::span<const std::byte> bytes) {
          pulled_.fetched_bytes += std::ssize(bytes);
          Status status = partial.append(bytes);
          moved = moved || partial.size_bytes() > furthest;
          furthest = std::max(furthest, partial.size_bytes());
          done_bytes_ = before + partial.size_bytes();
          tell(file.name);
          return status;
        };
        Status status = source_->get_file(path, partial.size_bytes(), begin, take);
        if (status.ok() && partial.size_bytes() < file.size_bytes) status = unavailable("the hub sent less than it lists");
        return status;
      });
    };
    const auto wait = [&] { tell("waiting for another process that fetches " + file.name); };
    if (!cache_.has(file)) CHORAL_RETURN_IF_ERROR(cache_.fill(file, fetch, wait));
    done_bytes_ = before + file.size_bytes;
    tell(file.name);
    return cache_.link(commit, file);
  }

  const HubPullOptions& options_;
  const io::HubName name_;
  RepositoryCache cache_;
  std::unique_ptr<fetch::HttpSource> source_;
  HubPulled pulled_;
  int64_t done_bytes_ = 0;
};

}  // namespace

Result<HubPullOptions> hub_options_of_environment() {
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    if (is_true(variable(name))) return unavailable("{} is set: nothing is fetched; unset it to pull", name);
  }
  HubPullOptions options;
  options.endpoint = variable("HF_ENDPOINT");
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  if (options.endpoint.empty()) options.endpoint = kHub;
  CHORAL_TRY(options.token, token_of_environment());
  const auto roots = io::hub_cache_roots();
  if (roots.empty()) return not_found("there is no home for the cache; HF_HUB_CACHE names a folder for it");
  options.cache = roots.front();
  return options;
}

Result<HubPulled> pull_from_hub(const HubPullOptions& options) {
  CHORAL_TRY(auto name, io::parse_hub_name(options.name));
  CHORAL_TRY(auto source, fetch::HttpSource::make(options.endpoint, options.token));
  return Pull(options, std::move(name), std::move(source)).run().while_(options.name);
}

}  // namespace choral::tools
