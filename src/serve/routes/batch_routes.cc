// Batches: begun, listed, shown, cancelled. A runner works them off.
#include "serve/batches/batch_call.h"
#include "serve/batches/batch_json.h"
#include "serve/fresh_id.h"
#include "serve/http/error_response.h"
#include "serve/routes/kept_batches.h"
#include "serve/routes/read_body.h"
#include "serve/routes/routes.h"

namespace choral::serve {
namespace {

void create(Service& service, BatchStore& store, const Exchange& e) {
  BodyNotes notes;
  const auto call = read_body(service, e, notes, read_batch_call);
  if (!call) return;
  const std::string owner = service.owner(e->request());
  const auto file = store.find_file(call->input_file, owner);
  if (!file.ok()) return e->respond(service.error(file.status()));
  if (!*file || (*file)->purpose != "batch")
    return e->respond(
        service.error(invalid_argument("there is no file '{}' with the purpose batch here; POST /v1/files sends one",
                                       call->input_file.substr(0, 80)),
                      "input_file_id"));
  const int64_t now = std::time(nullptr);
  StoredBatch batch{.id = fresh_id("batch_"), .owner = owner, .status = "validating", .endpoint = call->endpoint};
  batch.input_file = call->input_file;
  batch.output_file = fresh_id("file-");
  batch.error_file = fresh_id("file-");
  batch.facts_json = batch_facts(call->window, call->metadata_json);
  batch.created_unix_s = now;
  batch.expires_unix_s = now + call->window_s;
  batch.output_expires_s = call->output_expires_s;
  if (const Status added = store.add_batch(batch); !added.ok()) return e->respond(service.error(added));
  e->respond(json_response(batch_json(batch)));
}

void cancel(Service& service, BatchStore& store, const Exchange& e, const StoredPath& path) {
  const auto found = store.find_batch(path.id, service.owner(e->request()));
  if (!found.ok()) return e->respond(service.error(found.status()));
  if (!*found || path.rest != "/cancel") return no_such(e, "batch", path);
  StoredBatch now;
  const auto changed = store.change_batch(path.id, [&now](StoredBatch& batch) {
    if (batch.status == "validating" || batch.status == "in_progress") set_batch_status(batch, "cancelling", std::time(nullptr));
    now = batch;
  });
  if (!changed.ok()) return e->respond(service.error(changed.status()));
  if (!*changed) return no_such(e, "batch", path);
  if (now.status == "cancelling" || now.status == "cancelled") return e->respond(json_response(batch_json(now)));
  e->respond(error_response({.status = 409,
                             .message = fmt::format("Cannot cancel a batch with status '{}'.", now.status),
                             .code = "batch_has_ended",
                             .param = "batch_id"}));
}

}  // namespace

void create_batch(Service& service, const Exchange& exchange) {
  with_batches(service, exchange, [&service](BatchStore& store, const Exchange& e) { create(service, store, e); });
}

void list_batches(Service& service, const Exchange& exchange) {
  with_batches(service, exchange, [&service](BatchStore& store, const Exchange& e) {
    constexpr int64_t kMostBatches = 100;
    const auto page = read_list_page(e->request().query, {}, kMostBatches);
    if (!page.ok()) return e->respond(service.error(page.status()));
    const auto listed = store.batches(service.owner(e->request()), *page);
    if (!listed.ok()) return e->respond(service.error(listed.status(), "after"));
    e->respond(json_response(list_json(*listed, batch_json)));
  });
}

void get_batch(Service& service, const Exchange& exchange, std::string_view path) {
  with_batches(service, exchange, [&service, path = StoredPath::of(path)](BatchStore& store, const Exchange& e) {
    const auto found = store.find_batch(path.id, service.owner(e->request()));
    if (!found.ok()) return e->respond(service.error(found.status()));
    if (!*found || !path.rest.empty()) return no_such(e, "batch", path);
    e->respond(json_response(batch_json(**found)));
  });
}

void cancel_batch(Service& service, const Exchange& exchange, std::string_view path) {
  with_batches(service, exchange, [&service, path = StoredPath::of(path)](BatchStore& store, const Exchange& e) {
    cancel(service, store, e, path);
  });
}

}  // namespace choral::serve
