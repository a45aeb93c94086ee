// Files of requests, for batches, and of their answers.
#include "serve/batches/batch_call.h"
#include "serve/batches/batch_json.h"
#include "serve/fresh_id.h"
#include "serve/http/error_response.h"
#include "serve/routes/kept_batches.h"
#include "serve/routes/read_body.h"
#include "serve/routes/routes.h"

namespace choral::serve {
namespace {

// A file's lines, as they are read from the store.
class FileText final : public AnswerText {
 public:
  FileText(BatchStore& store, std::string id) : store_(store), id_(std::move(id)) {}

  bool write(size_t enough_bytes, std::string& out) override {
    while (out.size() < enough_bytes) {
      const auto line = store_.line(id_, next_);
      status_ = line.status();
      if (!line.ok() || !*line) return false;
      out += (*line)->text;
      next_ = (*line)->number + 1;
    }
    return true;
  }
  Status status() const override { return status_; }

 private:
  BatchStore& store_;
  const std::string id_;
  int64_t next_ = 0;
  Status status_;
};

void upload(Service& service, BatchStore& store, const Exchange& e) {
  BodyNotes notes;
  const auto call = read_body(service, e, notes, [&e](std::string_view body, BodyNotes& n) {
    return read_upload_call(e->request().headers.get("Content-Type"), body, n);
  });
  if (!call) return;
  StoredFile file{.id = fresh_id("file-"), .owner = service.owner(e->request()), .purpose = "batch", .name = call->name};
  if (call->expires_s > 0) file.expires_unix_s = std::time(nullptr) + call->expires_s;
  const auto stored = store.add_file(std::move(file), call->content);
  if (!stored.ok()) return e->respond(service.error(stored.status(), "file"));
  e->respond(json_response(file_json(*stored)));
}

}  // namespace

void upload_file(Service& service, const Exchange& exchange) {
  with_batches(service, exchange, [&service](BatchStore& store, const Exchange& e) { upload(service, store, e); });
}

void list_files(Service& service, const Exchange& exchange) {
  with_batches(service, exchange, [&service](BatchStore& store, const Exchange& e) {
    constexpr int64_t kMostFiles = 10'000;
    const std::string& query = e->request().query;
    const auto page = read_list_page(query, {.limit = kMostFiles}, kMostFiles);
    if (!page.ok()) return e->respond(service.error(page.status()));
    const auto listed = store.files(service.owner(e->request()), query_parameter(query, "purpose"), *page);
    if (!listed.ok()) return e->respond(service.error(listed.status(), "after"));
    e->respond(json_response(list_json(*listed, file_json)));
  });
}

void get_file(Service& service, const Exchange& exchange, std::string_view path) {
  with_batches(service, exchange, [&service, path = StoredPath::of(path)](BatchStore& store, const Exchange& e) {
    const auto file = store.find_file(path.id, service.owner(e->request()));
    if (!file.ok()) return e->respond(service.error(file.status()));
    if (!*file || (!path.rest.empty() && path.rest != "/content")) return no_such(e, "file", path);
    if (path.rest.empty()) return e->respond(json_response(file_json(**file)));
    service.send(e, {{"Content-Type", "application/jsonl"}}, std::make_unique<FileText>(store, path.id));
  });
}

void delete_file(Service& service, const Exchange& exchange, std::string_view path) {
  with_batches(service, exchange, [&service, path = StoredPath::of(path)](BatchStore& store, const Exchange& e) {
    if (!path.rest.empty()) return no_such(e, "file", path);
    const auto removed = store.remove_file(path.id, service.owner(e->request()));
    if (!removed.ok()) return e->respond(service.error(removed.status(), "file_id"));
    if (!*removed) return no_such(e, "file", path);
    e->respond(json_response(deleted_file_json(path.id)));
  });
}

}  // namespace choral::serve
