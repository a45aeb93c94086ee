// What the routes of files and batches have in common. On readers' threads.
#pragma once

#include <algorithm>
#include <ctime>
#include <string>
#include <string_view>

#include "base/printable.h"
#include "serve/batches/batch_json.h"
#include "serve/http/error_response.h"
#include "serve/list_page.h"
#include "serve/service/service.h"

namespace choral::serve {

// What a path says behind /v1/files/ or /v1/batches/: "ID", "ID/content".
struct StoredPath {
  std::string id, rest;
  static StoredPath of(std::string_view path) {
    const size_t slash = std::min(path.find('/'), path.size());
    return {std::string(path.substr(0, slash)), std::string(path.substr(slash))};
  }
};

// `what`: "file", "batch".
inline void no_such(const Exchange& exchange, std::string_view what, const StoredPath& path) {
  exchange->respond(
      error_response({.status = 404,
                      .message = fmt::format("there is no {} '{}' here, or no more", what, printable(path.id + path.rest, 80)),
                      .code = "not_found",
                      .param = fmt::format("{}_id", what)}));
}

// Runs `use` with the store on a reader's thread, or answers why not.
template <class Use>
void with_batches(Service& service, const Exchange& exchange, Use use) {
  service.with_model(exchange, [&service, use](LLM&, const Exchange& e) {
    if (service.batches() == nullptr)
      return e->respond(service.error(
          unsupported("no files and batches are kept here: start the server with --state-dir DIR (and --store-files above 0); "
                      "without a server, `choral run-batch` answers such a file")));
    use(*service.batches(), e);
  });
}

// A list of stored things that `write` puts into words.
template <class T>
std::string list_json(const Listed<T>& listed, std::string (*write)(const T& one)) {
  std::vector<std::string> objects;
  for (const auto& one : listed.all) objects.push_back(write(one));
  return list_json(objects, listed.all.empty() ? "" : listed.all.front().id, listed.all.empty() ? "" : listed.all.back().id,
                   listed.has_more);
}

}  // namespace choral::serve
